from collections.abc import Iterable
from typing import Any, ClassVar, SupportsFloat, SupportsIndex, final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "Action",
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Message",
    "Ready",
    "Register",
    "Registered",
    "RolloutStep",
    "Start",
]

@disjoint_base
class Message:
    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]: ...

@final
class LobbyRequest(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    def __init__(self, name: str, number: SupportsIndex) -> None: ...

@final
class Register(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def key(self) -> str: ...
    @property
    def tag(self) -> str: ...
    def __init__(self, name: str, number: SupportsIndex, key: str, tag: str) -> None: ...

@final
class Ready(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def key(self) -> str: ...
    @property
    def ready(self) -> bool: ...
    def __init__(self, name: str, number: SupportsIndex, key: str, ready: bool) -> None: ...

@final
class Action(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def action(self) -> Any: ...
    def __init__(self, name: str, number: SupportsIndex, action: str | Buffer) -> None: ...

@final
class AgentSlot:
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def key(self) -> str: ...
    @property
    def open(self) -> bool: ...
    @property
    def kind(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def ready(self) -> bool: ...
    def __init__(self, key: str, open: bool, kind: str, tag: str, ready: bool) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]: ...

@final
class LobbyInformation(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def slots(self) -> tuple[AgentSlot, ...]: ...
    def __init__(self, name: str, number: SupportsIndex, slots: Iterable[AgentSlot]) -> None: ...

@final
class Registered(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def key(self) -> str: ...
    def __init__(self, name: str, number: SupportsIndex, key: str) -> None: ...

@final
class LobbyMessage(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def text(self) -> str: ...
    def __init__(self, name: str, number: SupportsIndex, text: str) -> None: ...

@final
class Start(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def port(self) -> int: ...
    def __init__(self, name: str, number: SupportsIndex, port: SupportsIndex) -> None: ...

@final
class RolloutStep(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def timestamp(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def observation(self) -> Any: ...
    @property
    def reward(self) -> float | str: ...
    @property
    def done(self) -> bool: ...
    @property
    def extra(self) -> Any: ...
    def __init__(
        self,
        name: str,
        number: SupportsIndex,
        timestamp: SupportsIndex,
        step: SupportsIndex,
        observation: str | Buffer,
        reward: SupportsFloat | str,
        done: bool,
        extra: str | Buffer | None = None,
    ) -> None: ...

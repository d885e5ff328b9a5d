from collections.abc import Iterable
from typing import Any, ClassVar, Final, SupportsFloat, SupportsIndex, final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "Action",
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Message",
    "Ready",
    "Record",
    "Register",
    "Registered",
    "RolloutStep",
    "Start",
]

@disjoint_base
class Record:
    __match_args__: ClassVar[tuple[str, ...]]
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]: ...

@disjoint_base
class Message(Record):
    name: Final[str]
    number: Final[int]

@final
class LobbyRequest(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    def __init__(self, name: str, number: SupportsIndex) -> None: ...

@final
class Register(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    key: Final[str]
    tag: Final[str]
    def __init__(self, name: str, number: SupportsIndex, key: str, tag: str) -> None: ...

@final
class Ready(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    key: Final[str]
    ready: Final[bool]
    def __init__(self, name: str, number: SupportsIndex, key: str, ready: bool) -> None: ...

@final
class Action(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    action: Final[Any]
    def __init__(self, name: str, number: SupportsIndex, action: str | Buffer) -> None: ...

@final
class AgentSlot(Record):
    __match_args__: ClassVar[tuple[str, ...]]
    key: Final[str]
    open: Final[bool]
    kind: Final[str]
    tag: Final[str]
    ready: Final[bool]
    def __init__(self, key: str, open: bool, kind: str, tag: str, ready: bool) -> None: ...

@final
class LobbyInformation(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    slots: Final[tuple[AgentSlot, ...]]
    def __init__(self, name: str, number: SupportsIndex, slots: Iterable[AgentSlot]) -> None: ...

@final
class Registered(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    key: Final[str]
    def __init__(self, name: str, number: SupportsIndex, key: str) -> None: ...

@final
class LobbyMessage(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    text: Final[str]
    def __init__(self, name: str, number: SupportsIndex, text: str) -> None: ...

@final
class Start(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    port: Final[int]
    def __init__(self, name: str, number: SupportsIndex, port: SupportsIndex) -> None: ...

@final
class RolloutStep(Message):
    __match_args__: ClassVar[tuple[str, ...]]
    timestamp: Final[int]
    step: Final[int]
    observation: Final[Any]
    reward: Final[float | str]
    done: Final[bool]
    extra: Final[Any]
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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypedDict, final

from typing_extensions import Self, Unpack, disjoint_base

__all__ = [
    "AgentAction",
    "ClientMessage",
    "ConnectionClose",
    "ControlPing",
    "EnvDescribe",
    "EnvObservation",
    "EnvReset",
    "EnvReward",
    "EnvText",
    "Message",
    "ReplyControlPing",
    "ReplyEnvReset",
    "ReplyError",
    "ServerMessage",
    "UnknownMessage",
]

class _Headers(TypedDict, total=False):
    sent_at: float | None
    message_id: int | str | None
    episode_id: str | None
    parent_message_id: int | str | None
    parent_runtime: float | None
    extra_headers: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    extra: Mapping[str, Any] | None

@disjoint_base
class Message:
    __match_args__: ClassVar[tuple[str, ...]]
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __init__(self, *arguments: Any, **headers: Any) -> None: ...
    method: Final[str]
    sent_at: Final[float | None]
    message_id: Final[int | str | None]
    episode_id: Final[str | None]
    parent_message_id: Final[int | str | None]
    parent_runtime: Final[float | None]
    extra_headers: Final[Mapping[str, Any]]
    extra_body: Final[Mapping[str, Any]]
    extra: Final[Mapping[str, Any]]
    def with_headers(self, **headers: Unpack[_Headers]) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...

class ServerMessage(Message): ...
class ClientMessage(Message): ...

@final
class EnvDescribe(ServerMessage):
    env_id: Final[str | None]
    env_state: Final[str | None]
    fps: Final[float | None]
    def __init__(
        self,
        env_id: str | None,
        env_state: str | None,
        fps: float | None = None,
        **headers: Unpack[_Headers],
    ) -> None: ...

@final
class EnvReward(ServerMessage):
    reward: Final[float]
    done: Final[bool]
    info: Final[dict[str, Any]]
    def __init__(
        self,
        reward: float,
        done: bool,
        info: Mapping[str, Any] | None = None,
        **headers: Unpack[_Headers],
    ) -> None: ...

@final
class EnvText(ServerMessage):
    text: Final[str]
    def __init__(self, text: str, **headers: Unpack[_Headers]) -> None: ...

@final
class EnvObservation(ServerMessage):
    observation: Final[Any]
    def __init__(self, observation: Any, **headers: Unpack[_Headers]) -> None: ...

@final
class ConnectionClose(ServerMessage):
    message: Final[str]
    def __init__(self, message: str, **headers: Unpack[_Headers]) -> None: ...

@final
class ReplyError(ServerMessage):
    message: Final[str]
    def __init__(self, message: str, **headers: Unpack[_Headers]) -> None: ...

@final
class ReplyEnvReset(ServerMessage):
    def __init__(self, **headers: Unpack[_Headers]) -> None: ...

@final
class ReplyControlPing(ServerMessage):
    def __init__(self, **headers: Unpack[_Headers]) -> None: ...

@final
class AgentAction(ClientMessage):
    action: Final[tuple[tuple[Any, ...], ...]]
    def __init__(self, action: Iterable[Sequence[Any]], **headers: Unpack[_Headers]) -> None: ...

@final
class EnvReset(ClientMessage):
    env_id: Final[str | None]
    seed: Final[int | None]
    fps: Final[float | None]
    def __init__(
        self,
        env_id: str | None,
        seed: int | None = None,
        fps: float | None = None,
        **headers: Unpack[_Headers],
    ) -> None: ...

@final
class ControlPing(ClientMessage):
    def __init__(self, **headers: Unpack[_Headers]) -> None: ...

@final
class UnknownMessage(Message):
    body: Final[Any]
    def __init__(self, method: str, body: Any = None, **headers: Unpack[_Headers]) -> None: ...

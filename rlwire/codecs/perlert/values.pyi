from typing import Any, ClassVar, Final, SupportsFloat, SupportsIndex, final

from typing_extensions import disjoint_base

__all__ = ["Action", "Record", "RolloutStep"]

@disjoint_base
class Record:
    __match_args__: ClassVar[tuple[str, ...]]
    name: Final[str]
    number: Final[int]
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]: ...

@final
class Action(Record):
    __match_args__: ClassVar[tuple[str, ...]]
    action: Final[str]
    def __init__(self, name: str, number: SupportsIndex, action: str) -> None: ...

@final
class RolloutStep(Record):
    __match_args__: ClassVar[tuple[str, ...]]
    timestamp: Final[int]
    step: Final[int]
    observation: Final[str]
    reward: Final[float | str]
    done: Final[bool]
    extra: Final[str | None]
    def __init__(
        self,
        name: str,
        number: SupportsIndex,
        timestamp: SupportsIndex,
        step: SupportsIndex,
        observation: str,
        reward: SupportsFloat | str,
        done: bool,
        extra: str | None = None,
    ) -> None: ...

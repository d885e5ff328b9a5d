"""PERLERT's messages, with the draft's fields, which are checked when encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "Action",
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Ready",
    "Register",
    "Registered",
    "RolloutStep",
    "Start",
]


@dataclass(frozen=True, slots=True)
class _Headed:
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class LobbyRequest(_Headed):
    """A client requests the lobby: ``city:7;lobby``."""


@dataclass(frozen=True, slots=True)
class Register(_Headed):
    """A client requests a slot: ``city:7;register=agent0,patrick``."""

    key: str
    tag: str


@dataclass(frozen=True, slots=True)
class Ready(_Headed):
    """A client reports whether it is ready: ``city:7;ready=agent0,true``."""

    key: str
    ready: bool


@dataclass(frozen=True, slots=True)
class AgentSlot:
    """One slot of a lobby: ``agent0=close,citizen,patrick,not_ready``."""

    key: str
    open: bool
    kind: str
    tag: str
    ready: bool


@dataclass(frozen=True, slots=True)
class LobbyInformation(_Headed):
    """The server's slots: ``city:7;agent0=open,citizen,cpu,ready``."""

    slots: tuple[AgentSlot, ...]


@dataclass(frozen=True, slots=True)
class Registered(_Headed):
    """The server has assigned a slot to the client: ``city:7;registered=agent0``."""

    key: str


@dataclass(frozen=True, slots=True)
class LobbyMessage(_Headed):
    """A message for people: ``city:7;message=Simulation will start...``."""

    text: str


@dataclass(frozen=True, slots=True)
class Start(_Headed):
    """The simulation starts: ``city:7;start=port:32323``."""

    port: int


class Action(NamedTuple):
    """A client's action: ``city:7;action=walk``."""

    name: str
    number: int
    action: str


class RolloutStep(NamedTuple):
    """One step of an agent: ``city:7:1590853116323:0;obs=45;reward=0;done=false``.

    The reward is a number, or a str if it is not one. A float32 is written as the shortest decimal
    that reads back as the same float32.
    """

    name: str
    number: int
    timestamp: int
    step: int
    observation: str
    reward: float | str
    done: bool
    extra: str | None = None

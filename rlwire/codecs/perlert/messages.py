"""The lobby's messages as values; the fields are the draft's, and are checked when encoded."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Ready",
    "Register",
    "Registered",
    "Start",
]


@dataclass(frozen=True, slots=True)
class LobbyRequest:
    """A client asks for the lobby: ``city:7;lobby``."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Register:
    """A client asks for a slot: ``city:7;register=agent0,patrick``."""

    name: str
    number: int
    key: str
    tag: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A client says whether it is ready: ``city:7;ready=agent0,true``."""

    name: str
    number: int
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
class LobbyInformation:
    """The server's slots: ``city:7;agent0=open,citizen,cpu,ready``."""

    name: str
    number: int
    slots: tuple[AgentSlot, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The server has given a slot to the client: ``city:7;registered=agent0``."""

    name: str
    number: int
    key: str


@dataclass(frozen=True, slots=True)
class LobbyMessage:
    """The server tells something: ``city:7;message=Simulation will start...``."""

    name: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """The simulation starts: ``city:7;start=port:32323``."""

    name: str
    number: int
    port: int

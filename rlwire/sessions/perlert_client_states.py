"""What a PERLERT client's session knows by heart: states, what may happen in them, times, events.

`rlwire.sessions.perlert_client` is the session, and gives all these names too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from rlwire.codecs import perlert

__all__ = [
    "ADVICE",
    "HOLDING",
    "RUNNING",
    "TRANSITIONS",
    "ClientSettings",
    "Event",
    "Finished",
    "Frame",
    "GaveUp",
    "LobbyChanged",
    "Message",
    "RegisteredAs",
    "SlotTaken",
    "Started",
    "State",
]


class State(enum.Enum):
    """Where an agent stands."""

    IDLE = "idle"
    REGISTERING = "registering"
    REGISTERED = "registered"
    READY = "ready"
    STARTING = "starting"
    ROLLOUT = "rollout"
    DONE = "done"
    CLOSED = "closed"


HOLDING: Final = (State.REGISTERED, State.READY)
"""The states in which a slot of the lobby is held."""
RUNNING: Final = (State.STARTING, State.ROLLOUT)
"""The states of a run."""
_OPEN = tuple(state for state in State if state is not State.CLOSED)

TRANSITIONS: Final[dict[tuple[State, str], State]] = {
    # What the agent calls.
    **{(state, "request_lobby"): state for state in _OPEN},
    **{(state, "register"): State.REGISTERING for state in _OPEN if state not in RUNNING},
    **{(state, "set_ready(True)"): State.READY for state in HOLDING},
    **{(state, "set_ready(False)"): State.REGISTERED for state in HOLDING},
    **{(state, "act"): state for state in RUNNING},
    **{(state, "close"): State.CLOSED for state in State},
    # What the server says, or lets be seen in lobby information.
    (State.REGISTERING, "registered"): State.REGISTERED,
    (State.REGISTERING, "taken"): State.IDLE,
    (State.REGISTERING, "taken, another held"): State.REGISTERED,
    **{(state, "taken"): State.IDLE for state in HOLDING},
    **{(state, "freed"): State.REGISTERING for state in HOLDING},
    # A start and our own change of mind may cross each other.
    **{(state, "start"): State.STARTING for state in (State.REGISTERING, *HOLDING)},
    # A step of a new run is as good as a start.
    **{(state, "step"): State.ROLLOUT for state in (State.REGISTERING, *HOLDING, *RUNNING)},
    (State.ROLLOUT, "done"): State.DONE,
    # What the server does not say, in time.
    (State.REGISTERING, "no answer"): State.IDLE,
    **{(state, "no answer"): State.IDLE for state in (*HOLDING, *RUNNING)},
}
"""What may be called or may happen in which state, and the state after it."""

ADVICE: Final = {
    State.IDLE: "call register first",
    State.REGISTERING: "wait for RegisteredAs",
    State.REGISTERED: "call set_ready(True), then wait for Started",
    State.READY: "wait for Started",
    State.STARTING: "the run has begun: wait for Finished",
    State.ROLLOUT: "the run has begun: wait for Finished",
    State.DONE: "the run is over: call register for the next one",
    State.CLOSED: "the session is closed",
}


@dataclass(frozen=True)
class ClientSettings:
    """Times in seconds.

    Attributes:
        first_wait: for an answer in the lobby before asking again; a bad round trip is shorter.
            Also what two sightings of something unexpected must lie apart, and the pause between
            words to a silent rollout port: these do not back off, since 4 small datagrams a second
            are little beside the 30 steps that should come.
        longest_wait: what `first_wait` doubles up to. With half of all datagrams lost each way,
            about 30 requests within `timeout` all fail once in 10,000 times.
        timeout: for any answer, and for a step in a run; then `GaveUp`.
        keep_alive: pause between lobby requests while a slot is held. A server frees the slots of
            silent clients, and sends a lost ``start`` again for 5 s to those who speak: so a
            client should speak more often than that.
        repeat: pause after which the last action is sent again, so that the loss of an action
            lasts no longer, nor a NAT's memory runs out; an agent that acts more often never
            repeats.
        silence: without a step, after which the rollout port is asked for a lost ``done``.
        lost: without a step, after which lobby information is believed that the run is over: the
            draft has a server resend ``done`` for 10 s.
        stale: for which an old run may be heard of after its end; a server resends ``start`` for
            5 s and ``done`` for 10 s.
        unconfirmed: times that a slot is seen under our tag, the registration being repeated each
            time, without a ``registered=``, until it must be another's. With half of all datagrams
            lost, a client of its own slot is unlucky so often once in 1,000 times.
    """

    first_wait: float = 0.25
    longest_wait: float = 1.0
    timeout: float = 30.0
    keep_alive: float = 2.0
    repeat: float = 0.5
    silence: float = 1.0
    lost: float = 10.0
    stale: float = 15.0
    unconfirmed: int = 24


@dataclass(frozen=True)
class LobbyChanged:
    """The slots are not what they were, or the agent had asked for them."""

    slots: tuple[perlert.AgentSlot, ...]


@dataclass(frozen=True)
class RegisteredAs:
    """The server gave us this slot; again, if it had freed the slot meanwhile."""

    key: str


@dataclass(frozen=True)
class SlotTaken:
    """The slot is another client's, who is called `tag`.

    If `tag` is our own, the other uses the same one: the slot shows it, but the server does not
    confirm that the slot is ours. The session is IDLE, or REGISTERED if it still has the slot from
    which it wanted to move.
    """

    key: str
    tag: str


@dataclass(frozen=True)
class Message:
    """The server's words to those in the lobby."""

    text: str


@dataclass(frozen=True)
class Started:
    """The run has begun: `ClientSession.act` from now on, for the slot `key`."""

    key: str
    port: int


class Frame(NamedTuple):
    """One rollout step, newer than all before. A named tuple, as there are 30 a second.

    Attributes:
        step: STEP_NUMBER.
        timestamp: the server's milliseconds since 1970.
        observation, reward, done, extra: as `rlwire.codecs.perlert.StepReader` reads them.
        skipped: step numbers missing since the frame before. Whether the network lost them or the
            server left them out, as it does when it steps faster than it sends, cannot be told;
            one that comes late counts in `ClientSession.late` too. Nothing is known to be missing
            before a run's first frame.
        received: the `now` of its datagram.
    """

    step: int
    timestamp: int
    observation: str | bytes
    reward: float | str
    done: bool
    extra: str | bytes | None
    skipped: int
    received: float


@dataclass(frozen=True)
class Finished:
    """The run is over for this agent; the `Frame` before this event was the last."""

    key: str


@dataclass(frozen=True)
class GaveUp:
    """An answer did not come in time.

    After ``lobby`` in a run, before a registration or after the run, the state stays as it was;
    else it is IDLE, and `ClientSession.register` may try anew.

    Attributes:
        what: ``"lobby"``, ``"register"``, ``"ready"`` or ``"rollout"``.
        reason: what was seen instead, for a human.
    """

    what: str
    reason: str


Event: TypeAlias = (
    LobbyChanged | RegisteredAs | SlotTaken | Message | Started | Frame | Finished | GaveUp
)

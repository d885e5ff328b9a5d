"""What a PERLERT server does with a client's message: two tables, and why a datagram is dropped.

Read by `rlwire.sessions.perlert_server`.
"""

from __future__ import annotations

import enum
from typing import Final

from rlwire.codecs.perlert import Action, LobbyRequest, Ready, Register

__all__ = ["LOBBY_RULES", "REASONS", "ROLLOUT_RULES", "Who"]


class Who(enum.Enum):
    """What a peer is to the instance that its datagram is for."""

    REGISTERED = "holds a slot in the lobby"
    PLAYING = "has a slot in the run"
    FORMER = "was in the run before (lobby port), or is done (rollout port)"
    STRANGER = "anyone else"


_MESSAGES = (LobbyRequest, Register, Ready, Action)

LOBBY_RULES: Final[dict[tuple[Who, type], tuple[str, ...]]] = {
    (Who.REGISTERED, LobbyRequest): ("inform",),
    (Who.REGISTERED, Register): ("register",),
    (Who.REGISTERED, Ready): ("ready",),
    (Who.REGISTERED, Action): ("wrong_port",),
    # Section 6: "resend the lobby start message to any client communicating to such port".
    (Who.PLAYING, LobbyRequest): ("inform", "start_again"),
    (Who.PLAYING, Register): ("start_again", "running"),
    (Who.PLAYING, Ready): ("start_again", "running"),
    (Who.PLAYING, Action): ("start_again", "wrong_port"),
    (Who.FORMER, LobbyRequest): ("inform", "start_again"),
    (Who.FORMER, Register): ("register",),
    (Who.FORMER, Ready): ("start_again", "not_registered"),
    (Who.FORMER, Action): ("start_again", "wrong_port"),
    (Who.STRANGER, LobbyRequest): ("inform",),
    (Who.STRANGER, Register): ("register",),
    (Who.STRANGER, Ready): ("not_registered",),
    (Who.STRANGER, Action): ("wrong_port",),
}
"""What the lobby port does with a message: one thing after another, where ``start_again`` is the
last one if it is not too late for it; a name in `REASONS` means that the message is dropped."""

ROLLOUT_RULES: Final[dict[tuple[Who, type], tuple[str, ...]]] = {
    (Who.PLAYING, Action): ("act",),
    (Who.PLAYING, LobbyRequest): ("hear",),
    (Who.PLAYING, Register): ("hear", "wrong_port"),
    (Who.PLAYING, Ready): ("hear", "wrong_port"),
    # Section 6: "resend the appropriate rollout step datagram upon receiving a client message".
    **{(Who.FORMER, message): ("done_again", "too_late") for message in _MESSAGES},
    **{(Who.REGISTERED, message): ("not_started",) for message in _MESSAGES},
    **{(Who.STRANGER, message): ("stranger",) for message in _MESSAGES},
}
"""The same for the rollout port, where ``done_again`` is the last one if it is not too late."""

REASONS: Final[dict[str, str]] = {
    "malformed": "not a client's message, or over a limit",
    "unknown_instance": "for an instance that is not here",
    "stranger": "to the rollout port, from an address that is in no run of the instance",
    "over_budget": "allowed, but too often, or its answers too much",
    "wrong_port": "a lobby's message to the rollout port, or an action to the lobby's",
    "running": "a lobby's message while the instance runs",
    "not_started": "to the rollout port, before the run of its sender",
    "not_registered": "ready, from an address that holds no slot",
    "unknown_slot": "for a slot that the instance has not",
    "slot_taken": "for a slot that another client holds",
    "not_your_slot": "ready, for a slot that its sender does not hold",
    "tag_too_long": "with this tag the lobby's information might not fit into a datagram",
    "too_late": "from a client that is done, after its last step is no longer repeated",
    "invalid_action": "an action that the environment rejected",
}
"""Why datagrams are dropped."""

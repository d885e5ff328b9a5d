"""`TRANSITIONS`: the requests that dm_env_rpc allows in each state."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from rlwire.codecs.dm_env_rpc import values


class DmEnvRpcState(enum.Enum):
    """A connection's state; the middle three are those of a joined world."""

    NOT_JOINED = "not joined"
    TERMINATED = "terminated"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    CLOSED = "closed"


NOT_JOINED, TERMINATED, RUNNING, INTERRUPTED, CLOSED = DmEnvRpcState

REQUESTS: Final[dict[str, tuple[type, type]]] = {
    "create_world": (values.CreateWorldRequest, values.CreateWorldResponse),
    "join_world": (values.JoinWorldRequest, values.JoinWorldResponse),
    "step": (values.StepRequest, values.StepResponse),
    "reset": (values.ResetRequest, values.ResetResponse),
    "reset_world": (values.ResetWorldRequest, values.ResetWorldResponse),
    "leave_world": (values.LeaveWorldRequest, values.LeaveWorldResponse),
    "destroy_world": (values.DestroyWorldRequest, values.DestroyWorldResponse),
    "extension": (values.AnyMessage, values.AnyMessage),
}
"""Classes of request and response by the name in the ``.proto``; a `Status` may reply to any."""

_OPEN = (NOT_JOINED, TERMINATED, RUNNING, INTERRUPTED)
_JOINED = _OPEN[1:]
_RESETS = ("reset", "reset_world")

TRANSITIONS: Final[dict[tuple[DmEnvRpcState, str, str], DmEnvRpcState]] = {
    (NOT_JOINED, "join_world", "done"): TERMINATED,
    (TERMINATED, "step", "running"): RUNNING,
    (RUNNING, "step", "running"): RUNNING,
    (RUNNING, "step", "terminated"): TERMINATED,
    (RUNNING, "step", "interrupted"): INTERRUPTED,
    (INTERRUPTED, "step", "running"): RUNNING,
    **{(TERMINATED, reset, "done"): TERMINATED for reset in _RESETS},
    **{(RUNNING, reset, "done"): INTERRUPTED for reset in _RESETS},
    **{(INTERRUPTED, reset, "done"): INTERRUPTED for reset in _RESETS},
    **{(state, "leave_world", "done"): NOT_JOINED for state in _OPEN},
    **{(state, "reset_world", "done elsewhere"): state for state in _OPEN},
    # The world that is joined cannot be destroyed.
    **{(state, "destroy_world", "done elsewhere"): state for state in _OPEN},
    **{(state, "create_world", "done"): state for state in _OPEN},
    **{(state, "extension", "done"): state for state in _OPEN},
    **{(state, request, "error"): state for state in _OPEN for request in REQUESTS},
}
"""The next state for each (state, request, outcome).

Outcomes are ``done``, ``error``, the three states of a step's result, and ``done elsewhere`` for a
world that is not joined. A request whose only outcome is ``error`` is not allowed.
"""

TOLERATED: Final[dict[tuple[DmEnvRpcState, str, str], DmEnvRpcState]] = {
    (TERMINATED, "step", "terminated"): TERMINATED,
    (TERMINATED, "step", "interrupted"): INTERRUPTED,
    (INTERRUPTED, "step", "terminated"): TERMINATED,
    (INTERRUPTED, "step", "interrupted"): INTERRUPTED,
    **{(state, "destroy_world", "done"): state for state in _JOINED},
}
"""Further transitions that a client accepts, because other servers have them."""


@dataclass(slots=True, eq=False)
class DmEnvRpcStateNode:
    """A state with its rows of a table, linked so that a step needs one look-up."""

    state: DmEnvRpcState
    allowed: list[str] = field(default_factory=list)  # requests that may succeed
    steps: dict[int, DmEnvRpcStateNode] = field(default_factory=dict)  # by a result's state
    nexts: dict[tuple[str, str], DmEnvRpcStateNode] = field(default_factory=dict)  # all outcomes
    joined: bool = False
    running: bool = False  # whether actions are used


def nodes(
    table: dict[tuple[DmEnvRpcState, str, str], DmEnvRpcState],
) -> dict[DmEnvRpcState, DmEnvRpcStateNode]:
    """Return the nodes of a table, linked."""
    linked = {
        state: DmEnvRpcStateNode(state, joined=state in _JOINED, running=state is RUNNING)
        for state in DmEnvRpcState
    }
    for (state, request, outcome), following in table.items():
        node = linked[state]
        node.nexts[request, outcome] = linked[following]
        if outcome != "error" and request not in node.allowed:
            node.allowed.append(request)
    for node in linked.values():
        for number in values.EnvironmentStateType:
            if ("step", number.name.lower()) in node.nexts:
                node.steps[number] = node.nexts["step", number.name.lower()]
    return linked

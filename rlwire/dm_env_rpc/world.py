"""What a world is: the interfaces that users implement.

`served_world.py` has a world with its agents at a server, `environment_world.py` an environment's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Settings, StepResult
from rlwire.transports.deferred import DeferredReply

Reply: TypeAlias = "codec.Response | StepResult | DeferredReply"


class AgentEnvironment(Protocol):
    """An agent of a world, as its client sees it. One thread at a time calls it.

    Optional methods: ``request(names)`` is called before a step with the names of the observations
    that will be sent. ``send_spaces(info_size)`` is called after the join if the client is
    `rlwire.make`: the agent may then add spaces to `specs`, and infos to results.

    A result's arrays are copied into the reply. If an optional attribute ``by_reference`` is true,
    large ones are sent from where they are: nothing but the agent's next call may change them.

    Attributes:
        specs: the agent's actions and observations.
    """

    specs: codec.ActionObservationSpecs

    def reset(self, settings: Settings) -> None:
        """End the sequence, if any; `specs` may change. The next call is `begin`."""

    def begin(self) -> StepResult | DeferredReply:
        """Begin a sequence, in state RUNNING. Called again if its result could not be sent."""

    def step(self, actions: dict[str, Any]) -> StepResult | DeferredReply:
        """Step a sequence. If the state is not RUNNING, the next call is `begin` or `reset`."""

    def close(self) -> None:
        """Leave the world; the last call."""


class World(Protocol):
    """A world that agents join. One thread at a time calls it and its agents.

    An agent whose step waits for other agents returns a `rlwire.transports.deferred.DeferredReply`.
    The world sets these replies in a method ``settle()``. It is called after each call of the world
    or its agents, in any thread and without a lock. `reset` and an agent's `close` must set the
    replies of the steps that they interrupt.
    """

    def join(self, settings: Settings) -> AgentEnvironment:
        """Add an agent, without waiting for others.

        Raises:
            StatusError, ValueError: the settings are rejected, or the world is full.
        """

    def reset(self, settings: Settings) -> None:
        """Reset the world; `reset` of each agent is called afterwards.

        Raises:
            StatusError, ValueError: the settings are rejected.
        """

    def close(self) -> None:
        """Release resources; called once, after the last agent has left."""


WorldFactory: TypeAlias = Callable[[Settings], World]
"""Makes a world from ``create_world``'s settings; several threads may call it at once."""

Extension: TypeAlias = Callable[[codec.AnyMessage, "World | None"], codec.AnyMessage]
"""Returns the reply to an extension's request, given the joined world."""


def is_world(value: object) -> bool:
    return all(hasattr(value, name) for name in ("join", "reset", "close"))

"""After a loss: how a connection came to its world, and how often to try to come there again.

Who does it is `rlwire.dm_env_rpc.client.ClientBase.reconnect`.
"""

from __future__ import annotations

from typing import Any, Final

from rlwire.codecs.dm_env_rpc import (
    CreateWorldRequest,
    DestroyWorldRequest,
    JoinWorldRequest,
    LeaveWorldRequest,
    Request,
    Settings,
    Step,
)
from rlwire.dm_env_rpc.status import StatusError
from rlwire.sessions.dm_env_rpc import Code
from rlwire.transports.sockets import Backoff

RECONNECT: Final = Backoff(attempts=20, deadline=60.0)
"""How `Client.reconnect` tries by default."""

# Refusals that may be over soon: a server learns later than its client that a connection is lost,
# and until then the agent's place in the world is taken.
_PASSING = (Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.ABORTED)


def is_passing(error: StatusError) -> bool:
    """Return whether to ask again."""
    return error.code in _PASSING


class Way:
    """How a connection came to its world: what `reconnect` does again.

    Attributes:
        created: the settings of the worlds that this client has created, by name.
        joined: the name of the world that is joined, and the agent's settings.
    """

    def __init__(self) -> None:
        self.created: dict[str, Settings] = {}
        self.joined: tuple[str, Settings] | None = None

    def note(self, request: Request | Step, reply: Any) -> None:
        """Note what a request that went well has changed."""
        if isinstance(request, CreateWorldRequest):
            self.created[reply.world_name] = request.settings
        elif isinstance(request, JoinWorldRequest):
            self.joined = request.world_name, request.settings
        elif isinstance(request, LeaveWorldRequest):
            self.joined = None
        elif isinstance(request, DestroyWorldRequest):
            self.created.pop(request.world_name, None)

    def forgotten(self, error: StatusError) -> Settings | None:
        """Return the settings to create the world with again, if the server has forgotten it."""
        if error.code != Code.NOT_FOUND or self.joined is None:
            return None
        return self.created.get(self.joined[0])

    def replace(self, world: str, name: str) -> None:
        """Note that a world was created anew under another name."""
        self.created.pop(world, None)
        if self.joined is not None:
            self.joined = name, self.joined[1]

"""`Worlds`: the worlds of one dm_env_rpc server, by name."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading

from rlwire.codecs.dm_env_rpc.values import Settings
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import JoinedAgent, ServedWorld, World, WorldFactory
from rlwire.errors import on_error, quoted
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)


class Worlds:
    """The worlds of one server; connections on any threads share it.

    Args:
        factory: makes worlds. None for a server with none but those that were added to it. If no
            world was added under the name ``""``, joining it gives a connection a world of its own,
            made without settings and gone when the connection leaves.
        max_worlds: how many worlds may exist at a time. Clients that end without destroying what
            they have created leave worlds behind, so that others may use them.
        keep_abandoned: False destroys a world once the connection that created it has ended and
            nobody is joined to it.
    """

    def __init__(
        self,
        factory: WorldFactory | None = None,
        *,
        max_worlds: int = 1000,
        keep_abandoned: bool = True,
    ) -> None:
        if max_worlds < 1:
            raise ValueError(f"max_worlds must be at least 1, not {max_worlds}")
        self.log = RateLimitedLog(logger)
        self._factory = factory
        self._max_worlds = max_worlds
        self._keep_abandoned = keep_abandoned
        self._lock = threading.Lock()
        self._named: dict[str, ServedWorld] = {}
        self._unnamed: dict[ServedWorld, None] = {}
        self._making = 0
        self._number = 0
        # A client that comes back after a restart must not find another's world by its old name.
        self._mark = secrets.token_hex(4)
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._named) + len(self._unnamed)

    @property
    def names(self) -> list[str]:
        """The names under which worlds can be joined."""
        with self._lock:
            return list(self._named)

    def add(self, world: World, name: str = "") -> None:
        """Let connections join `world`; it stays until it is destroyed.

        Raises:
            ValueError: a world has this name.
        """
        with self._lock:
            if name in self._named:
                raise ValueError(f"there is a world {name!r} already")
            self._named[name] = ServedWorld(name, world, fleeting=False, log=self.log)

    def create(self, settings: Settings) -> str:
        """Make a world and return its name, which no other has had.

        Raises:
            StatusError: there are too many, or the factory says so.
        """
        return self._create(settings, named=True).name

    def destroy(self, name: str) -> None:
        """Destroy a world that nobody is joined to.

        Raises:
            StatusError: there is none of this name, or agents are joined.
        """
        served = self._find(name)
        inside = self._destroy(served, only_if_empty=True)
        if inside:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"{inside} {'agent is' if inside == 1 else 'agents are'} joined to {served}; "
                "they must leave it first",
            )

    def close(self) -> None:
        """Destroy all worlds, with whoever is joined; what waits is answered, UNAVAILABLE."""
        with self._lock:
            self._closed = True
            worlds = [*self._named.values(), *self._unnamed]
        for served in worlds:
            with contextlib.suppress(StatusError):  # another thread has been faster
                self._destroy(served, only_if_empty=False)

    def abandon(self, name: str) -> None:
        """Note that the connection that created this world has ended."""
        if self._keep_abandoned:
            return
        with self._lock:
            served = self._named.get(name)
        if served is not None:
            served.fleeting = True
            self._sweep(served)

    def _join(self, name: str, settings: Settings, peer: object) -> JoinedAgent:
        """Let an agent join a world, or one of its own if none has the name ``""``."""
        with self._lock:
            served = self._named.get(name)
        if served is None:
            served = self._find(name) if name else self._create({}, named=False)
        with on_error(lambda: self._sweep(served)):
            return served.join(settings, peer)

    def _leave(self, agent: JoinedAgent) -> None:
        """Let an agent leave its world."""
        agent.served.leave(agent)
        self._sweep(agent.served)

    def _find(self, name: str) -> ServedWorld:
        """Return a world, or raise a StatusError."""
        with self._lock:
            served = self._named.get(name)
        if served is None:
            raise StatusError(
                Code.NOT_FOUND,
                f"there is no world {quoted(name)}; create_world returns the name of a new one",
            )
        return served

    def _create(self, settings: Settings, named: bool) -> ServedWorld:
        if self._factory is None:
            raise StatusError(Code.UNIMPLEMENTED, "this server creates no worlds; join one it has")
        with self._lock:
            self._check_open()
            exist = len(self._named) + len(self._unnamed) + self._making
            if exist >= self._max_worlds:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"there are {exist} worlds, as many as this server allows; destroy one",
                )
            self._making += 1
            self._number += 1
            name = f"world-{self._mark}-{self._number}" if named else ""
        try:
            world = self._factory(settings)
        except BaseException:
            with self._lock:
                self._making -= 1
            raise
        served = ServedWorld(name, world, fleeting=not named, log=self.log)
        with self._lock:
            self._making -= 1
            closed = self._closed
            if not closed and named:
                self._named[name] = served
            elif not closed:
                self._unnamed[served] = None
        if closed:
            served.close_world()
            self._check_open()
        return served

    def _check_open(self) -> None:
        if self._closed:
            raise StatusError(Code.UNAVAILABLE, "the server is closing")

    def _sweep(self, served: ServedWorld) -> None:
        """Destroy a world that is to vanish when nobody is joined, if nobody is."""
        if served.fleeting:
            with contextlib.suppress(StatusError):
                self._destroy(served, only_if_empty=True)

    def _destroy(self, served: ServedWorld, only_if_empty: bool) -> int:
        """Destroy a world; return how many agents are in, for which it was not."""
        inside = served.shut(only_if_empty)
        if not inside:
            with self._lock:
                self._unnamed.pop(served, None)
                if self._named.get(served.name) is served:
                    del self._named[served.name]
            served.close_world()
            self.log.info("%s is destroyed", served)
        return inside

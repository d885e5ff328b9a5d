"""`WorldRegistry`: the worlds of a server by name."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from functools import partial

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Settings
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.options import DmEnvRpcServerOptions
from rlwire.dm_env_rpc.properties import answer_request
from rlwire.dm_env_rpc.served_world import ServedAgent, ServedWorld
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import Extension, World, WorldFactory, is_world
from rlwire.environments.driver import is_environment
from rlwire.errors import on_error, quoted
from rlwire.serving.threads import run_in_thread
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

_DEFAULT = DmEnvRpcServerOptions()


class WorldRegistry:
    """Worlds by name; thread-safe.

    Without a `factory`, clients cannot create worlds. Joining the name ``""``, if no world has it,
    creates a world without settings, which is destroyed when its agent leaves. `world` is served
    under the name ``""``, also after a restart.
    """

    def __init__(
        self,
        factory: WorldFactory | None = None,
        world: World | None = None,
        options: DmEnvRpcServerOptions = _DEFAULT,
    ) -> None:
        self.factory = factory
        self.log = RateLimitedLog(logger)
        own = {codec.PROPERTY_REQUEST_URL: partial(answer_request, options.properties)}
        self.extensions: dict[str, Extension] = {
            url.rpartition("/")[2]: extension
            for url, extension in {**(options.extensions or {}), **own}.items()
        }
        self._world = world
        self._options = options
        self._lock = threading.Lock()
        # By name, which worlds without one have here only; None while a world is being made.
        self._worlds: dict[str, ServedWorld | None] = {}
        self._closed = False
        if world is not None:
            self.add(world)

    def __len__(self) -> int:
        with self._lock:
            return sum(served is not None for served in self._worlds.values())

    @property
    def names(self) -> list[str]:
        """The names of the worlds."""
        with self._lock:
            return [key for key, served in self._worlds.items() if served and served.name == key]

    def open(self) -> None:
        """Allow new worlds again, after `close`."""
        self._closed = False

    def add(self, world: World, name: str = "") -> None:
        """Serve `world` under `name` until it is destroyed; ValueError if the name is in use."""
        with self._lock:
            if name in self._worlds:
                raise ValueError(f"there is a world {name!r} already")
            self._worlds[name] = ServedWorld(name, world, self.log)

    def make(self, settings: Settings) -> World:
        """Make a world that is not registered."""
        assert self.factory is not None
        world = self.factory(settings)
        if not is_world(world):
            hint = ": pass EnvironmentWorlds(...) to Server" if is_environment(world) else ""
            raise TypeError(
                f"expected a World (join, reset, close), not a {type(world).__name__}{hint}"
            )
        return world

    def destroy(self, name: str) -> None:
        """Destroy a world that has no agents."""
        self._destroy(self.find(name), only_if_empty=True)

    def close(self) -> None:
        """Destroy all worlds and remove their agents; pending requests get UNAVAILABLE."""
        with self._lock:
            self._closed = True
            worlds, self._worlds = self._worlds, {}
        until = time.monotonic() + 1.0  # after the grace of `stop`
        for served in filter(None, worlds.values()):
            if served.call_lock.acquire(timeout=max(0.0, until - time.monotonic())):
                served.call_lock.release()
                self._reap(served, only_if_empty=False)
            else:
                self.log.warning("%s: a call did not end; the world is closed when it does", served)
                run_in_thread(f"rlwire {served}", self._reap, served, False)
        if self._world is not None:
            self.add(self._world)

    def abandon(self, name: str) -> None:
        """Record that the creator of a world has disconnected."""
        with self._lock:
            served = None if self._options.keep_abandoned else self._worlds.get(name)
        if served is not None:
            served.destroy_when_empty = True
            self._reap(served)

    def join(self, name: str, settings: Settings, peer: object) -> ServedAgent:
        """Add an agent to a world; for ``""``, if no world has that name, to a new one."""
        with self._lock:
            served = self._worlds.get(name)
        if served is None:
            served = self.find(name) if name else self.create({}, named=False)
        with on_error(lambda: self._reap(served)):
            return served.join(settings, peer)

    def leave(self, agent: ServedAgent) -> None:
        agent.served.leave(agent)
        self._reap(agent.served)

    def find(self, name: str) -> ServedWorld:
        with self._lock:
            served = self._worlds.get(name)
        if served is None:
            raise StatusError(
                Code.NOT_FOUND,
                f"there is no world {quoted(name)}; create_world returns the name of a new one",
            )
        return served

    def create(self, settings: Settings, named: bool = True) -> ServedWorld:
        """Create a world with a request's settings."""
        if self.factory is None:
            raise StatusError(Code.UNIMPLEMENTED, "this server creates no worlds; join one it has")
        with self._lock:
            if self._closed:
                raise StatusError(Code.UNAVAILABLE, "the server is closing")
            count = len(self._worlds)
            if count >= self._options.max_worlds:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"there are {count} worlds, as many as this server allows; destroy one",
                )
            # A client that reconnects after a restart must not find another's world.
            key = f"world-{secrets.token_hex(8)}"
            self._worlds[key] = None
        try:
            served = ServedWorld(key if named else "", self.make(settings), self.log, not named)
        except BaseException:
            with self._lock:
                self._worlds.pop(key, None)
            raise
        with self._lock:
            if key in self._worlds:  # else `close` was called meanwhile
                self._worlds[key] = served
                return served
        served.close_world()
        raise StatusError(Code.UNAVAILABLE, "the server is closing")

    def _reap(self, served: ServedWorld, only_if_empty: bool = True) -> None:
        """Destroy a world that is not needed any more."""
        if served.destroy_when_empty or not only_if_empty:
            with contextlib.suppress(StatusError):  # it has agents, or another thread was faster
                self._destroy(served, only_if_empty)

    def _destroy(self, served: ServedWorld, only_if_empty: bool) -> None:
        served.shut(only_if_empty)
        with self._lock:
            for key in [key for key, each in self._worlds.items() if each is served]:
                del self._worlds[key]
        served.close_world()
        self.log.info("%s is destroyed", served)

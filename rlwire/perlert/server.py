"""`Server` runs environments in real time for agents over UDP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from threading import get_ident
from time import monotonic
from typing import Any

import numpy as np

from rlwire._options import given, with_options
from rlwire.limits import DEFAULT
from rlwire.perlert.cipher import DatagramCipher
from rlwire.perlert.environment import Simulation, simulations_of
from rlwire.perlert.options import PerlertInstanceOptions, PerlertServerOptions
from rlwire.perlert.player import PacedPlayer
from rlwire.perlert.spaces import OWN_TAG
from rlwire.serving.serving import BackgroundServer, Running
from rlwire.serving.threads import LoopThread, run_on_loop
from rlwire.sessions.perlert.server import (
    DONE_RESEND,
    Instance,
    LeaseExpired,
    PerlertServerSession,
    RolloutStarted,
    SlotLeased,
)
from rlwire.transports.address import Address, parse
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.server import DRAINING
from rlwire.transports.udp_asyncio import DatagramEndpoint, serve
from rlwire.urls import located

logger = logging.getLogger(__name__)


class Server(BackgroundServer):
    """A PERLERT server: one lobby port, one rollout port, any number of environments.

    ::

        with Server("gym:CartPole-v1", "127.0.0.1:32322", instances=2) as server:
            ...
        server = Server(None, "127.0.0.1:32322")
        server.add("mpe2.simple_spread_v3:parallel_env", name="spread")
        server.add(MyEnvironment, name="mine", rate=10, instances=4)
        server.serve_forever()                                    # until SIGINT or SIGTERM

    Each instance has an environment of its own, made, stepped and closed in one thread. One more is
    made and closed by `add`, for its spaces. A run starts when enough clients are ready. Its
    environment then steps at a fixed rate. Agents' last actions are repeated; slots without a
    client get the default action. When all clients are done, a new lobby opens.

    Without `auth` anyone on the network path can read and forge datagrams. On a host with several
    addresses, bind the one that clients use: a server bound to ``0.0.0.0`` may reply from another.

    `environment` is as for `add`, or None to add environments later; other arguments are then the
    server's own.
    """

    scheme = "perlert"

    @with_options(PerlertServerOptions)
    def __init__(self, environment: Any, options: PerlertServerOptions) -> None:
        address, _, path = located("perlert", options.address)
        where, rollout_port = parse(address), options.rollout_port
        if not where.host:
            raise ValueError(f"PERLERT uses UDP: expected host:port, not {where}")
        if rollout_port is None:
            rollout_port = where.port and where.port + 1
        super().__init__(where)
        self._rollout = dataclasses.replace(where, port=rollout_port)
        self._guarded = True  # the UDP sockets log the warning
        self._options = options
        self._cipher = None if options.auth is None else DatagramCipher(options.auth, "server")
        self._served: list[_ServedEnvironment] = []
        self._service: _PerlertLoop | None = None
        self._statistics: dict[str, Any] = {}
        own = given(options, PerlertInstanceOptions) | ({"name": path} if path else {})
        if environment is not None:
            self.add(environment, **own)
        elif own:
            raise TypeError(f"{next(iter(own))!r} needs an environment; pass it to add()")

    @with_options(PerlertInstanceOptions)
    def add(self, environment: Any, options: PerlertInstanceOptions) -> Server:
        """Add an environment, to be served from the next start on.

        It is a class or function that makes environments of Gymnasium, dm_env or PettingZoo
        (parallel), or its name, such as ``"gym:CartPole-v1"``; or an environment, for one instance,
        which is not closed.
        """
        if self._running is not None:
            raise RuntimeError("the server is running; add environments before it starts")
        np.random.SeedSequence(options.seed)  # checks it
        names = {name: getattr(options, name) for name in ("keys", "kinds", "actions")}
        limits = self._options.limits or DEFAULT
        first, make = simulations_of(environment, options.env_kwargs, limits, **names)
        served = _ServedEnvironment(options, make, first)
        with contextlib.nullcontext() if make is None else contextlib.closing(first):
            if options.instances > 1 and make is None:
                raise ValueError(
                    f"one environment for {options.instances} instances is not enough: pass a "
                    f"class or function that makes environments"
                )
            # An invalid argument raises here, not when the server starts.
            served.join(_session_of(self._options))
            existing = self.instances
            for header in served.headers:
                if header in existing:
                    raise ValueError(f"instance {header} already exists; pass another name=")
        self._served.append(served)
        return self

    @property
    def instances(self) -> list[str]:
        """The name and number of each instance, such as ``CartPole-v1:0``."""
        return [header for served in self._served for header in served.headers]

    def _path(self) -> str:
        headers = self.instances
        return headers[0] if len(headers) == 1 else ""

    @property
    def rollout_address(self) -> Address:
        """The rollout port's address; the system replaces port 0 when the server starts."""
        service = self._service
        return self._rollout if service is None else service.rollout_address

    def statistics(self) -> dict[str, Any]:
        """Return the counts of ``instances`` by header, ``session``, the ports and ``cipher``."""
        service = self._service
        if service is not None:
            self._statistics = service.statistics()
        return self._statistics

    def message(self, text: str, instance: str | None = None) -> None:
        """Send a text to all clients in a lobby, or to those of an instance such as ``city:7``."""
        self._call(lambda service: service.message(text, instance))

    def start_run(self, instance: str | None = None) -> None:
        """Start an instance's run, with fewer than `players` clients too; None for the only one.

        Raises:
            LocalProtocolError: a client is not ready, there is none, or a run is in progress.
            ValueError: there is no such instance.
        """
        self._call(lambda service: service.start_run(instance))

    def _call(self, call: Callable[[_PerlertLoop], None]) -> None:
        """Call on the event loop, and wait; from an environment on the loop, call at once."""
        service = self._service
        if service is None:
            raise RuntimeError("the server is not running")

        async def run() -> None:
            call(service)

        if service.thread == get_ident():
            call(service)
        else:
            run_on_loop(run(), service.loop)

    def stop(self, grace: float = DONE_RESEND) -> None:
        """Stop as other servers do.

        For up to `grace` seconds, at most 10, the last step is sent again to the clients of a run
        that ask for it. rlwire's clients confirm it, so that nothing is waited for.
        """
        super().stop(grace)

    def _run(self) -> Running:
        if not self._served:
            raise ValueError("no environment to serve: call add() first")
        service = _PerlertLoop(
            self._where, self._rollout, self._served, self._options, self._cipher
        )
        thread = LoopThread(lambda: service, self._options.loop_factory)
        self._service = service
        return thread

    def _details(self) -> str:
        return f"rollouts on port {self.rollout_address.port}: {', '.join(map(str, self._served))}"

    def _after_stop(self) -> None:
        if self._service is not None:
            found = self.statistics()
            self._service = None
            counts = [*found["instances"].values(), found["session"]["dropped"]]
            played = sum(map(Counter, counts), Counter[str]())  # without zeros
            logger.info("played: %s", ", ".join(f"{name} {n}" for name, n in played.items()))


def _session_of(options: PerlertServerOptions) -> PerlertServerSession:
    return PerlertServerSession(
        limits=options.limits or DEFAULT,
        frames=options.frames,
        idle_timeout=options.idle_timeout,
        unheard_timeout=options.unheard_timeout,
    )


@dataclass(frozen=True)
class _ServedEnvironment:
    options: PerlertInstanceOptions
    make: Callable[[], Simulation] | None
    first: Simulation  # of a class it is closed, and has only the spaces

    def __str__(self) -> str:
        first, count = self.options.number, self.options.instances
        last = f" to {first + count - 1}" if count > 1 else ""
        return f"{self.headers[0]}{last} at {self.options.rate:g} Hz"

    @property
    def headers(self) -> list[str]:
        name = self.options.name or self.first.name
        return [f"{name}:{self.options.number + each}" for each in range(self.options.instances)]

    def join(self, session: PerlertServerSession) -> list[Instance]:
        """Add the instances to a session."""
        options, slots = self.options, self.first.agents
        shared = {"players": options.players, "decimals": options.decimals}
        headers = [header.rpartition(":") for header in self.headers]
        return [session.add_instance(name, int(n), slots, **shared) for name, _, n in headers]


@dataclass(eq=False)
class _PerlertLoop:
    """The server on its event loop, which a `LoopThread` runs."""

    address: Address
    rollout_address: Address
    served: Sequence[_ServedEnvironment]
    options: PerlertServerOptions
    cipher: DatagramCipher | None

    def __post_init__(self) -> None:
        self._session = _session_of(self.options)
        self._players: dict[Any, PacedPlayer] = {}
        self._ports: dict[str, DatagramEndpoint] = {}
        self._pools: list[ThreadPoolExecutor | None] = [None]

    async def start(self) -> None:
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        try:
            await self._start()
        except BaseException:
            await self.stop(5.0)
            raise

    async def _start(self) -> None:
        session, threads = self._session, self.options.threads
        self.address = await self._listen("lobby", self.address, session.lobby)
        where = self.rollout_address
        self.rollout_address = await self._listen("rollout", where, session.rollout)
        log, once = (RateLimitedLog(logger, seconds, lines=1) for seconds in (60.0, inf))
        if threads:  # of one worker each, because environments belong to a thread
            self._pools = [ThreadPoolExecutor(1, "rlwire environment") for _ in range(threads)]
        for served in self.served:
            instances = served.join(session)
            for index, instance in enumerate(instances):
                player = self._players[instance] = PacedPlayer(
                    instance,
                    served.first,
                    served.make,
                    served.options,
                    send=self._ports["rollout"].flush,
                    log=log,
                    once=once,
                    executor=self._pools[len(self._players) % len(self._pools)],
                    phase=index / len(instances),
                )
                await player.open()
        session.rollout_port = self.rollout_address.port

    async def _listen(self, name: str, where: Address, session: Any) -> Address:
        port = await serve(
            where,
            session,
            on_events=self._react,
            limit=self._session.limits.datagram,
            cipher=self.cipher,
            record=self.options.recording("perlert"),
        )
        self._ports[name] = port
        return port.address

    def _react(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, RolloutStarted):
                self._players[event.instance].start_run()
            elif isinstance(event, SlotLeased):
                player = self._players[event.instance]
                # Other programs would show the description to people.
                if event.tag.startswith(OWN_TAG) and (
                    text := player.simulation.space_description(event.key)
                ):
                    event.instance.lobby.message(text, event.peer)
                if event.previous is None:
                    where = parse(event.peer)  # type: ignore[arg-type]
                    logger.info("%s: %s is %s from %s", player, event.key, event.tag, where)
            elif isinstance(event, LeaseExpired):
                where = parse(event.peer)  # type: ignore[arg-type]
                logger.info("%s: %s freed, no datagram from %s", event.instance, event.key, where)

    async def drain(self, seconds: float) -> None:
        """Start no more runs, send the lobbies a text, and wait for the end of current runs."""
        self._session.rollout_port = None  # without it no run starts
        self.message("the server is shutting down: no run starts any more")
        until = self.loop.time() + seconds
        while (left := until - self.loop.time()) > 0:
            if all(instance.rollout is None for instance in self._players):
                return
            await asyncio.sleep(min(left, DRAINING))

    async def stop(self, grace: float) -> None:
        """End all runs for their clients, and close the environments and the ports."""
        self._session.rollout_port = None
        until = self.loop.time() + min(grace, DONE_RESEND)
        try:
            await asyncio.gather(*(player.stop(grace) for player in self._players.values()))
            while self._session.unconfirmed and self.loop.time() < until:
                await asyncio.sleep(DRAINING)
        finally:
            for port in self._ports.values():
                port.close()
            for pool in filter(None, self._pools):
                pool.shutdown(wait=False, cancel_futures=True)

    def statistics(self) -> dict[str, Any]:
        return {
            "instances": {str(player): player.statistics() for player in self._players.values()},
            "session": self._session.statistics(),
            **{name: port.statistics() for name, port in self._ports.items()},
            "cipher": {} if self.cipher is None else dict(self.cipher.dropped),
        }

    def _instances(self, header: str | None) -> list[Any]:
        found = [each for each in self._players if header in (None, str(each))]
        if not found:
            raise ValueError(
                f"no instance {header}; there are {', '.join(map(str, self._players))}"
            )
        return found

    def message(self, text: str, header: str | None = None) -> None:
        for instance in self._instances(header):
            if header is not None or instance.rollout is None:
                instance.message(text)
        self._ports["lobby"].flush()

    def start_run(self, header: str | None) -> None:
        found = self._instances(header)
        if len(found) > 1:
            raise ValueError(f"name one of the instances {', '.join(map(str, found))}")
        found[0].start(monotonic())
        self._react([RolloutStarted(found[0])])
        self._ports["lobby"].flush()

"""RLX clients for environments: `AgentProxy`, `AsyncAgentProxy` and `TrainingBase`.

The interfaces are those of `relaax.environment.agent_proxy` and `relaax.environment.training`;
docs/howto/applications.md lists the differences.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from rlwire._options import with_options
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.rlx.config import options as settings
from rlwire.rlx.options import RLXClientOptions
from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp, tcp_asyncio, waits
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.waits import SILENCE, Asyncio, Blocking, Waits, close_and_wait, drive, driven
from rlwire.urls import URL, foreign, located

logger = logging.getLogger(__name__)

# Six attempts last about ten seconds, a little less than RELAAX's.
_BACKOFF = Backoff(deadline=None, first=0.5, longest=6.0)


class RLXMessageImage:
    """Wraps a Pillow image in a state, as in RELAAX; a bare image is encoded the same way."""

    def __init__(self, image: Any) -> None:
        self.image = image


class AgentProxyException(RlwireError):
    """Raised when a command fails; ``__cause__`` is the original error.

    The connection stays open after `PeerError` (the server's error reply), `EncodeError` or
    `LimitExceeded` (the value cannot be sent) and `LocalProtocolError` (a command out of turn). It
    is closed after any other error.
    """


class AgentProxyConnectionError(AgentProxyException, ConnectionError):
    """The network, or the end of the connection, is the reason."""


class ProxyBase(waits.ClientBase):
    """Base class of `AgentProxy` and `AsyncAgentProxy`.

    Attributes:
        address: the server's address; a change takes effect at the next `connect`.
        metrics: `scalar(name, y, x=None)` and `histogram(name, y, x=None)` send measurements;
            coroutines in `AsyncAgentProxy`.
    """

    _open: Callable[..., Any]

    @with_options(RLXClientOptions)
    def __init__(self, options: RLXClientOptions) -> None:
        located("rlx", options.address)  # rejects the URL of another protocol
        self.address: AddressLike | URL = options.address
        self.backoff = options.backoff or _BACKOFF
        self._timeouts = Timeouts.of(options.timeout)
        self._tls = options.tls
        self._recording = options.recording("rlx")
        self._session_options = options.session
        RLXClientSession(**self._session_options)  # raises for invalid options
        self.metrics: Any = SimpleNamespace(
            scalar=partial(self._report, "scalar"), histogram=partial(self._report, "histogram")
        )

    @driven
    def connect(self, retry: int = 6) -> Waits[None]:
        """Connect, in `retry` attempts with back-off; closes an open connection first."""
        yield self.disconnect()
        backoff = dataclasses.replace(self.backoff, attempts=max(1, retry))
        session = RLXClientSession(**self._session_options)
        try:
            address, tls, _ = located("rlx", self.address, self._tls)
            options: dict[str, Any] = {"timeout": self._timeouts, "tls": tls, "backoff": backoff}
            options["record"] = self._recording
            connection = yield self._open(address, session, **options)
        except (RlwireError, OSError, ValueError) as error:
            raise self._failed("connect", error) from error
        self._connection = self._count(connection)

    @driven
    def init(self, exploit: bool = False) -> Waits[Any]:
        """Initialize the agent, with `exploit` to act without exploring or learning."""
        return (yield from self._exchange({"command": "init", "exploit": exploit}))

    @driven
    def update(self, reward: Any = None, state: Any = None, terminal: bool = False) -> Waits[Any]:
        """Send the result of the last action, and return the next action.

        Args:
            reward: None before the first action; a float, or a list of floats.
            state: a list, an array, an image, or None.
            terminal: whether the episode has ended.
        """
        message = {"command": "update", "reward": reward, "state": state, "terminal": terminal}
        return (yield from self._exchange(message))

    @driven
    def reset(self) -> Waits[Any]:
        """Reset the agent for a new episode; it keeps what it has learned."""
        return (yield from self._exchange({"command": "reset"}))

    disconnect = waits.ClientBase.close

    @driven
    def _report(self, method: str, name: str, y: Any, x: Any = None) -> Waits[None]:
        # The form that RELAAX's client sends; its README also has an older, flat form.
        metrics = [{"method": method, "name": name, "y": y, "x": x}]
        yield from self._exchange({"command": "update_metrics", "data": metrics})

    def _exchange(self, message: dict[str, Any]) -> Waits[Any]:
        connection = self._connected()
        try:
            reply = yield connection.exchange(message)
        except BaseException as error:
            yield from self._handle_error(connection, message["command"], error)
            raise
        return self._reply_data(message["command"], reply)

    def _handle_error(self, connection: Any, command: str, error: BaseException) -> Waits[None]:
        """Close a lost connection; raise AgentProxyException for an error of rlwire."""
        ours = isinstance(error, (RlwireError, OSError))
        # A late reply would be mistaken for the next command's.
        owed = connection.session.pending or connection.session.closed
        if owed and not isinstance(error, LocalProtocolError) if ours else connection.closed:
            if connection is self._connection:
                self._connection = None
            yield from close_and_wait(connection)
        if ours:
            raise self._failed(command, cast(Exception, error)) from error

    def _reply_data(self, command: str, reply: dict[str, Any]) -> Any:
        if reply["response"] == "error":
            text = str(reply.get("message", "unknown error"))
            raise self._failed(command, PeerError(text)) from PeerError(text)
        return reply["data"] if "data" in reply else reply["response"]

    def _failed(self, doing: str, error: Exception) -> AgentProxyException:
        what = foreign(error, "rlx")
        text = f"the server {what}: {error}" if what else str(error)
        kind = AgentProxyConnectionError if isinstance(error, OSError) else AgentProxyException
        return kind(f"{text} ({doing}, RLX server {self._name()})")

    def _connected(self) -> Any:
        if self._connection is None:
            raise AgentProxyException(
                f"no connection is available: call connect() first (RLX server {self._name()})"
            )
        return self._connection

    def _name(self) -> str:
        try:
            return str(parse(located("rlx", self.address)[0]))
        except ValueError:
            return repr(self.address)


class AgentProxy(Blocking, ProxyBase):
    """Blocking client of an RLX server, for one thread. Arguments: `ProxyBase`.

    As a context manager it connects and disconnects. Every method may raise `AgentProxyException`.
    """

    _open = staticmethod(tcp.connect)

    def update(self, reward: Any = None, state: Any = None, terminal: bool = False) -> Any:
        # The hot path: no generator.
        connection = self._connection or self._connected()
        try:
            reply = connection.exchange(
                {"command": "update", "reward": reward, "state": state, "terminal": terminal}
            )
        except BaseException as error:
            drive(self._handle_error(connection, "update", error))
            raise
        if reply["response"] == "error" or "data" not in reply:
            return self._reply_data("update", reply)
        return reply["data"]


class AsyncAgentProxy(Asyncio, ProxyBase):
    """`AgentProxy` for asyncio, for one task at a time.

    If a task is cancelled inside a command, the connection is closed: the pending reply would be
    mistaken for the next command's.
    """

    _open = staticmethod(tcp_asyncio.connect)


_REPLIED = (PeerError, DecodeError, RemoteProtocolError)


class TrainingBase:
    """Base class of training programs: define `episode`, call `run`.

    Args:
        address: address of the RLX server, or a list of addresses to fail over between. None reads
            the settings from the command line and its YAML file, as in RELAAX
            (``--config app.yaml --exploit False --show-ui False``).
        max_episodes: how many episodes to run; 1 by default.
        infinite_run: continue after `max_episodes`.
        exploit: ask the agent not to explore or learn.
        options: further arguments for `AgentProxy`.

    Attributes:
        agent: the `AgentProxy` of the current server.
    """

    reward_metric = "episode_reward"
    """Name of the metric of an episode's reward; `game_score` in RELAAX's README."""

    retries = 10
    """Attempts at one episode, and at one reconnection."""

    proxy: ClassVar[type[AgentProxy]] = AgentProxy
    """The class of `agent`."""

    def __init__(
        self,
        address: Any = None,
        *,
        max_episodes: int | None = None,
        infinite_run: bool | None = None,
        exploit: bool | None = None,
        **options: Any,
    ) -> None:
        if address is None:
            address = [part.strip() for part in settings.rlx_server_address.split(",")]
            if max_episodes is None:
                max_episodes = settings.get("environment/max_episodes")
            if infinite_run is None:
                infinite_run = settings.get("environment/infinite_run")
            exploit = settings.exploit if exploit is None else exploit
        self.addresses: list[Any] = list(address) if isinstance(address, list) else [address]
        if not self.addresses:
            raise ValueError("expected at least one address of an RLX server, got an empty list")
        self.max_episodes = 1 if max_episodes is None else max_episodes
        self.infinite_run = bool(infinite_run)
        self.exploit = bool(exploit)
        self.agent = self.proxy(self.addresses[0], **options)

    def episode(self, number: int) -> float | None:
        """Run one episode with `self.agent`; return its reward, or None to report nothing."""
        raise NotImplementedError("define episode(self, number) in your subclass of TrainingBase")

    def initialize_agent(self, retry: int = 6) -> None:
        """Connect to the first server that accepts `init`, in `retry` rounds over all servers.

        Raises:
            AgentProxyException: no server could be reached, or all replied with errors.
        """
        rounds = dataclasses.replace(self.agent.backoff, attempts=max(1, retry))
        silent_since = time.monotonic()
        for pause in (*rounds.delays(), None):
            refused = 0
            for _ in self.addresses:
                self.agent.address = self.addresses[0]
                try:
                    self.agent.connect(retry=1)
                    self.agent.init(self.exploit)
                    return
                except AgentProxyException as error:
                    late = time.monotonic() - silent_since > SILENCE
                    silent_since = inf if late else silent_since
                    level = logging.WARNING if late else logging.DEBUG
                    logger.log(level, "waiting for an RLX server: %s", error)
                    failure = error
                    refused += isinstance(error.__cause__, _REPLIED)
                self._next_address()
            # A server that replied with an error would do so again.
            if pause is None or refused == len(self.addresses):
                break
            time.sleep(pause)
        self.agent.disconnect()
        count = len(self.addresses)
        others = f"none of {count} RLX servers accepted init; last error: " if count > 1 else ""
        raise type(failure)(f"{others}{failure}") from failure

    def run(self) -> None:
        """Run the episodes, numbered from 0; if a server fails, repeat one with the next server.

        Raises:
            AgentProxyException: no server is left, or one episode failed `retries` times.
            Exception: from `episode`.
        """
        number = 0
        failures = 0
        try:
            self.initialize_agent()
            while self.infinite_run or number < self.max_episodes:
                try:
                    reward = self.episode(number)
                    if reward is not None:
                        self.agent.metrics.scalar(self.reward_metric, reward)
                except AgentProxyException as error:
                    failures += 1
                    cause = error.__cause__
                    unsent = isinstance(cause, LimitExceeded) and cause.offset is None
                    if failures >= self.retries or unsent or isinstance(cause, EncodeError):
                        raise  # no server receives a value that cannot be sent
                    logger.error("episode %d failed: %s; reconnecting", number, error)
                    self._next_address()
                    self.initialize_agent(retry=self.retries)
                else:
                    number += 1
                    failures = 0
        except Exception as error:
            logger.error("training failed in episode %d: %s", number, error)
            raise
        finally:
            self.agent.disconnect()

    def _next_address(self) -> None:
        self.addresses.append(self.addresses.pop(0))

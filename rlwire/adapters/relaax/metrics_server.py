"""Metrics of many programs in one place: `MetricsServer` takes what `RemoteMetrics` sends.

Both speak RLX: a metric travels as an environment's does, in an `update_metrics` command, so every
RLX server takes them too. Not here: what is done with them (`rlwire.adapters.relaax.metrics`).
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from typing import Any, NoReturn

from rlwire.adapters.relaax.metrics import Metrics, number_of, numbers_of, step_of
from rlwire.adapters.relaax.server import RLXServer
from rlwire.errors import RlwireError, describe
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rlx import Client
from rlwire.transports import tcp
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientSide

__all__ = ["MetricsServer", "RemoteMetrics"]

logger = logging.getLogger(__name__)


class MetricsServer(RLXServer):
    """An RLX server that takes metrics and has no agents.

    Args:
        metrics: where they go; a sink, which is closed when the server stops.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``.
        options: `RLXServer`'s.
    """

    def __init__(
        self, metrics: Metrics, address: AddressLike = "localhost:7002", **options: Any
    ) -> None:
        super().__init__(_Recipient, address, metrics=metrics, **options)


class _Recipient:
    """Stands where an RLX server has an agent."""

    def __init__(self, parameter_server: None, metrics: Metrics) -> None:
        self.metrics = metrics

    def init(self, exploit: bool = False) -> NoReturn:
        raise TypeError("this server takes metrics and has no agents")

    def update(self, reward: Any, state: Any, terminal: bool) -> NoReturn:
        self.init()

    reset = init


class RemoteMetrics(Metrics):
    """Sends measurements to an RLX server, in the background and many at a time.

    Who measures never waits for the network: where more is measured than is sent, or the server is
    away, the oldest measurements are dropped, which the log says. Connections that are lost are
    made anew. It can be pickled; each process has a connection of its own.

    Args:
        address: of an `RLXServer`, such as a `MetricsServer`.
        max_pending: how many measurements may wait.
        deadline: seconds that `close` waits for what is pending to be sent.
        tls: for a server with TLS: an SSL context, or `rlwire.transports.tls.ClientTLS`.
        timeouts: of connections.
        limits: maxima for messages.

    Raises:
        ValueError: the address makes no sense.
    """

    most = 100
    """Measurements in one message."""

    def __init__(
        self,
        address: AddressLike,
        *,
        max_pending: int = 10_000,
        deadline: float = 5.0,
        tls: ClientSide = None,
        timeouts: Timeouts | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        parse(address)
        self._settings = (address, max_pending, deadline, tls, timeouts, limits)
        self._begin()

    def _begin(self) -> None:
        self.address, max_pending, self._deadline, *_ = self._settings
        self._pending: deque[dict[str, Any]] = deque(maxlen=max_pending)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._sending = False
        self._closing = self._over = False  # no more is awaited, nor sent
        self._log = SeldomLog(logger)

    def __getstate__(self) -> Any:
        return self._settings

    def __setstate__(self, state: Any) -> None:
        self._settings = state
        self._begin()

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Send one number.

        Raises:
            ValueError: `y` is not one number, or `x` not one of 64 bits.
        """
        self._add("scalar", name, number_of(name, y), x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Send many numbers, as float64.

        Raises:
            ValueError: `y` holds something that is no number, or `x` is not one of 64 bits.
        """
        self._add("histogram", name, numbers_of(name, y), x)

    def close(self) -> None:
        """Send what is pending, for as long as the deadline allows, and disconnect."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(self._deadline)
            if thread.is_alive():
                logger.warning(
                    "%s: %d measurements were not taken within %g s and are lost",
                    parse(self.address),
                    len(self._pending),
                    self._deadline,
                )
        with self._changed:
            self._over = True
            self._pending.clear()
            self._changed.notify_all()

    def _add(self, method: str, name: str, y: Any, x: Any) -> None:
        entry = {"method": method, "name": name, "y": y, "x": step_of(name, x)}
        with self._changed:
            if len(self._pending) == self._pending.maxlen:
                self._log.warning("%s: a measurement is dropped: too many wait", self.address)
            self._pending.append(entry)
            if self._thread is None:
                self._closing = self._over = False
                self._thread = threading.Thread(
                    target=self._run, name="rlwire metrics", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        *_, tls, timeouts, limits = self._settings
        connection: tcp.Connection | None = None
        pause = 0.1
        while entries := self._next():
            used = connection is not None
            try:
                if connection is None:
                    session = Client(limits=limits)
                    connection = tcp.connect(self.address, session, tls=tls, timeouts=timeouts)
                reply = connection.exchange({"command": "update_metrics", "data": entries})
                if reply["response"] == "error":
                    self._log.warning("%s: refused: %s", self.address, reply.get("message"))
                pause = 0.1
            except (RlwireError, OSError) as error:
                self._log.warning("%s: metrics: %s", self.address, describe(error))
                if connection is None or (used and isinstance(error, OSError)):
                    self._give_back(entries, pause)  # nobody is there, or not any more
                    pause = min(2 * pause, 5.0)
                if connection is not None:
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def _next(self) -> list[dict[str, Any]]:
        """Return what is to be sent now; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            entries = list(itertools.islice(self._pending, self.most))
            for _ in entries:
                self._pending.popleft()
            if not entries:
                self._thread = None
            return entries

    def _give_back(self, entries: list[dict[str, Any]], pause: float) -> None:
        """Have these sent later, if there is still room, and wait; not when all is over."""
        with self._changed:
            if not self._over:
                room = (self._pending.maxlen or 0) - len(self._pending)
                self._pending.extendleft(reversed(entries[len(entries) - room :] if room else []))
                self._changed.wait_for(lambda: self._over, pause)

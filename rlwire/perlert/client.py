"""`Client` and `AsyncClient`: an agent's side of PERLERT, blocking and for asyncio."""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, ClassVar, cast

from rlwire.codecs import perlert
from rlwire.codecs.perlert import AgentSlot, LobbyMessage
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, PeerError, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.perlert.spaces import OURS, ToldSpaces
from rlwire.registry import located
from rlwire.sessions.perlert.client import (
    HOLDING,
    RUNNING,
    EpisodeStarted,
    Frame,
    GaveUp,
    LobbyChanged,
    PerlertClientSession,
    PerlertState,
    SlotGranted,
    SlotTaken,
)
from rlwire.transports import udp, udp_asyncio, waits
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.datagram_cipher import DatagramCipher
from rlwire.transports.waits import Asyncio, Blocking, Waits, drive, driven

logger = logging.getLogger(__name__)

_MESSAGES = 100
_RETRY = 0.5  # seconds between two looks for a slot that becomes free


def _missing(slots: tuple[AgentSlot, ...]) -> str:
    if not slots:
        return "nothing is known of the lobby"
    parts = []
    if free := [slot.key for slot in slots if slot.open]:
        parts.append(f"no client has registered for {', '.join(free)}")
    if unready := [f"{slot.key} ({slot.tag})" for slot in slots if not (slot.open or slot.ready)]:
        parts.append(f"not ready are {', '.join(unready)}")
    return "; ".join(parts) or "all are ready"


class PerlertClientBase(waits.Counting):
    """The common part of both clients.

    Args:
        address: the server's lobby, ``"host:port"``, ``"[ipv6]:port"`` or ``(host, port)``.
        instance: ``"name"`` or ``"name:number"``; the number is 0 by default. By default the path
            of the URL.
        auth: the server's key, 32 bytes; None without a cipher.
        limits: `Limits.datagram` is the size of the largest datagram.
        tag: the agent's name in the lobby; by default a random one, since agents with the same tag
            cannot be told apart.

    Attributes:
        messages: the newest 100 texts of the server to those in the lobby.
        told: the spaces of the slot, as rlwire's server describes them.
    """

    _dial: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        address: AddressLike,
        instance: str = "",
        *,
        auth: bytes | None = None,
        limits: Limits | None = None,
        tag: str | None = None,
    ) -> None:
        where, _, path = located("perlert", address)
        instance = instance or path
        if not instance:
            raise ValueError(f"{address}: which instance? As in perlert://{where}/CartPole-v1:0")
        self._address = parse(where)
        if not self._address.host:
            raise ValueError(f"PERLERT needs UDP, so host:port and not {self._address}")
        self._name, colon, number = instance.partition(":")
        if colon and not (number.isascii() and number.isdecimal()):
            raise ValueError(f"expected an instance such as 'city' or 'city:7', not {instance!r}")
        self._number = int(number or 0)
        self.tag = f"{OURS}{secrets.token_hex(4)}" if tag is None else tag
        self._limits = limits or DEFAULT
        self._options: dict[str, Any] = {
            "limit": self._limits.datagram,
            "cipher": None if auth is None else DatagramCipher(auth, "client"),
        }
        self.messages: deque[str] = deque(maxlen=_MESSAGES)
        self.told = ToldSpaces()
        self._open_session: PerlertClientSession | None = None
        self._frames: deque[Frame] = deque()
        self._seen: dict[type, Any] = {}  # the newest event of each kind, until it is waited for
        self._over = True  # whether the caller got the last frame, or an error

    def __str__(self) -> str:
        return f"{self._name}:{self._number} at {self._address}"

    @property
    def slots(self) -> tuple[AgentSlot, ...]:
        """The lobby's slots as last heard of; `lobby` requests them."""
        return self._session.slots

    @property
    def key(self) -> str | None:
        """The slot that is held or played, or None."""
        return self._session.key

    @property
    def state(self) -> PerlertState:
        return PerlertState.CLOSED if self._open_session is None else self._open_session.state

    # ---- open and close ----

    @driven
    def connect(self) -> Waits[Any]:
        """Open a port, and return the client. Nothing is sent yet."""
        if self._connection is not None:
            raise RuntimeError(f"{self} is open already")
        connection = yield self._dial(self._address, self._make_session, **self._options)
        self._connection = self._count(connection)
        return self

    def close(self) -> None:
        """Close the port; a blocking client's from any thread.

        The server frees a slot in the lobby after a while.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        session = self._open_session
        try:
            with contextlib.suppress(LocalProtocolError):  # it is another thread's
                connection.flush()
                if session is not None and session.state is PerlertState.READY:
                    session.set_ready(False, monotonic())  # or the others would wait for us
                    connection.flush()
        finally:
            self._open_session = None
            connection.close()

    @property
    def _session(self) -> PerlertClientSession:
        self._opened()
        assert self._open_session is not None
        return self._open_session

    def _opened(self) -> Any:
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not open: use `with`, or connect()")
        return self._connection

    def _make_session(self, server: Any) -> PerlertClientSession:
        self._open_session = PerlertClientSession(
            self._name, self._number, server, limits=self._limits, jitter=random.random
        )
        return self._open_session

    # ---- methods that only send ----

    def act(self, action: Any) -> None:
        """Send the action in force from now on, until the next one: text or numbers.

        It has no effect if the run is over and its last frame was not returned yet.
        """
        if not isinstance(action, str):
            action = perlert.value_to_text(action)
        session = self._session
        if self._over or session.state in RUNNING:
            session.act(action, monotonic())
            self._opened().flush()

    def ready(self, ready: bool = True) -> None:
        """Send whether the agent is ready. The client repeats it while one of its methods waits."""
        self._session.set_ready(ready, monotonic())
        self._opened().flush()

    def statistics(self) -> dict[str, int]:
        """Return the counts of all clients, of the session, and of the open socket."""
        connection = self._connection
        socket = {} if connection is None else connection.statistics()
        return {**socket, **self._session.statistics(), **super().statistics()}

    # ---- methods that wait ----

    @driven
    def lobby(self, timeout: float | None = None) -> Waits[tuple[AgentSlot, ...]]:
        """Request the lobby's slots, and return them; `timeout` is 30 s by default."""
        session = self._session
        yield from self._forget(LobbyChanged)
        session.request_lobby(monotonic())
        yield from self._expect((LobbyChanged,), timeout, lambda: "no lobby information")
        return session.slots

    def _forget(self, *kinds: type) -> Waits[None]:
        """Forget the events so far: they are no answer to the next request."""
        yield from self._wait(0.0)
        for kind in (*kinds, GaveUp):
            self._seen.pop(kind, None)

    def _expect(
        self, kinds: tuple[type, ...], timeout: float | None, what: Callable[[], str]
    ) -> Waits[Any]:
        """Wait for an event of one of these kinds, and return it."""
        yield from self._until(lambda: any(kind in self._seen for kind in kinds), timeout, what)
        return next(self._seen[kind] for kind in kinds if kind in self._seen)

    @driven
    def register(
        self, key: str | None = None, *, timeout: float | None = None, wait: float | None = 0.0
    ) -> Waits[str]:
        """Get a slot and return its key; a slot that is held is given up for it.

        Args:
            key: the slot; None for the first that is open.
            timeout: for an answer, as in `lobby`.
            wait: seconds to wait for a slot that others hold; None for ever.

        Raises:
            PeerError: another client has the slot, or others have all of them.
            DeadlineExceeded: there was no answer, or there is no such slot.
            LocalProtocolError: a run goes on.
        """
        until = inf if wait is None else monotonic() + wait
        logged = False
        while True:
            error: PeerError | None = None
            wanted = [key] if key is not None else []
            if key is None:
                slots = yield self.lobby(timeout)
                wanted = [slot.key for slot in slots if slot.open]
                holders = ", ".join(f"{slot.key} is {slot.tag}'s" for slot in slots)
                error = PeerError(f"{self}: no slot is open: {holders}")
            for each in wanted:
                answer = yield from self._ask_for(each, timeout)
                if isinstance(answer, SlotGranted):
                    return answer.key
                error = PeerError(f"{self}: the slot {each!r} is taken by {quoted(answer.tag)}")
            assert error is not None
            left = until - monotonic()
            if left <= 0:
                raise error
            if not logged:
                logger.warning("%s; waiting up to %.0f s for one", error, left)
                logged = True
            pause = monotonic() + min(left, _RETRY)
            while (left := pause - monotonic()) > 0:
                yield from self._wait(left)

    def _ask_for(self, key: str, timeout: float | None) -> Waits[SlotGranted | SlotTaken]:
        session = self._session
        kinds = SlotGranted, SlotTaken, EpisodeStarted
        yield from self._forget(*kinds)
        session.register(key, self.tag, monotonic())
        answer = yield from self._expect(
            kinds, timeout, lambda: f"no answer to the registration for {key!r}"
        )
        # A run that begins before the slot is changed begins with the old one.
        return SlotGranted(session.key or key) if isinstance(answer, EpisodeStarted) else answer

    @driven
    def wait_start(self, timeout: float | None = None) -> Waits[str]:
        """Wait until the run begins, and return the key of the slot.

        Args:
            timeout: seconds; None waits as long as the server is heard of.

        Raises:
            DeadlineExceeded: it did not begin, and the text names the slots that are open or not
                ready; or the server is silent.
            PeerError: the slot went to another client.
            LocalProtocolError: no slot is held.
        """
        session = self._session
        if session.state not in HOLDING:
            yield from self._wait(0.0)
        if EpisodeStarted not in self._seen and session.state not in HOLDING:
            raise LocalProtocolError(f"{self}: nothing will start: register, and say ready")
        for kind in (SlotGranted, SlotTaken, GaveUp):
            self._seen.pop(kind, None)
        event = yield from self._expect(
            (SlotTaken, EpisodeStarted),
            timeout,
            lambda: f"the run did not begin, {_missing(session.slots)},",
        )
        if isinstance(event, SlotTaken):
            raise PeerError(f"{self}: the slot {event.key!r} went to {quoted(event.tag)}")
        return cast(EpisodeStarted, event).key

    @driven
    def frames(self, timeout: float | None = None) -> Waits[list[Frame]]:
        """Return all frames that have arrived, waiting for one if there are none.

        With a `timeout` of 0 the list may be empty.
        """
        yield from self._playing()
        session, frames = self._session, self._frames
        known = -1
        while len(frames) > known:
            known = len(frames)
            yield from self._wait(0.0)
        if timeout != 0:
            yield from self._until(
                lambda: frames or session.state is PerlertState.DONE, timeout, lambda: "no frame"
            )
        taken = list(frames)
        frames.clear()
        self._over = self._over or any(frame.done for frame in taken)
        return taken

    def _next_frame(self, timeout: float | None, since: float | None = None) -> Waits[Frame]:
        yield from self._playing()
        yield from self._until(lambda: self._frames, timeout, lambda: "no frame", since)
        frame = self._frames.popleft()
        self._over = self._over or frame.done
        return frame

    def _playing(self) -> Waits[None]:
        state = self._session.state
        if self._frames or state in RUNNING:
            return
        yield from self._wait(0.0)
        if not self._frames:
            self._raise_given_up()
            raise LocalProtocolError(
                f"{self}: the run is over; register for the next one"
                if state is PerlertState.DONE
                else f"{self}: no run has begun: call wait_start first"
            )

    def _until(
        self,
        there: Callable[[], Any],
        timeout: float | None,
        what: Callable[[], str],
        since: float | None = None,
    ) -> Waits[None]:
        """Wait until `there` is true; `timeout` counts from `since`, by default from now."""
        since = monotonic() if since is None else since
        while not there():
            self._raise_given_up()
            left = None if timeout is None else since + timeout - monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"{self}: {what()} within {timeout:g} s")
            yield from self._wait(left)

    def _wait(self, timeout: float | None) -> Waits[None]:
        connection = self._opened()
        try:
            self._take((yield connection.wait(timeout)))
        finally:
            if connection.closed:  # by another thread, which leaves it to this one to free it
                with contextlib.suppress(ConnectionClosed):
                    connection.flush()

    def _take(self, events: list[Any]) -> None:
        for event in events:
            kind = type(event)
            if kind is Frame:
                self._frames.append(event)
            elif kind is LobbyMessage:
                if not self.told.take(event.text):
                    self.messages.append(event.text)
            else:
                self._seen[kind] = event
                if kind is EpisodeStarted:
                    self._over = False
                    self._frames.clear()

    def _raise_given_up(self) -> None:
        gave_up = self._seen.pop(GaveUp, None)
        if gave_up is not None:
            self._over = True
            raise DeadlineExceeded(f"{self}: {gave_up.what}: {gave_up.reason}")


class Client(Blocking, PerlertClientBase):
    """An agent of one instance of a PERLERT server.

    ::

        with Client("127.0.0.1:32322", "CartPole-v1", tag="my_agent") as client:
            client.register()                     # the first open slot; or register("agent0")
            client.ready()
            client.wait_start()
            frame = client.frame()
            while not frame.done:
                x, velocity, angle, spin = text_to_array(frame.observation)
                client.act(1 if angle > 0 else 0)
                frame = client.frame(timeout=1.0)

    One client plays any number of runs; register for each. It repeats lost requests while one of
    its methods waits. It belongs to one thread. The arguments are `PerlertClientBase`'s.
    """

    _dial = staticmethod(udp.connect)

    def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame of the run, in order. Late ones and duplicates are left out.

        Args:
            timeout: seconds; None for as long as the session tries, 30 s.

        Raises:
            DeadlineExceeded: there was none.
            LocalProtocolError: no run has begun, or its last frame was returned before.
        """
        frames, session, since = self._frames, self._open_session, None
        if not frames and session is not None and session.state in RUNNING:
            # The usual case without a generator.
            since = monotonic()
            self._take(self._opened().wait(timeout))
        if not frames:
            return drive(self._next_frame(timeout, since))
        frame = frames.popleft()
        if frame.done:
            self._over = True
        return frame


class AsyncClient(Asyncio, PerlertClientBase):
    """`Client` with coroutines: the same methods, arguments and errors.

    ::

        async with AsyncClient("127.0.0.1:32322", "CartPole-v1") as client:
            await client.register()
            client.ready()
            await client.wait_start()
            while not (frame := await client.frame()).done:
                client.act("1")

    It repeats lost requests while the loop runs. One task may wait at a time. `ready`, `act` and
    `close` only send, so they need no ``await``.
    """

    _dial = staticmethod(udp_asyncio.connect)

    async def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame, as `Client.frame`."""
        return await waits.drive_async(self._next_frame(timeout))

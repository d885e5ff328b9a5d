"""`Client` and `AsyncClient`: PERLERT clients for agents, blocking and for asyncio."""

from __future__ import annotations

import logging
import random
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, ClassVar, cast

from rlwire._options import with_options
from rlwire.codecs import perlert
from rlwire.codecs.perlert import AgentSlot, LobbyMessage
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, PeerError, quoted
from rlwire.limits import DEFAULT
from rlwire.perlert.cipher import DatagramCipher
from rlwire.perlert.options import PerlertClientOptions
from rlwire.perlert.spaces import OWN_TAG, SpaceDescription
from rlwire.sessions.perlert.client import (
    HOLDING,
    RUNNING,
    EpisodeStarted,
    Frame,
    LobbyChanged,
    PerlertClientSession,
    PerlertState,
    RequestFailed,
    SlotGranted,
    SlotTaken,
)
from rlwire.transports import udp, udp_asyncio, waits
from rlwire.transports.address import parse
from rlwire.transports.waits import Asyncio, Blocking, Waits, drive, driven
from rlwire.urls import located

logger = logging.getLogger(__name__)

_MESSAGES = 100
_RETRY = 0.5  # seconds between two registrations while no slot is free


def _why_not_started(slots: tuple[AgentSlot, ...]) -> str:
    if not slots:
        return "the server sent no lobby information"
    parts = []
    if free := [slot.key for slot in slots if slot.open]:
        parts.append(f"no client has registered for {', '.join(free)}")
    if unready := [f"{slot.key} ({slot.tag})" for slot in slots if not (slot.open or slot.ready)]:
        parts.append(f"not ready: {', '.join(unready)}")
    return "; ".join(parts) or "all clients are ready"


class PerlertClientBase(waits.ClientBase):
    """The base class of `Client` and `AsyncClient`.

    Attributes:
        messages: the last 100 texts that the server sent to the lobby's clients.
        description: of the slot's spaces, which rlwire's servers send.
    """

    _dial: ClassVar[Callable[..., Any]]

    @with_options(PerlertClientOptions)
    def __init__(self, options: PerlertClientOptions) -> None:
        where, _, path = located("perlert", options.address)
        instance = options.instance or path
        if not instance:
            raise ValueError(
                f"{options.address}: no instance is given; expected such as "
                f"perlert://{where}/CartPole-v1:0"
            )
        self._address = parse(where)
        if not self._address.host:
            raise ValueError(f"PERLERT uses UDP: expected host:port, not {self._address}")
        self._name, colon, number = instance.partition(":")
        if colon and not (number.isascii() and number.isdecimal()):
            raise ValueError(f"expected an instance such as 'city' or 'city:7', not {instance!r}")
        self._number = int(number or 0)
        self.tag = f"{OWN_TAG}{secrets.token_hex(4)}" if options.tag is None else options.tag
        self._limits, key = options.limits or DEFAULT, options.auth
        self._options: dict[str, Any] = {
            "limit": self._limits.datagram,
            "cipher": None if key is None else DatagramCipher(key, "client"),
            "record": options.recording("perlert"),
        }
        self.messages: deque[str] = deque(maxlen=_MESSAGES)
        self.description = SpaceDescription()
        self._frames: deque[Frame] = deque()
        self._events: dict[type, Any] = {}  # the newest event of each type

    def __str__(self) -> str:
        return f"{self._name}:{self._number} at {self._address}"

    @property
    def slots(self) -> tuple[AgentSlot, ...]:
        """The lobby's slots in the last message about them; `lobby` requests a new one."""
        return self._session.slots

    @property
    def key(self) -> str | None:
        """The key of the client's slot in the lobby or the run; None without one."""
        return self._session.key

    @property
    def state(self) -> PerlertState:
        return PerlertState.CLOSED if self._connection is None else self._session.state

    @driven
    def connect(self) -> Waits[Any]:
        """Open a UDP socket and return the client. Nothing is sent yet."""
        if self._connection is not None:
            raise RuntimeError(f"{self} is already open")
        session = partial(PerlertClientSession, self._name, self._number, limits=self._limits)
        make_session = partial(session, jitter=random.random)
        connection = yield self._dial(self._address, make_session, **self._options)
        self._connection = self._count(connection)
        return self

    def close(self) -> None:
        """Close the socket; a blocking client's from any thread.

        An rlwire server then frees the slot. The draft has no message for it: other servers free
        the slots of silent clients, if at all.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.session.leave()
        connection.close()

    @property
    def _session(self) -> PerlertClientSession:
        session: PerlertClientSession = self._opened().session
        return session

    def _opened(self) -> Any:
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not open: use `with`, or call connect()")
        return self._connection

    def act(self, action: Any) -> None:
        """Send an action, text or numbers, which the server repeats until the next one.

        If the run is over and its last frame was not returned yet, the action is ignored.
        """
        if not isinstance(action, str):
            action = perlert.value_to_text(action)
        session, frames = self._session, self._frames
        if session.state in RUNNING or not (
            RequestFailed in self._events or (frames and frames[-1].done)
        ):
            session.act(action, monotonic())
            self._opened().flush()

    def ready(self, ready: bool = True) -> None:
        """Send whether the agent is ready; resent while a method of the client waits."""
        self._session.set_ready(ready, monotonic())
        self._opened().flush()

    def statistics(self) -> dict[str, int]:
        """Return the counts that all clients have, the session's, and the open socket's."""
        socket = {} if self._connection is None else self._connection.statistics()
        return {**socket, **self._session.statistics(), **super().statistics()}

    @driven
    def lobby(self, timeout: float | None = None) -> Waits[tuple[AgentSlot, ...]]:
        """Request the lobby's slots and return them; `timeout` is in seconds, at most 30."""
        session = self._session
        yield from self._forget(LobbyChanged)
        session.request_lobby(monotonic())
        what = "no lobby information"
        yield from self._expect((LobbyChanged,), timeout, lambda: what, waits.SILENCE)
        return session.slots

    def _forget(self, *kinds: type) -> Waits[None]:
        """Discard the events that arrived before the next request."""
        yield from self._wait(0.0)
        for kind in (*kinds, RequestFailed):
            self._events.pop(kind, None)

    def _expect(
        self,
        kinds: tuple[type, ...],
        timeout: float | None,
        what: Callable[[], str],
        silence: float = inf,
    ) -> Waits[Any]:
        """Wait for an event of one of these types, and return it."""
        yield from self._until(
            lambda: any(kind in self._events for kind in kinds), timeout, what, silence=silence
        )
        return next(self._events[kind] for kind in kinds if kind in self._events)

    @driven
    def register(
        self, key: str | None = None, *, timeout: float | None = None, wait: float | None = 0.0
    ) -> Waits[str]:
        """Register for a slot and return its key; the client's former slot is released.

        Args:
            key: the slot; None for the first one that is open or its own.
            timeout: seconds to wait for each reply, as in `lobby`.
            wait: seconds to retry while other clients hold the slot; None for no limit.

        Raises:
            PeerError: another client holds the slot, or others hold all slots.
            DeadlineExceeded: the server did not reply, or has no such slot.
            LocalProtocolError: a run is in progress.
        """
        until = inf if wait is None else monotonic() + wait
        logged = False
        while True:
            slots = (yield self.lobby(timeout)) if key is None else ()
            holders = ", ".join(f"{slot.key} is held by {slot.tag}" for slot in slots)
            error = PeerError(f"{self}: no slot is open: {holders}")
            wanted = [s.key for s in slots if s.open or s.key == self.key] if key is None else [key]
            for each in wanted:
                answer = yield from self._request_slot(each, timeout)
                if isinstance(answer, SlotGranted):
                    return answer.key
                error = PeerError(f"{self}: slot {each!r} is held by {quoted(answer.tag)}")
            left = until - monotonic()
            if left <= 0:
                raise error
            if not logged:
                logger.warning("%s; retrying for %.0f s", error, left)
                logged = True
            pause = monotonic() + min(left, _RETRY)
            while (left := pause - monotonic()) > 0:
                yield from self._wait(left)

    def _request_slot(self, key: str, timeout: float | None) -> Waits[SlotGranted | SlotTaken]:
        session = self._session
        kinds = SlotGranted, SlotTaken, EpisodeStarted
        yield from self._forget(*kinds)
        session.register(key, self.tag, monotonic())
        answer = yield from self._expect(
            kinds, timeout, lambda: f"no reply to the registration for slot {key!r}", waits.SILENCE
        )
        # A run that starts before the server has changed the slot starts with the old one.
        return SlotGranted(session.key or key) if isinstance(answer, EpisodeStarted) else answer

    @driven
    def wait_start(self, timeout: float | None = None) -> Waits[str]:
        """Wait until the run starts, and return the key of the slot.

        Args:
            timeout: seconds; None waits as long as the server replies.

        Raises:
            DeadlineExceeded: the run did not start, with the slots that are open or not ready in
                the message; or the server did not reply.
            PeerError: the server gave the slot to another client.
            LocalProtocolError: the client holds no slot.
        """
        session = self._session
        if session.state not in HOLDING:
            yield from self._wait(0.0)
        if EpisodeStarted not in self._events and session.state not in HOLDING:
            raise LocalProtocolError(f"{self}: no slot is held: call register() and ready() first")
        for kind in (SlotGranted, SlotTaken, RequestFailed):
            self._events.pop(kind, None)
        event = yield from self._expect(
            (SlotTaken, EpisodeStarted),
            timeout,
            lambda: f"the run did not start ({_why_not_started(session.slots)})",
        )
        if isinstance(event, SlotTaken):
            raise PeerError(f"{self}: the server gave slot {event.key!r} to {quoted(event.tag)}")
        return cast(EpisodeStarted, event).key

    def _all_frames(self, timeout: float | None, since: float | None = None) -> Waits[list[Frame]]:
        yield from self._check_running()
        session, frames = self._session, self._frames
        known = -1
        while len(frames) > known:
            known = len(frames)
            yield from self._wait(0.0)
        if timeout != 0:
            yield from self._until(
                lambda: frames or session.state is PerlertState.DONE,
                timeout,
                lambda: "no frame",
                since,
            )
        return self._take_frames()

    def _take_frames(self) -> list[Frame]:
        taken = list(self._frames)
        self._frames.clear()
        return taken

    def _next_frame(self, timeout: float | None, since: float | None = None) -> Waits[Frame]:
        yield from self._check_running()
        yield from self._until(lambda: self._frames, timeout, lambda: "no frame", since)
        return self._frames.popleft()

    def _check_running(self) -> Waits[None]:
        state = self._session.state
        if self._frames or state in RUNNING:
            return
        yield from self._wait(0.0)
        if not self._frames:
            self._raise_failure()
            raise LocalProtocolError(
                f"{self}: the run is over: call register() for the next one"
                if state is PerlertState.DONE
                else f"{self}: no run has started: call wait_start() first"
            )

    def _until(
        self,
        there: Callable[[], Any],
        timeout: float | None,
        what: Callable[[], str],
        since: float | None = None,
        silence: float = inf,
    ) -> Waits[None]:
        """Wait until `there` is true; `timeout` counts from `since`, by default from now.

        A wait of over `silence` seconds is logged.
        """
        since = monotonic() if since is None else since
        quiet = since + silence
        while not there():
            self._raise_failure()
            now = monotonic()
            if timeout is not None and now >= since + timeout:
                raise DeadlineExceeded(f"{self}: {what()} within {timeout:g} s")
            if now >= quiet:
                quiet = inf
                logger.warning("%s: %s within %g s; waiting", self, what(), silence)
            until = quiet if timeout is None else min(quiet, since + timeout)
            yield from self._wait(None if until == inf else until - now)

    def _wait(self, timeout: float | None) -> Waits[None]:
        self._process((yield self._opened().wait(timeout)))

    def _process(self, events: list[Any]) -> None:
        for event in events:
            kind = type(event)
            if kind is Frame:
                self._frames.append(event)
            elif kind is LobbyMessage:
                if not self.description.add(event.text):
                    self.messages.append(event.text)
            else:
                self._events[kind] = event
                if kind is EpisodeStarted:
                    self._frames.clear()

    def _raise_failure(self) -> None:
        gave_up = self._events.pop(RequestFailed, None)
        if gave_up is not None:
            raise DeadlineExceeded(f"{self}: {gave_up.what}: {gave_up.reason}")


class Client(Blocking, PerlertClientBase):
    """A blocking client: one agent of an instance of a PERLERT server.

    ::

        with Client("127.0.0.1:32322", "CartPole-v1", tag="my_agent") as client:
            client.register()                     # the first open slot, or register("agent0")
            client.ready()
            client.wait_start()
            frame = client.frame()
            while not frame.done:
                x, velocity, angle, spin = text_to_array(frame.observation)
                client.act(1 if angle > 0 else 0)
                frame = client.frame(timeout=1.0)

    Register again for each further run. The client resends lost requests while one of its methods
    waits. Only one thread may use it. The arguments are `PerlertClientBase`'s.
    """

    _dial = staticmethod(udp.connect)

    def frame(self, timeout: float | None = None) -> Frame:
        """Return the run's next frame. Late and duplicate frames are dropped.

        Args:
            timeout: seconds, at most 30.

        Raises:
            DeadlineExceeded: no frame arrived in time.
            LocalProtocolError: no run has started, or its last frame was already returned.
        """
        frames, since = self._frames, self._receive(timeout)
        return frames.popleft() if frames else drive(self._next_frame(timeout, since))

    def frames(self, timeout: float | None = None) -> list[Frame]:
        """Return all frames that have arrived; if there are none, wait for one.

        With ``timeout=0`` the list may be empty.
        """
        since = None if self._frames else self._receive(0.0)
        if not self._frames:
            self._receive(timeout)
            if self._frames:
                return self._take_frames()
        return drive(self._all_frames(timeout, since))  # until no more have arrived

    def _receive(self, timeout: float | None) -> float | None:
        """In a run without frames, wait once for some; return when this began.

        This is the common case, without a generator.
        """
        connection: Any = self._connection
        if self._frames or connection is None or connection.session.state not in RUNNING:
            return None
        since = monotonic()
        self._process(connection.wait(timeout))
        return since


class AsyncClient(Asyncio, PerlertClientBase):
    """`Client` for asyncio: the same methods, arguments and errors.

    ::

        async with AsyncClient("127.0.0.1:32322", "CartPole-v1") as client:
            await client.register()
            client.ready()
            await client.wait_start()
            while not (frame := await client.frame()).done:
                client.act("1")

    It resends lost requests while the loop runs. Only one task at a time may wait. `ready`, `act`
    and `close` do not wait, so they need no ``await``.
    """

    _dial = staticmethod(udp_asyncio.connect)

    async def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame, as `Client.frame`."""
        return await waits.drive_async(self._next_frame(timeout))

    async def frames(self, timeout: float | None = None) -> list[Frame]:
        """Return all frames that have arrived, as `Client.frames`."""
        return await waits.drive_async(self._all_frames(timeout))

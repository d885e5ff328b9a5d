"""`Client`: an agent's side of PERLERT, blocking; and what it shares with `AsyncClient`.

Not here: what is repeated, and when, if it gets lost (`rlwire.sessions.perlert_client`); spaces and
episodes (`rlwire.adapters.perlert.remote`).
"""

from __future__ import annotations

import contextlib
import random
import secrets
from collections import deque
from collections.abc import Callable, Generator
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from rlwire.codecs import perlert
from rlwire.codecs.perlert import AgentSlot
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    PeerError,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert_client import (
    ClientSession,
    ClientSettings,
    Frame,
    GaveUp,
    LobbyChanged,
    Message,
    RegisteredAs,
    SlotTaken,
    Started,
    State,
)
from rlwire.transports import udp
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.datagram_cipher import DatagramCipher
from rlwire.transports.udp_sockets import DatagramSocket

__all__ = ["Client", "ClientBase", "describe"]

_T = TypeVar("_T")

Waits: TypeAlias = Generator["float | None", None, _T]
"""What has to be waited for: yields for how long, and goes on when events have been taken."""

_MESSAGES = 100
_LOOK_AGAIN = 0.5


def describe(slots: tuple[AgentSlot, ...]) -> str:
    """Return what a lobby waits for, for a human."""
    if not slots:
        return "nothing is known of the lobby"
    unready = [f"{slot.key} ({slot.tag})" for slot in slots if not slot.open and not slot.ready]
    parts = []
    if missing := [slot.key for slot in slots if slot.open]:
        parts.append(f"nobody has registered for {', '.join(missing)}")
    if unready:
        parts.append(f"not ready are {', '.join(unready)}")
    return "; ".join(parts) or "all are ready"


class ClientBase:
    """What both clients are made of.

    Args:
        address: the server's lobby, ``"host:port"``, ``"[ipv6]:port"`` or ``(host, port)``.
        instance: ``"name"`` or ``"name:number"``; the number is 0 if there is none.
        tag: what others see in the lobby; by default a random one, since two agents with the same
            tag cannot tell who is who.
        cipher: the key that the server has as well, or a cipher made of it.
        settings: times of the protocol.
        limits: `Limits.datagram` is the size of the largest datagram.
        local: the address to send from; by default the system chooses.

    Attributes:
        messages: the newest 100 texts of the server to those in the lobby.

    Raises:
        ValueError: an argument makes no sense.
        MissingExtra: a key is given, and cryptography is not installed.
    """

    def __init__(
        self,
        address: AddressLike,
        instance: str,
        *,
        tag: str | None = None,
        cipher: DatagramCipher | bytes | None = None,
        settings: ClientSettings | None = None,
        limits: Limits | None = None,
        local: AddressLike | None = None,
    ) -> None:
        self._address = parse(address)
        if not self._address.host:
            raise ValueError(f"PERLERT needs UDP, so host:port and not {self._address}")
        self._name, colon, number = instance.partition(":")
        if colon and not (number.isascii() and number.isdecimal()):
            raise ValueError(f"expected an instance such as 'city' or 'city:7', not {instance!r}")
        self._number = int(number or 0)
        self.tag = f"rlwire-{secrets.token_hex(4)}" if tag is None else tag
        self._settings = settings or ClientSettings()
        self._limits = limits or DEFAULT
        self._refused: int | None = None
        self._options: dict[str, Any] = {
            "limit": self._limits.datagram,
            "cipher": DatagramCipher(cipher, "client") if isinstance(cipher, bytes) else cipher,
            "local": local,
        }
        self.messages: deque[str] = deque(maxlen=_MESSAGES)
        self._open_session: ClientSession | None = None
        self._frames: deque[Frame] = deque()
        self._informed = False
        self._started: Started | None = None
        self._answer: RegisteredAs | SlotTaken | None = None
        self._gave_up: GaveUp | None = None
        self._told = True  # that the run is over, by its last frame or an error

    def __str__(self) -> str:
        return f"{self._name}:{self._number} at {self._address}"

    @property
    def slots(self) -> tuple[AgentSlot, ...]:
        """The lobby's slots as last heard of; `lobby` asks for them."""
        return self._session.slots

    @property
    def key(self) -> str | None:
        """The slot that is held or played, None for none."""
        return self._session.key

    @property
    def state(self) -> State:
        """Where the agent stands."""
        return State.CLOSED if self._open_session is None else self._open_session.state

    @property
    def _session(self) -> ClientSession:
        if self._open_session is None:
            raise ConnectionClosed(f"{self} is not open: use `with`, or connect()")
        return self._open_session

    def _make_session(self, server: Any) -> ClientSession:
        self._refused = None  # refusals when the server was heard last; None if it was not
        self._open_session = ClientSession(
            self._name,
            self._number,
            server,
            settings=self._settings,
            limits=self._limits,
            jitter=random.random,
        )
        return self._open_session

    def _leave(self) -> None:
        """Say what can be said for good-bye: that nobody need wait for us."""
        session = self._open_session
        if session is not None and session.state is State.READY:
            session.set_ready(False, monotonic())

    # ---- events ----

    def _take(self, events: list[Any]) -> None:
        if events:
            self._refused = self._socket().refusals
        for event in events:
            if isinstance(event, Frame):
                self._frames.append(event)
            elif isinstance(event, LobbyChanged):
                self._informed = True
            elif isinstance(event, RegisteredAs | SlotTaken):
                self._answer = event
            elif isinstance(event, Started):
                self._started = event
                self._told = False
                self._frames.clear()
            elif isinstance(event, Message):
                self.messages.append(event.text)
            elif isinstance(event, GaveUp):
                self._gave_up = event

    def _until(
        self, there: Callable[[], Any], timeout: float | None, what: Callable[[], str]
    ) -> Waits[None]:
        """Wait until something is there.

        Raises:
            DeadlineExceeded: it did not come in time, or the session gave up.
            ConnectionClosed: the server was there, and its system says that it is no more.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while not there():
            self._raise_given_up()
            self._raise_refused()
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"{self}: {what()} within {timeout:g} s")
            yield left

    # ---- what may be waited for ----

    def _lobby(self, timeout: float | None) -> Waits[tuple[AgentSlot, ...]]:
        session = self._session
        yield 0.0  # what came before is no answer
        self._informed, self._gave_up = False, None
        session.request_lobby(monotonic())
        yield from self._until(lambda: self._informed, timeout, lambda: "no lobby information")
        return session.slots

    def _register(self, key: str | None, timeout: float | None, wait: float | None) -> Waits[str]:
        until = inf if wait is None else monotonic() + wait
        while True:
            error: PeerError | None = None
            if key is None:
                slots = yield from self._lobby(timeout)
                wanted = [slot.key for slot in slots if slot.open]
                error = PeerError(f"{self}: no slot is open: {_holders(slots)}")
            else:
                wanted = [key]
            for each in wanted:
                answer = yield from self._ask_for(each, timeout)
                if isinstance(answer, RegisteredAs):
                    return answer.key
                error = PeerError(f"{self}: the slot {each!r} is taken by {quoted(answer.tag)}")
            assert error is not None
            left = until - monotonic()
            if left <= 0:
                raise error
            pause = monotonic() + min(left, _LOOK_AGAIN)
            while (left := pause - monotonic()) > 0:
                yield left

    def _ask_for(self, key: str, timeout: float | None) -> Waits[RegisteredAs | SlotTaken]:
        session = self._session
        yield 0.0
        self._answer = self._started = self._gave_up = None
        session.register(key, self.tag, monotonic())
        yield from self._until(
            lambda: self._answer or self._started,
            timeout,
            lambda: f"no answer to the registration for {key!r}",
        )
        # A run that begins before the slot is changed begins with the old one.
        return self._answer or RegisteredAs(session.key or key)

    def _start(self, timeout: float | None) -> Waits[str]:
        session = self._session
        if session.state not in (State.REGISTERED, State.READY):
            yield 0.0
        if not self._started and session.state not in (State.REGISTERED, State.READY):
            raise LocalProtocolError(f"{self}: nothing will start: register, and say ready")
        self._answer = self._gave_up = None

        def there() -> object:
            if isinstance(self._answer, SlotTaken):
                raise PeerError(
                    f"{self}: the slot {self._answer.key!r} went to {quoted(self._answer.tag)}"
                )
            return self._started

        yield from self._until(
            there, timeout, lambda: f"the run did not begin, {describe(session.slots)},"
        )
        assert self._started is not None
        return self._started.key

    def _all_frames(self, timeout: float | None) -> Waits[list[Frame]]:
        session = self._session
        yield from self._playing()
        known = -1
        while len(self._frames) > known:  # whatever has arrived already
            known = len(self._frames)
            yield 0.0
        if timeout != 0 and not self._frames:
            yield from self._until(
                lambda: self._frames or session.state is State.DONE, timeout, lambda: "no frame"
            )
        frames = list(self._frames)
        self._frames.clear()
        self._told = self._told or any(frame.done for frame in frames)
        return frames

    def _next_frame(self, timeout: float | None) -> Waits[Frame]:
        yield from self._playing()
        yield from self._until(lambda: self._frames, timeout, lambda: "no frame")
        frame = self._frames.popleft()
        self._told = self._told or frame.done
        return frame

    def _playing(self) -> Waits[None]:
        """Find out whether there is something to wait for."""
        state = self._session.state
        if not self._frames and state not in (State.STARTING, State.ROLLOUT):
            yield 0.0
            if not self._frames:
                self._raise_given_up()
                raise LocalProtocolError(
                    f"{self}: the run is over; register for the next one"
                    if state is State.DONE
                    else f"{self}: no run has begun: call wait_start first"
                )

    def _raise_given_up(self) -> None:
        gave_up, self._gave_up = self._gave_up, None
        if gave_up is not None:
            self._told = True
            raise DeadlineExceeded(f"{self}: {gave_up.what}: {gave_up.reason}")

    def _raise_refused(self) -> None:
        """Raise if the server has gone: not if it has never been heard, since it may yet come."""
        sock = self._socket()
        if self._refused is not None and sock.refusals > self._refused:
            self._refused = None
            assert sock.refusal is not None
            reason = sock.refusal[1].strerror
            raise ConnectionClosed(f"{self}: the server is no longer there: {reason}")

    def _socket(self) -> DatagramSocket:
        raise NotImplementedError

    def _act(self, action: Any) -> None:
        if isinstance(action, (list, tuple, np.ndarray)):
            action = perlert.array_to_text(np.asarray(action))
        elif not isinstance(action, (str, bytes)):
            action = perlert.value_to_text(action)
        session = self._session
        if not self._told and session.state not in (State.STARTING, State.ROLLOUT):
            # The run is over, and its last frame has arrived while our caller was thinking: that
            # is theirs to find out from the frame.
            perlert.encode(perlert.Action(self._name, self._number, action), limits=self._limits)
            return
        session.act(action, monotonic())


def _holders(slots: tuple[AgentSlot, ...]) -> str:
    return ", ".join(f"{slot.key} is {slot.tag}'s" for slot in slots)


class Client(ClientBase):
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

    It has one port, which others cannot take over, for any number of runs; for each, register anew.
    What gets lost is asked for again while one of its methods waits. It belongs to one thread.

    The arguments are `ClientBase`'s.
    """

    _connection: udp.DatagramConnection | None = None

    def __enter__(self) -> Client:
        return self if self._connection is not None else self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self) -> Client:
        """Open a port. Nothing is sent yet.

        Raises:
            OSError: the server's name is not known, or the local address cannot be bound.
            RuntimeError: it is open already.
        """
        if self._connection is not None:
            raise RuntimeError(f"{self} is open already")
        self._connection = udp.connect(self._address, self._make_session, **self._options)
        return self

    def close(self) -> None:
        """Close the port, from any thread. The server frees a slot in the lobby after a while."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with contextlib.suppress(LocalProtocolError):  # it is another thread's
                    connection.flush()
                    self._leave()
                    connection.flush()
            finally:
                self._open_session = None
                connection.close()

    def lobby(self, timeout: float | None = None) -> tuple[AgentSlot, ...]:
        """Ask for the lobby's slots, and return them.

        Args:
            timeout: seconds; None for as long as the session tries, 30 s.

        Raises:
            DeadlineExceeded: there was no answer.
        """
        return self._drive(self._lobby(timeout))

    def register(
        self, key: str | None = None, *, timeout: float | None = None, wait: float | None = 0.0
    ) -> str:
        """Get a slot and return its key; a slot that is held is given up for it.

        Args:
            key: which slot; None for the first that is open.
            timeout: for an answer, as in `lobby`.
            wait: seconds to wait for a slot that others hold; None for ever.

        Raises:
            PeerError: somebody else has the slot, or all of them.
            DeadlineExceeded: there was no answer, or there is no such slot.
            LocalProtocolError: a run goes on.
        """
        return self._drive(self._register(key, timeout, wait))

    def ready(self, ready: bool = True) -> None:
        """Say that one is ready, or no longer. It is repeated while one waits.

        Raises:
            LocalProtocolError: no slot is held.
        """
        self._session.set_ready(ready, monotonic())
        self._flush()

    def wait_start(self, timeout: float | None = None) -> str:
        """Wait until the run begins, and return the key of the slot.

        Args:
            timeout: seconds; None waits as long as the server is heard of.

        Raises:
            DeadlineExceeded: it did not begin; the text names those that are missing or not ready.
                Or the server is silent.
            PeerError: the slot went to somebody else.
            LocalProtocolError: no slot is held.
        """
        return self._drive(self._start(timeout))

    def act(self, action: Any) -> None:
        """Say what to do from now on; it stays in force until the next one.

        It is of no effect if the run is over and its last frame waits to be returned.

        Args:
            action: text, or a number, or a sequence or array of numbers.

        Raises:
            EncodeError, LimitExceeded: it cannot be sent.
            LocalProtocolError: no run goes on.
        """
        self._act(action)
        self._flush()

    def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame of the run, in order. Late ones and duplicates are left out.

        Args:
            timeout: seconds; None for as long as the session tries, 30 s.

        Raises:
            DeadlineExceeded: there was none.
            LocalProtocolError: no run has begun, or its last frame was returned before.
        """
        return self._drive(self._next_frame(timeout))

    def frames(self, timeout: float | None = None) -> list[Frame]:
        """Return all frames that have arrived; if there are none, wait for one.

        Args:
            timeout: as in `frame`; with 0 the list may be empty.

        Raises:
            DeadlineExceeded, LocalProtocolError: as from `frame`.
        """
        return self._drive(self._all_frames(timeout))

    def statistics(self) -> dict[str, int]:
        """Return the session's counts and the socket's."""
        connection = self._connection
        socket = {} if connection is None else connection.statistics()
        return {**socket, **self._session.statistics()}

    def _socket(self) -> DatagramSocket:
        return self._opened().sock

    def _drive(self, steps: Waits[_T]) -> _T:
        connection = self._opened()
        try:
            timeout = next(steps)
            while True:
                self._take(connection.wait(timeout, refusals=self._refused is not None))
                timeout = next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value
        finally:
            if connection.closed:  # by another thread, which left it to us to free it
                with contextlib.suppress(ConnectionClosed):
                    connection.flush()

    def _flush(self) -> None:
        self._opened().flush()

    def _opened(self) -> udp.DatagramConnection:
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not open: use `with`, or connect()")
        return self._connection

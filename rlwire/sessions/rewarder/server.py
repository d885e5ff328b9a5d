"""The rewarder's server: a `Runtime`, and a session for each connection.

The session is the inner one of a WebSocket's server, for one thread; a runtime is thread-safe.
`clock` is monotonic (`time.monotonic`), `wall` is the date (`time.time`) for `sent_at`.
docs/protocols/rewarder.md has the choices that the protocol's document leaves open.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvStep,
    EnvText,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    RewarderMessage,
    UnknownMessage,
    is_binary,
)
from rlwire.codecs.rewarder.infos import BEGUN, OPTIONS, STEPS, VERSION
from rlwire.codecs.rewarder.messages import FREQUENT, MessageCodec
from rlwire.codecs.websocket.frames import Binary
from rlwire.codecs.websocket.handshake import basic_credentials, same_secret
from rlwire.errors import (
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, LayerPhase
from rlwire.sessions.rewarder.rules import (
    Clock,
    EpisodeKey,
    Push,
    RewarderSession,
    episode_key,
    following_episode,
    name_of,
    plain_id,
)

_TEXT: Final = 1000  # characters of an error
_FASTEST: Final = 1000  # frames per second that a client may request
_PENDING: Final = 16  # pending resets of one client
_PUSHES: Final = {EnvDescribe, EnvReward, EnvText, EnvObservation, EnvStep, UnknownMessage}
_TAKEN: Final = "The rewarder already has an active client; connect with openai-observer: true."


class Runtime:
    """The state of all connections of one server: the environment, its active client, a password.

    Methods may be called from any thread. The caller sends the `EnvDescribe` that `describe` and
    `begin` return to all connections.

    Args:
        status: the first description; by default of episode 1.
        password: the user name of clients' Basic credentials; None accepts all clients.

    Attributes:
        guarded: whether there is a password.
        active: the session of the active client, if any.
        status: the description; it is replaced, never modified.
        stale: messages that were not sent because their client already had a newer episode.
    """

    def __init__(
        self,
        status: EnvDescribe,
        *,
        clock: Clock,
        wall: Clock,
        password: str | None,
        limits: Limits | None = None,
    ) -> None:
        self.clock = clock
        self.wall = wall
        self.limits = DEFAULT if limits is None else limits
        self.guarded = password is not None
        self._codec = MessageCodec.of(self.limits)
        self._password = password
        self._lock = threading.Lock()
        self.active: RewarderServerSession | None = None
        self.stale = 0
        self.status = status.with_headers(episode_id=status.episode_id or "1")
        _own_key(self.status.episode_id)
        _check_fps(status.fps)
        self._about = dict(status.extra_body)
        self._begun: dict[str, Any] = {}

    @property
    def episode_id(self) -> str:
        """The current episode."""
        episode_id = self.status.episode_id
        assert episode_id is not None
        return episode_id

    def describe(self, **changes: Any) -> EnvDescribe:
        """Change `env_id`, `env_state` and `fps` where not None; return the new description."""
        with self._lock:
            self.status = self._changed(self.episode_id, **changes)
            return self.status

    def begin(
        self,
        past: str | None = None,
        *,
        env_state: str = "resetting",
        info: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> EnvDescribe:
        """Begin an episode newer than `past`, with the reset's `info`; return the description.

        `about` replaces the fields that the protocol does not define.
        """
        with self._lock:
            episode_id = following_episode(self.episode_id, past)
            self._about = self._about if about is None else dict(about)
            self._begun = {BEGUN: info} if info else {}
            self.status = self._changed(episode_id, env_state=env_state, **changes)
            return self.status

    def _changed(self, episode_id: str, **changes: Any) -> EnvDescribe:
        given = {name: value for name, value in changes.items() if value is not None}
        _check_fps(given.get("fps", 60))
        about = {**self._about, **self._begun}
        return self.status.with_headers(episode_id=episode_id, extra_body=about, **given)

    def push(self, event: RewarderMessage, *, arrays: bool = False, text: bool = True) -> Push:
        """Encode a push, by default of the current episode; `arrays` and `text` are `Push`'s."""
        if type(event) not in _PUSHES:
            raise LocalProtocolError(f"{name_of(event)} cannot be sent to all connections")
        episode_id, current = event.episode_id, self.status.episode_id
        if episode_id is None:
            event = event.with_headers(episode_id=current)
        elif episode_id != current:
            _own_key(episode_id)
        return Push(event, self.wall(), self.limits, arrays=arrays, text=text)

    def push_values(self, kind: Any, values: tuple[Any, ...], episode_id: str | None) -> Push:
        """Return `push` of an observation, action or reward; plain ones are encoded quickly."""
        current = self.status.episode_id
        episode_id = episode_id or current
        if episode_id == current:
            text = self._codec.write_plain(FREQUENT[kind], 0, self.wall(), current, values)
            if text is not None:
                return Push((current, text), 0.0, self.limits)
        return self.push(kind(*values, episode_id=episode_id))

    def connect(
        self, authorization: str | None = None, observer: str | None = None
    ) -> RewarderServerSession:
        """Return a connection's session for its Authorization and openai-observer headers."""
        refusal = None
        if self._password is not None:
            credentials = basic_credentials(authorization)
            if credentials is None:
                refusal = "No password: an Authorization header of Basic credentials is needed."
            elif not same_secret(credentials[0], self._password):
                refusal = "Invalid password: it is the user name of the Basic credentials."
        return RewarderServerSession(self, refusal, (observer or "").strip().lower() == "true")

    def count_stale(self) -> None:
        with self._lock:
            self.stale += 1

    def claim(self, session: RewarderServerSession) -> bool:
        """Make a session the active one unless there is another; return whether it is active."""
        with self._lock:
            if self.active is None:
                self.active = session
            return self.active is session

    def release(self, session: RewarderServerSession) -> None:
        """Let another session become the active one."""
        with self._lock:
            if self.active is session:
                self.active = None


class RewarderServerSession(RewarderSession):
    """One client's connection; made by `Runtime.connect`.

    `closed` is True once ``v0.connection.close`` was returned: the WebSocket closes next.

    Attributes:
        runtime: the state of all connections.
        admitted: whether the password was right, for the WebSocket's `PasswordCheck`.
        observer: whether the client is an observer. The first other client to send a message is
            the active one, as in the original, so silent clients do not block others.
        arrays: whether the client reads binary messages, and may send them.
        refused: messages that the session rejected by itself with ``v0.reply.error``.
        takes_action: whether an action of one event with one value is returned as a tuple of its
            message_id and the two.
    """

    def __init__(self, runtime: Runtime, refusal: str | None, observer: bool) -> None:
        super().__init__(runtime.clock, runtime.wall, runtime.limits)
        self.runtime = runtime
        self.observer = observer
        self.admitted = refusal is None
        self.arrays = self.takes_action = False
        self.refused = 0
        self._refusal = refusal
        self._pending: dict[int | str, tuple[EnvReset, float]] = {}  # with the time of receipt
        self._newest: EpisodeKey = ()  # of the episodes that the client knows
        self._episode: str | None = None  # its id

    def send(self, event: Any) -> Sequence[Buffer]:
        """Return the bytes of a message, with the next id and the time.

        It is a `Push`, `ReplyEnvReset`, `ReplyError`, `ConnectionClose`, or a tuple for a step in
        one message, if `arrays`: (episode_id, reward, done, info, observation).
        `ReplyEnvReset` and `ReplyError` need the request's ``parent_message_id``; the session adds
        ``parent_runtime``, and to a `ReplyEnvReset` without ``episode_id`` the current one.
        """
        if self._opening or self._ended:
            self._check_open()
        is_step = type(event) is tuple
        if is_step or isinstance(event, Push):
            episode_id = event[0] if is_step else event.episode_id
            if episode_id != self._episode and not self._set_episode(episode_id):
                self.runtime.count_stale()
                raise LocalProtocolError(
                    f"episode {episode_id} is over: the client is in {self._episode}"
                )
            number = self.last_id + 1
            buffers: Sequence[Buffer] | None
            if is_step:
                buffers = self._codec.encode_step(event, self._wall(), number)
                if buffers is None:
                    raise EncodeError("only JSON can carry the step, if at all")
                buffers = Binary(buffers)
            else:
                buffers = event.numbered(number, self.arrays)
            self.last_id = number
            return buffers
        if isinstance(event, (ReplyEnvReset, ReplyError)):
            return self._answer(event)
        if not isinstance(event, ConnectionClose):
            raise LocalProtocolError(f"a rewarder's server cannot send {name_of(event)}")
        buffers = self._write(event)
        self._end(event.message)
        self._flush()
        return buffers

    def _set_episode(self, episode_id: str | None) -> bool:
        """Set the client's episode unless it already has a newer one; return whether it was set."""
        key = _own_key(episode_id)
        if key < self._newest:
            return False
        self._newest, self._episode = key, episode_id
        return True

    def _check_open(self) -> None:
        if self._opening:
            raise LocalProtocolError("cannot send before the connection's first v0.env.describe")
        super()._check_open()

    def _answer(self, reply: Any) -> list[Buffer]:
        try:
            parent = plain_id(reply.parent_message_id, "parent_message_id")
        except RemoteProtocolError as error:
            raise LocalProtocolError(str(error)) from None
        pending = None if parent is None else self._pending.get(parent)
        if pending is not None:
            request, received = pending
            headers = {
                "parent_message_id": request.message_id,  # as the client wrote it
                "parent_runtime": max(0.0, self._clock() - received),
            }
        elif (
            isinstance(reply, ReplyError)
            and isinstance(parent, int)
            and self._was_received(parent)  # an action
        ):
            headers = {}
        else:
            raise LocalProtocolError(
                f"{reply.method} needs the parent_message_id of a pending request, not "
                f"{reply.parent_message_id!r}"
            )
        if isinstance(reply, ReplyEnvReset):
            episode_id = reply.episode_id
            if episode_id is None:
                headers["episode_id"] = episode_id = self.runtime.episode_id
            self._set_episode(episode_id)
        buffers = self._write(reply.with_headers(**headers) if headers else reply)
        if pending is not None:
            assert parent is not None
            del self._pending[parent]
        return buffers

    def output(self) -> list[list[Buffer]]:
        """Return and forget the session's own messages.

        First the description or the rejection, then pongs and error replies.
        """
        if self._opening:
            self._opening = False
            if self._refusal is not None:
                self._close(self._refusal)
            else:
                status = self.runtime.status
                assert status.episode_id is not None
                self._set_episode(status.episode_id)
                self._enqueue(self._write(status))
        return self._flush()

    def _flush(self) -> list[list[Buffer]]:
        if self.close_reason is not None:
            self.phase = LayerPhase.CLOSED
        return super()._flush()

    def _close(self, message: str) -> None:
        if self.close_reason is None:
            self._enqueue(self._write(ConnectionClose(message)))
            self._end(message)

    def _end(self, message: str) -> None:
        self.close_reason = message
        self._ended = True
        self.release()

    def release(self) -> None:
        """Drop pending requests, and let another client become the active one."""
        self._pending.clear()
        self.runtime.release(self)

    def receive(self, message: Buffer) -> list[AgentAction | EnvReset]:
        """Return the events of one message: `AgentAction`, or `EnvReset`.

        Reply to an `EnvReset` at any time, with `ReplyEnvReset` or `ReplyError`. After an error
        the session receives nothing more; `reject` returns its last message.
        """
        if self._ended:
            return []
        try:
            if is_binary(message):
                values = self._codec.values(message)
                if self.takes_action and self._is_short(values):
                    self._received = values[1]
                    return [(values[1], *values[4][0])]  # type: ignore[list-item]
                decoded = self._numbered(self._codec.decode(values))
            else:
                decoded = self._numbered(self._codec.read_text(message))
        except RlwireError:
            self._ended = True
            self.release()
            raise
        runtime = self.runtime
        if not (self.observer or runtime.active is self or runtime.claim(self)):
            self._close(_TAKEN)
            return []
        kind = type(decoded)
        if kind is AgentAction and not self.observer:
            return [decoded]
        began = self._clock()
        number = decoded.message_id
        reason = self._why_rejected(decoded)
        if reason is not None:
            self.refused += 1
            text = f"{decoded.method[:60]}: {reason}"
            self._enqueue(self._write(ReplyError(text, parent_message_id=number)))
        elif kind is EnvReset and not self.observer:
            self._pending[cast("int | str", plain_id(number, "message_id"))] = decoded, began
            self.arrays |= decoded.extra_body.get(STEPS) == VERSION
            return [decoded]
        else:
            took = max(0.0, self._clock() - began)
            reply: RewarderMessage
            reply = ReplyControlPing(parent_message_id=number, parent_runtime=took)
            if kind is EnvReset:
                episode_id = runtime.episode_id
                self._set_episode(episode_id)
                reply = ReplyEnvReset(
                    parent_message_id=number, parent_runtime=took, episode_id=episode_id
                )
            self._enqueue(self._write(reply))
        return []

    def _is_short(self, values: list[Any]) -> bool:
        """Return whether a binary message is the active client's action as `takes_action` wants."""
        if not (len(values) == 5 and values[0] == 2 and self._is_next(values)):
            return False
        events = values[4]
        if not (type(events) is list and len(events) == 1 and type(events[0]) is list):
            return False
        event = events[0]
        return len(event) == 2 and type(event[0]) is str and self.runtime.active is self

    def _why_rejected(self, message: Any) -> str | None:
        """Return why a message is rejected, or None."""
        kind = type(message)
        if kind is AgentAction:
            return "observers cannot act"
        if kind is UnknownMessage:
            return "unknown method"
        if kind is not EnvReset and kind is not ControlPing:
            return "only servers send it"
        if message.message_id is None:
            return "a request needs a message_id"
        if kind is ControlPing:
            return None
        seed = message.seed
        if seed is not None and (type(seed) is not int or abs(seed) >= 2**128):
            return "seed must be an integer of 128 bits"
        if not isinstance(message.extra_body.get(OPTIONS, {}), dict):
            return f"{OPTIONS} must be an object"
        if message.fps is not None and not 0 < message.fps <= _FASTEST:
            return f"fps must be over 0 and at most {_FASTEST}, not {quoted(message.fps)}"
        if message.episode_id is not None:
            try:
                following_episode("0", message.episode_id)
            except RemoteProtocolError as error:
                return str(error)
        if len(self._pending) >= _PENDING:
            return f"{len(self._pending)} resets are pending, limit is {_PENDING}"
        return None

    def _check_text_id(self, message: RewarderMessage, name: str | None) -> None:
        if name in self._pending:
            raise RemoteProtocolError(f"{message.method} repeats the message_id {quoted(name)}")

    def reject(self, error: RlwireError) -> list[Buffer]:
        """End the session; return a ``v0.connection.close`` with the error, unless one was sent."""
        if self.close_reason is not None:
            return []
        self._opening = False
        self._out.clear()
        self._close(for_peer(error, "the server")[:_TEXT])
        return [part for message in self._flush() for part in message]


def _check_fps(fps: float | None) -> None:
    if fps is None or isinstance(fps, bool) or not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps must be a number over 0, not {fps!r}")


def _own_key(episode_id: str | None) -> EpisodeKey:
    try:
        return episode_key(episode_id, "a message")
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from None

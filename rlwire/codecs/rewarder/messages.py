"""The rewarder's messages, one class per method, to JSON and back.

A text without unknown members is decoded once. Other texts, and invalid ones, are decoded again
without the tagged union, to find the unknown members and the method for errors.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Union

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, astuple, force_setattr

from rlwire.codecs import _json, msgpack
from rlwire.codecs._json import Buffer, bounded, read
from rlwire.codecs._json import encode as write
from rlwire.codecs._json_arrays import array_of
from rlwire.codecs.rewarder.infos import NONFINITE, restore_numbers, spell
from rlwire.codecs.rewarder.texts import write_text
from rlwire.errors import DecodeError, EncodeError, quoted
from rlwire.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "AgentAction",
    "ConnectionClose",
    "ControlPing",
    "EnvDescribe",
    "EnvObservation",
    "EnvReset",
    "EnvReward",
    "EnvStep",
    "EnvText",
    "MessageCodec",
    "ReplyControlPing",
    "ReplyEnvReset",
    "ReplyError",
    "RewarderMessage",
    "UnknownMessage",
    "decode",
    "encode",
    "encode_binary",
    "is_binary",
]


logger = logging.getLogger(__name__)


class RewarderMessage(Struct, kw_only=True, frozen=True):
    """The headers of every message (None if missing), and its unknown members.

    Attributes:
        sent_at: seconds since 1970, by the sender's clock.
        message_id: counts from 0 on each side of a connection.
        episode_id: numbers separated by dots, such as "1.2".
        parent_message_id: ID of the message that this one replies to.
        parent_runtime: seconds that the reply took.
        extra_headers, extra_body: unknown members of the headers and of the body.
        extra: other unknown members.
    """

    method: ClassVar[str]

    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None
    extra_headers: Mapping[str, Any] = {}
    extra_body: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}

    def with_headers(self, **headers: Any) -> Self:
        """Return a copy with other fields."""
        return msgspec.structs.replace(self, **headers)


class EnvDescribe(RewarderMessage, frozen=True):
    """``v0.env.describe``: the environment's id (None without one), state and frame rate.

    `env_state` is, for example, "running" or "resetting".
    """

    method = "v0.env.describe"
    env_id: str | None
    env_state: str | None
    fps: int | float | None = None


class EnvReward(RewarderMessage, frozen=True):
    """``v0.env.reward``: a reward, and whether the episode has ended."""

    method = "v0.env.reward"
    reward: int | float
    done: bool
    info: dict[str, Any] = {}


class EnvText(RewarderMessage, frozen=True):
    """``v0.env.text``: a text from the environment."""

    method = "v0.env.text"
    text: str


class EnvObservation(RewarderMessage, frozen=True):
    """``v0.env.observation``: an observation other than pixels.

    Lists of numbers, nested or not, are decoded as equal arrays of int64, uint64 or float64.
    """

    method = "v0.env.observation"
    observation: Any


class EnvStep(EnvReward, frozen=True):
    """``rlwire.env.step``: an observation and its reward, between rlwire's own ends."""

    method = "rlwire.env.step"
    observation: Any = None


class ConnectionClose(RewarderMessage, frozen=True):
    """``v0.connection.close``: why the server will close the connection."""

    method = "v0.connection.close"
    message: str


class ReplyError(RewarderMessage, frozen=True):
    """``v0.reply.error``: why a request failed."""

    method = "v0.reply.error"
    message: str


class ReplyEnvReset(RewarderMessage, frozen=True):
    """``v0.reply.env.reset``: the reset is done; `episode_id` is the new episode."""

    method = "v0.reply.env.reset"


class ReplyControlPing(RewarderMessage, frozen=True):
    """``v0.reply.control.ping``: the reply to a ping."""

    method = "v0.reply.control.ping"


class AgentAction(RewarderMessage, frozen=True):
    """``v0.agent.action``: events that start with their names: ``("JoystickAxisXEvent", 0.1)``."""

    method = "v0.agent.action"
    action: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        events = []
        for event in self.action:
            if isinstance(event, str) or not len(event) or not isinstance(event[0], str):
                raise TypeError(
                    "an event must start with its name, such as ('KeyEvent', 97, True), not "
                    + quoted(event)
                )
            events.append(tuple(event))
        force_setattr(self, "action", tuple(events))


class EnvReset(RewarderMessage, frozen=True):
    """``v0.env.reset``: requests an episode; None keeps the current environment and frame rate."""

    method = "v0.env.reset"
    env_id: str | None
    seed: int | float | None = None
    fps: int | float | None = None


class ControlPing(RewarderMessage, frozen=True):
    """``v0.control.ping``: requests a reply."""

    method = "v0.control.ping"


class UnknownMessage(RewarderMessage, frozen=True):
    """A message with an unknown method, of either direction."""

    method: str  # type: ignore[misc]
    body: Any = None


class _Headers(Struct, omit_defaults=True):
    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None


class _KnownHeaders(_Headers, forbid_unknown_fields=True):
    pass


class _Method(Struct):
    method: str


class _Text(Struct):
    headers: _Headers | None = None
    body: Any = None


FREQUENT: Final = {EnvObservation: 1, AgentAction: 2, EnvReward: 3}  # their codes for `texts`
_SHARED: Final = len(RewarderMessage.__struct_fields__)
_MEMBERS: Final = ("method", "headers", "body")
_KNOWN: Final = (
    *(EnvDescribe, EnvReward, EnvText, EnvObservation, ConnectionClose, ReplyError),
    *(ReplyEnvReset, ReplyControlPing, AgentAction, EnvReset, ControlPing, EnvStep),
)


def _wire(kind: type[RewarderMessage]) -> tuple[type[Any], type[Any], type[Any]]:
    """Return the classes of a method's JSON and of its body, and one that ignores unknown ones."""
    name = kind.__name__
    # A reset is written with all its members, even if None: the original's servers need them.
    fields = [
        (field.name, msgspec.Raw)
        if field.name == "observation"
        else (field.name, field.type)
        if field.default is not None
        else (field.name, field.type, None)
        for field in msgspec.structs.fields(kind)
        if field.name not in RewarderMessage.__struct_fields__
    ]
    body = msgspec.defstruct(f"{name}.body", fields, omit_defaults=kind is EnvDescribe)
    known = msgspec.defstruct(body.__name__, [], bases=(body,), forbid_unknown_fields=True)
    text = msgspec.defstruct(
        name,
        # Texts without them are left to the class that ignores unknown members: `_decode_any`.
        [("headers", _KnownHeaders, None), ("body", known, None)],
        tag_field="method",
        tag=kind.method,
        forbid_unknown_fields=True,
    )
    members: list[Any] = [("headers", _Headers | None, None), ("body", body)]
    if not fields:
        members[1] = "body", body | None, None
    return text, known, msgspec.defstruct(name, members, kw_only=True)


_WIRE: Final[dict[type[RewarderMessage], Any]] = {kind: _wire(kind) for kind in _KNOWN}
_KINDS: Final = {text: kind for kind, (text, _, _) in _WIRE.items()}
_BY_METHOD: Final[dict[str, Any]] = {
    kind.method: (kind, msgspec.json.Decoder(lenient).decode)
    for kind, (_, _, lenient) in _WIRE.items()
}
_decode: Final = msgspec.json.Decoder(Union[tuple(_KINDS)]).decode  # noqa: UP007
_decode_method: Final = msgspec.json.Decoder(_Method).decode
_decode_text: Final = msgspec.json.Decoder(_Text).decode
_generic: Final = msgspec.json.Decoder().decode


def decode(buffer: Buffer, *, limits: Limits = DEFAULT) -> RewarderMessage:
    """Return the message in a JSON text or a binary message, of either direction.

    Raises:
        DecodeError: the text is not a message; the error has the method, and the offset or path.
        LimitExceeded: the text exceeds one of the limits.
    """
    codec = MessageCodec.of(limits)
    return codec.decode(codec.values(buffer)) if is_binary(buffer) else codec.read_text(buffer)


def is_binary(message: Buffer) -> bool:
    """Return whether a message is MessagePack's list of a few values, not JSON."""
    return len(message) > 0 and message[0] >> 4 == 9


def encode_binary(
    message: EnvStep | EnvObservation | AgentAction, sent_at: float, message_id: int, limits: Limits
) -> list[Buffer] | None:
    """Return a message as MessagePack, once a client's reset has `STEPS`; None if only JSON can.

    The buffers refer to large arrays.
    """
    if message.extra_headers or message.extra_body or message.extra:
        return None
    codec = MessageCodec.of(limits)
    if isinstance(message, EnvStep):
        step = message.episode_id, message.reward, message.done, message.info, message.observation
        return codec.encode_step(step, sent_at, message_id)
    number, values = 2, getattr(message, "action", None)
    if isinstance(message, EnvObservation):
        number, values = 1, message.observation
    return codec.encode(number, message_id, sent_at, message.episode_id, values)


class MessageCodec:
    """Messages as JSON or MessagePack, with these limits.

    MessagePack's are lists whose first four values are the headers: a number for the method,
    message_id, sent_at and episode_id.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._plain = limits.message if limits.depth >= _DEEPEST else 0  # bytes of a plain text
        self._encoder = msgpack.Encoder(align=True, limits=limits)
        self._copies = msgpack.Decoder(copy=True, limits=limits)
        self._views = msgpack.Decoder(copy=None, limits=limits)

    @staticmethod
    def of(limits: Limits) -> MessageCodec:
        """Return the codec of these limits."""
        return _CODEC if limits is DEFAULT else _codec_of(limits)  # hashing is slow

    def read_text(self, buffer: Buffer) -> RewarderMessage:
        """Return the message in a JSON text; raises as the function `decode`."""
        data = bounded(buffer, self._limits)
        try:
            text = _decode(data)
            headers, body = text.headers, text.body
            if headers is not None and body is not None:
                return _message(_KINDS[type(text)], headers, body)
        except (msgspec.DecodeError, DecodeError, UnicodeDecodeError, RecursionError, TypeError):
            pass
        return _decode_any(data, self._limits)

    def write(
        self, message: RewarderMessage, sent_at: float | None, message_id: int | str | None
    ) -> bytes:
        """Return a message as JSON; as the function `encode`."""
        values = astuple(message)
        count = len(values) - _SHARED
        own, shared = values[:count], values[count:]
        sent, number, episode_id, parent, runtime, others, fields, members = shared
        sent = sent if sent_at is None else sent_at
        number = number if message_id is None else message_id
        kind = type(message)
        code = FREQUENT.get(kind)
        if code and parent is None and runtime is None and not (others or fields or members):
            data = self.write_plain(code, number, sent, episode_id, own)
            if data is not None:
                return data
        headers = _KnownHeaders(sent, number, episode_id, parent, runtime)
        value: Any
        if kind is UnknownMessage or others or fields or members:
            value = _with_extras(message, headers)
        else:
            text, body, _ = _WIRE[kind]
            value = text(headers, body(*own))
        try:
            data = write(value, self._limits)
            for name in _spelt(kind):
                if not _is_plain(given := getattr(message, name)):
                    _json.check(given, f"$.body.{name}", finite=False)
            if not _is_plain(fields):
                _json.check(fields, "$.body", finite=False)
            return data
        except EncodeError as error:
            if NONFINITE not in fields:
                with contextlib.suppress(EncodeError):
                    data = self.write(_spelled(message), sent_at, message_id)
                    _warn(message.method)
                    return data
            raise EncodeError(f"{message.method}: {error.reason}", path=error.path) from None

    def write_plain(
        self, code: int, message_id: Any, sent_at: Any, episode_id: Any, values: tuple[Any, ...]
    ) -> bytes | None:
        """Return the JSON of a message's values if they are plain, as `texts` says, else None."""
        data = write_text(code, message_id, sent_at, episode_id, values)
        return None if data is None or len(data) > self._plain else data

    def encode_step(
        self, step: tuple[Any, ...], sent_at: float, message_id: int
    ) -> list[Buffer] | None:
        """Return the buffers of a step (episode_id, reward, done, info, observation), or None."""
        episode_id, reward, done, info, shown = step
        if not (_is_plain(shown) and (not info or _is_plain(info, 1))):
            return None
        return self._parts([0, message_id, sent_at, episode_id, reward, done, info, shown])

    def encode(
        self, method: int, message_id: int, sent_at: float, episode_id: str | None, value: Any
    ) -> list[Buffer] | None:
        """Return the buffers of a message with one value in its body, or None."""
        if not _is_plain(value):
            return None
        return self._parts([method, message_id, sent_at, episode_id, value])

    def _parts(self, value: list[Any]) -> list[Buffer] | None:
        try:
            return self._encoder.encode_parts(value)
        except EncodeError:  # such as of an int over 64 bits: JSON may have a form
            return None

    def values(self, buffer: Buffer) -> list[Any]:
        """Return the values of a message, after checking those of the headers."""
        readonly = type(buffer) is bytes or memoryview(buffer).readonly
        value: list[Any] = (self._copies if readonly else self._views).decode(buffer)
        if len(value) > 4:
            method, number, sent_at, episode_id = value[0], value[1], value[2], value[3]
            good = type(method) is int and type(number) is int and type(sent_at) is float
            if good and (episode_id is None or type(episode_id) is str):
                return value
        raise DecodeError("invalid values of a binary message")

    def decode(self, value: list[Any]) -> RewarderMessage:
        """Return the message with these `values`."""
        code, number, sent_at, episode_id = value[:4]
        size = len(value)
        if code == 0 and size == 8:
            _, _, _, _, reward, done, info, shown = value
            good = type(reward) in (float, int) and type(done) is bool and type(info) is dict
            if good and not (info and not _STRS.issuperset(map(type, info))):
                return EnvStep(
                    reward, done, _as_text(info) if info else info, _as_array(shown),
                    message_id=number, sent_at=sent_at, episode_id=episode_id,
                )  # fmt: skip
        elif code == 1 and size == 5:
            shown = _as_array(value[4])
            return EnvObservation(shown, message_id=number, sent_at=sent_at, episode_id=episode_id)
        elif code == 2 and size == 5 and type(value[4]) is list:
            try:
                return AgentAction(
                    value[4], message_id=number, sent_at=sent_at, episode_id=episode_id
                )
            except (TypeError, LookupError):  # an event without a name
                pass
        raise DecodeError("invalid values of a binary message")


_DEEPEST: Final = 2 + 32  # levels of a text with an array, as `texts` writes it
_STRS: Final = frozenset((str,))
_CODEC: Final = MessageCodec(DEFAULT)
_codec_of: Final = functools.lru_cache(8)(MessageCodec)


def _is_plain(value: Any, arrays: int = 2, left: int = 64) -> bool:
    """Return whether MessagePack and JSON carry the same value: no bytes, complex, or dates.

    It may have `arrays` 2 anywhere, 1 outside lists, or 0 nowhere, and `left` levels.
    """
    kind = type(value)
    if kind is np.ndarray:
        return arrays > 0 and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8
    if left == 0:  # such as of a list in itself
        return False
    if kind is list or kind is tuple:
        for item in value:  # noqa: SIM110 - a generator is slow
            if not _is_plain(item, arrays & 2, left - 1):
                return False
        return True
    if kind is dict:
        for name, item in value.items():
            if type(name) is not str or not _is_plain(item, arrays, left - 1):
                return False
        return True
    if kind is int or kind is float or kind is str or kind is bool or value is None:
        return True
    if not isinstance(value, (np.number, np.bool_)):
        return False
    return value.dtype.kind in "biuf" and value.dtype.itemsize <= 8


def _as_text(value: Any) -> Any:
    """Return an info with numbers and arrays as of a text; it owns its arrays, since it is kept."""
    if type(value) is dict:
        return {name: _as_text(item) for name, item in value.items()}
    if type(value) is list:
        return [*map(_as_text, value)]
    if isinstance(value, np.ndarray):
        return np.array(value, value.dtype.newbyteorder("="))
    return value.item() if isinstance(value, (np.number, np.bool_)) else value


def _message(kind: Any, headers: Any, body: Any) -> RewarderMessage:
    """Return a message; TypeError if an action has events without names."""
    values = () if body is None else astuple(body)
    if kind is EnvObservation or kind is EnvStep:
        values = values[:-1] + (_observation(values[-1]),)  # noqa: RUF005 - it is faster
    if len(values) == 1:  # frequent messages; with `*`, the keywords would be a dictionary
        sent_at, message_id, episode_id, parent, runtime = astuple(headers)
        return kind(
            values[0],
            sent_at=sent_at,
            message_id=message_id,
            episode_id=episode_id,
            parent_message_id=parent,
            parent_runtime=runtime,
        )
    return kind(*values, **asdict(headers))


def _decode_any(data: bytes, limits: Limits) -> RewarderMessage:
    """Decode a text with unknown members; raise the error of an invalid text."""
    method = read(_decode_method, data, limits).method
    kind, decode_text = _BY_METHOD.get(method, (UnknownMessage, _decode_text))
    try:
        text = read(decode_text, data, limits)
        headers = text.headers or _Headers()
        if kind is UnknownMessage:
            message: Any = UnknownMessage(method, text.body, **asdict(headers))
        else:
            message = read(lambda _: _message(kind, headers, text.body), data, limits)
        value = read(_generic, data, limits)
    except DecodeError as error:
        reason = f"{method[:60]}: {error.reason}"
        raise DecodeError(reason, offset=error.offset, path=error.path) from None
    except TypeError:
        raise DecodeError(f"{method}: invalid events", path="$.body.action") from None
    body = None if kind is UnknownMessage else value.get("body")
    others = _others(body, kind.__struct_fields__[:-_SHARED])
    changes = {}
    if NONFINITE in others:
        named = others.pop(NONFINITE)
        others = restore_numbers(others)
        changes = {name: restore_numbers(getattr(message, name)) for name in _spelt(kind)}
        if issubclass(kind, EnvReward):
            changes["reward"] = restore_numbers(named) if isinstance(named, str) else message.reward
        if "observation" in changes:
            changes["observation"] = _as_array(changes["observation"])
    return msgspec.structs.replace(
        message,
        extra_headers=_others(value.get("headers"), _Headers.__struct_fields__),
        extra_body=others,
        extra=_others(value, _MEMBERS),
        **changes,
    )


@functools.cache
def _spelt(kind: Any) -> list[str]:
    """Return the members of a body that may have NaN and infinities, except a reward."""
    return [name for name in ("observation", "info", "action") if name in kind.__struct_fields__]


def _others(value: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: item for name, item in (value or {}).items() if name not in names}


def _observation(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    array = array_of(text)
    if array is not None:
        return array
    try:
        value = _generic(text)
    except msgspec.ValidationError as error:
        raise _json.misfit(error, path="$.body.observation") from None
    return _as_array(value)


def _as_array(value: Any) -> Any:
    if type(value) is not list:
        return value
    try:
        array = _json.array_of(value)
    except (OverflowError, FloatingPointError):
        return value
    return value if array is None else array


def encode(
    message: RewarderMessage,
    *,
    sent_at: float | None = None,
    message_id: int | str | None = None,
    limits: Limits = DEFAULT,
) -> bytes:
    """Return a message as JSON, in UTF-8.

    NaN and infinities are written for `decode`, see `rlwire.codecs.rewarder.infos.spell`; with a
    warning, as other programs read their names, and 0 as the reward.

    Args:
        message: unknown members are written after the known ones.
        sent_at: replaces the message's own.
        message_id: replaces the message's own.
        limits: ``message`` and ``depth`` apply.

    Raises:
        EncodeError: JSON cannot represent a field; the error has its path.
        LimitExceeded: the text exceeds `limits.message` or `limits.depth`.
    """
    return MessageCodec.of(limits).write(message, sent_at, message_id)


def _spelled(message: Any) -> Any:
    """Return a message that JSON can represent in spite of NaN and infinities."""
    kind: Any = type(message)
    changes: dict[str, Any] = {name: spell(getattr(message, name)) for name in _spelt(kind)}
    named: Any = True
    if isinstance(message, EnvReward) and isinstance(name := spell(message.reward), str):
        named, changes["reward"] = name, 0.0
    return message.with_headers(
        extra_body={**spell(message.extra_body), NONFINITE: named}, **changes
    )


@functools.cache
def _warn(method: str) -> None:
    logger.warning("%s has NaN or infinities: other programs than rlwire read names or 0", method)


def _with_extras(message: RewarderMessage, headers: _Headers) -> dict[str, Any]:
    known = {name: value for name, value in asdict(headers).items() if value is not None}
    if isinstance(message, UnknownMessage):
        body = message.body
    else:
        names = type(message).__struct_fields__[:-_SHARED]
        body = {name: getattr(message, name) for name in names}
        if isinstance(message, EnvDescribe) and message.fps is None:
            del body["fps"]
        body |= message.extra_body
    # The known headers come first: see `rlwire.sessions.rewarder.rules.Push`.
    return {
        "method": message.method,
        "headers": known | dict(message.extra_headers),
        "body": body,
        **message.extra,
    }

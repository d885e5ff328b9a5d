"""The rewarder's messages, one class a method, to JSON and back.

A text whose members are all known is decoded in one go. Others, and those with errors, are decoded
once more as plain values, and unknown members kept in `extra`, `extra_headers` and `extra_body`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Union

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from rlwire.codecs import _json, _json_arrays
from rlwire.codecs._json import Buffer
from rlwire.errors import DecodeError, EncodeError, quoted
from rlwire.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from typing_extensions import Self


class RewarderMessage(Struct, kw_only=True, frozen=True):
    """The headers of each message, None if missing, and members that the protocol does not name.

    Attributes:
        sent_at: seconds since 1970 by the sender's clock.
        message_id: counts from 0 on each side of a connection.
        episode_id: one or more numbers with dots between them, such as "1.2".
        parent_message_id: of the message that this one answers.
        parent_runtime: seconds that the answer took.
        extra_headers, extra_body: unknown members of the headers and of the body.
        extra: unknown members beside them.
    """

    method: ClassVar[str]
    """The method's name on the wire."""

    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None
    extra_headers: Mapping[str, Any] = {}
    extra_body: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}

    def with_headers(self, **headers: Any) -> Self:
        """Return a copy with other headers."""
        return msgspec.structs.replace(self, **headers)


class ServerMessage(RewarderMessage, frozen=True):
    """From the server, where the environment is."""


class ClientMessage(RewarderMessage, frozen=True):
    """From the client, where the agent is."""


class EnvDescribe(ServerMessage, frozen=True):
    """``v0.env.describe``: which environment there is, and what it does.

    Attributes:
        env_id: None if there is none.
        env_state: such as "running" or "resetting".
        fps: frames per second; None if missing.
    """

    method = "v0.env.describe"
    env_id: str | None
    env_state: str | None
    fps: int | float | None = None


class EnvReward(ServerMessage, frozen=True):
    """``v0.env.reward``: a reward, and whether the episode has ended."""

    method = "v0.env.reward"
    reward: int | float
    done: bool
    info: dict[str, Any] = {}


class EnvText(ServerMessage, frozen=True):
    """``v0.env.text``: text that the environment shows."""

    method = "v0.env.text"
    text: str


class EnvObservation(ServerMessage, frozen=True):
    """``v0.env.observation``: what the agent sees besides pixels.

    Attributes:
        observation: an array of int64, uint64 or float64 if it was a list of numbers, nested or
            not; otherwise the value as JSON has it.
    """

    method = "v0.env.observation"
    observation: Any


class ConnectionClose(ServerMessage, frozen=True):
    """``v0.connection.close``: the server will close the connection, and why."""

    method = "v0.connection.close"
    message: str


class ReplyError(ServerMessage, frozen=True):
    """``v0.reply.error``: a request has failed, and why."""

    method = "v0.reply.error"
    message: str


class ReplyEnvReset(ServerMessage, frozen=True):
    """``v0.reply.env.reset``: the reset is done; the header has the new episode."""

    method = "v0.reply.env.reset"


class ReplyControlPing(ServerMessage, frozen=True):
    """``v0.reply.control.ping``: the reply to a ping."""

    method = "v0.reply.control.ping"


class AgentAction(ClientMessage, frozen=True):
    """``v0.agent.action``: what the agent does besides keyboard and mouse.

    Attributes:
        action: events, each of which begins with its name, such as ``("JoystickAxisXEvent", 0.1)``.
    """

    method = "v0.agent.action"
    action: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        """Make tuples of lists, and check the names."""
        events = []
        for event in self.action:
            if isinstance(event, str) or not len(event) or not isinstance(event[0], str):
                raise TypeError(
                    "an event must begin with its name, as ('KeyEvent', 97, True), not be "
                    + quoted(event)
                )
            events.append(tuple(event))
        msgspec.structs.force_setattr(self, "action", tuple(events))


class EnvReset(ClientMessage, frozen=True):
    """``v0.env.reset``: the client wants a new episode.

    Attributes:
        env_id: of which environment; None for the one that runs.
        seed: None for none.
        fps: frames per second; None for the server's.
    """

    method = "v0.env.reset"
    env_id: str | None
    seed: int | float | None = None
    fps: int | float | None = None


class ControlPing(ClientMessage, frozen=True):
    """``v0.control.ping``: asks for a reply, to measure how long it takes."""

    method = "v0.control.ping"


class UnknownMessage(RewarderMessage, frozen=True):
    """A message of a method that the protocol does not name, from either side."""

    method: str  # type: ignore[misc]
    body: Any = None


class _Headers(Struct, omit_defaults=True, forbid_unknown_fields=True):
    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None


_KNOWN: Final = (
    *(EnvDescribe, EnvReward, EnvText, EnvObservation, ConnectionClose, ReplyError),
    *(ReplyEnvReset, ReplyControlPing, AgentAction, EnvReset, ControlPing),
)
_CLASSES: Final[dict[str, type[RewarderMessage]]] = {kind.method: kind for kind in _KNOWN}
_NAMES: Final[dict[type[RewarderMessage], tuple[str, ...]]] = {
    kind: tuple(
        name for name in kind.__struct_fields__ if name not in RewarderMessage.__struct_fields__
    )
    for kind in (*_KNOWN, UnknownMessage)
}


def _wire(kind: type[RewarderMessage]) -> tuple[type[Any], type[Any]]:
    """Return the classes of a method's text and of the body in it."""
    # What stands for a missing member is only read; a reset has all of its members, None or not:
    # the original's servers read them without asking.
    body = msgspec.defstruct(
        f"{kind.__name__}.body",
        [
            (field.name, msgspec.Raw if field.name == "observation" else field.type)
            if field.default is not None
            else (field.name, field.type, None)
            for field in msgspec.structs.fields(kind)
            if field.name in _NAMES[kind]
        ],
        omit_defaults=kind is EnvDescribe,
        forbid_unknown_fields=True,
    )
    headers = ("headers", _Headers, msgspec.field(default_factory=_Headers))
    optional = ("body", body, msgspec.field(default_factory=body))
    text = msgspec.defstruct(
        kind.__name__,
        [headers, ("body", body) if _NAMES[kind] else optional],
        tag_field="method",
        tag=kind.method,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return text, body


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets the values of attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


_WIRE: Final[dict[type[RewarderMessage], Any]] = {
    kind: (*_wire(kind), _getter(_NAMES[kind])) for kind in _KNOWN
}
_MADE: Final = {text: (kind, get) for kind, (text, _, get) in _WIRE.items()}
_decode: Final = msgspec.json.Decoder(Union[tuple(_MADE)]).decode  # noqa: UP007


def decode(buffer: Buffer, *, limits: Limits = DEFAULT) -> RewarderMessage:
    """Return the message in a JSON text, of either direction.

    Raises:
        DecodeError: it is no JSON or no message; with the offset or the path.
        LimitExceeded: the message passes one of the limits.
    """
    data = _json.bounded(buffer, limits)
    try:
        return _message(_decode(data), {}, {}, {})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "out of range" in str(error):  # of which the other way does not know the path
            raise _json.misfit(error) from None
        return _decode_any(data, limits)


def _message(text: Any, extra_headers: Any, extra_body: Any, extra: Any) -> RewarderMessage:
    kind, get = _MADE[type(text)]
    values, headers = get(text.body), text.headers
    if kind is EnvObservation:
        values = (_observation(values[0]),)
    try:
        return kind(
            *values,
            sent_at=headers.sent_at,
            message_id=headers.message_id,
            episode_id=headers.episode_id,
            parent_message_id=headers.parent_message_id,
            parent_runtime=headers.parent_runtime,
            extra_headers=extra_headers,
            extra_body=extra_body,
            extra=extra,
        )
    except TypeError as error:
        raise DecodeError(f"{kind.method}: {error}", path="$.body.action") from None


def _observation(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    array = _json_arrays.array_of(text)
    if array is not None:
        return array
    try:
        value = _generic(text)
    except msgspec.ValidationError as error:
        raise _json.misfit(error, path="$.body.observation") from None
    if type(value) is not list:
        return value
    try:
        array = _json.array_of(value)
    except (OverflowError, FloatingPointError):
        return value
    return value if array is None else array


def _decode_any(data: bytes, limits: Limits) -> RewarderMessage:
    """Return the message in a text with unknown members, or raise what is wrong with it."""
    value = _json.read(_generic, data, limits)
    if type(value) is not dict:
        raise DecodeError(f"a message is an object, not {quoted(value)}", path="$")
    method = value.pop("method", None)
    if type(method) is not str:
        raise DecodeError(f"a message's method is a string, not {quoted(method)}", path="$.method")
    headers = _object(method, value, "headers")
    kind = _CLASSES.get(method)
    if kind is None:
        body = value.pop("body", None)
        outside = {"headers": _taken(headers, _Headers.__struct_fields__)}
        known = _fitting(method, outside, _Outside).headers
        return UnknownMessage(method, body, **asdict(known), extra_headers=headers, extra=value)
    body = _object(method, value, "body")
    text: dict[str, Any] = {
        "method": method,
        "headers": _taken(headers, _Headers.__struct_fields__),
        "body": _taken(body, _NAMES[kind]),
    }
    if kind is EnvObservation and "observation" in text["body"]:
        text["body"]["observation"] = msgspec.Raw(_json.encode(text["body"]["observation"], limits))
    return _message(_fitting(method, text, _WIRE[kind][0]), headers, body, value)


_generic: Final = msgspec.json.Decoder().decode


class _Outside(Struct):
    headers: _Headers


def _object(method: str, value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.pop(name, None)
    if found is None:
        return {}
    if type(found) is not dict:
        raise DecodeError(
            f"{method}: {name} must be an object, not {quoted(found)}", path=f"$.{name}"
        )
    return found


def _taken(value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the members with these names, and remove them from `value`."""
    return {name: value.pop(name) for name in names if name in value}


def _fitting(method: str, value: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _json.misfit(error, f"{method}: ") from None


def encode(
    message: RewarderMessage,
    *,
    sent_at: float | None = None,
    message_id: int | str | None = None,
    limits: Limits = DEFAULT,
) -> bytes:
    """Return a message as JSON, in UTF-8.

    Args:
        message: what to write.
        sent_at: this header, in place of the message's own.
        message_id: this header, in place of the message's own.
        limits: ``message`` and ``depth`` count.

    Raises:
        EncodeError: JSON cannot carry a field; with the path.
        LimitExceeded: the text is longer, or nested deeper, than the limits.
    """
    headers = _Headers(
        message.sent_at if sent_at is None else sent_at,
        message.message_id if message_id is None else message_id,
        message.episode_id,
        message.parent_message_id,
        message.parent_runtime,
    )
    wire = _WIRE.get(type(message))
    value: Any
    if wire is None or message.extra_headers or message.extra_body or message.extra:
        value = _with_extras(message, headers)
    else:
        text, body, get = wire
        value = text(headers=headers, body=body(*get(message)))
    try:
        return _json.encode(value, limits)
    except EncodeError as error:
        raise EncodeError(f"{message.method}: {error.reason}", path=error.path) from None


def _with_extras(message: RewarderMessage, headers: _Headers) -> dict[str, Any]:
    told = {name: value for name, value in asdict(headers).items() if value is not None}
    if isinstance(message, UnknownMessage):
        body = message.body
    else:
        body = {name: getattr(message, name) for name in _NAMES[type(message)]}
        if isinstance(message, EnvDescribe) and message.fps is None:
            del body["fps"]
        body |= message.extra_body
    return {
        "method": message.method,
        "headers": told | dict(message.extra_headers),
        "body": body,
        **message.extra,
    }

"""The rewarder's messages, one class for each method, to JSON and back.

Unknown members are ignored, except those of ``v0.env.describe``'s body: `EnvDescribe.about`.
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
    """The headers of each message, None if missing.

    Attributes:
        sent_at: seconds since 1970 by the sender's clock.
        message_id: counts from 0 on each side of a connection.
        episode_id: numbers with dots between them, such as "1.2".
        parent_message_id: of the message that this one replies to.
        parent_runtime: seconds that the reply took.
    """

    method: ClassVar[str]

    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None

    def with_headers(self, **headers: Any) -> Self:
        """Return a copy with other fields."""
        return msgspec.structs.replace(self, **headers)


class EnvDescribe(RewarderMessage, frozen=True):
    """``v0.env.describe``: the environment's id, None without one, state and frames a second.

    `env_state` is such as "running" or "resetting"; `about` has the body's unknown members.
    """

    method = "v0.env.describe"
    env_id: str | None
    env_state: str | None
    fps: int | float | None = None
    about: Mapping[str, Any] = {}


class EnvReward(RewarderMessage, frozen=True):
    """``v0.env.reward``: a reward, and whether the episode has ended."""

    method = "v0.env.reward"
    reward: int | float
    done: bool
    info: dict[str, Any] = {}


class EnvText(RewarderMessage, frozen=True):
    """``v0.env.text``: a text of the environment."""

    method = "v0.env.text"
    text: str


class EnvObservation(RewarderMessage, frozen=True):
    """``v0.env.observation``: an observation besides pixels.

    Lists of numbers, nested or not, are decoded as arrays of int64, uint64 or float64.
    """

    method = "v0.env.observation"
    observation: Any


class ConnectionClose(RewarderMessage, frozen=True):
    """``v0.connection.close``: why the server is about to close the connection."""

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
    """``v0.agent.action``: events that begin with their names: ``("JoystickAxisXEvent", 0.1)``."""

    method = "v0.agent.action"
    action: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        events = []
        for event in self.action:
            if isinstance(event, str) or not len(event) or not isinstance(event[0], str):
                raise TypeError(
                    "an event must begin with its name, as ('KeyEvent', 97, True), not be "
                    + quoted(event)
                )
            events.append(tuple(event))
        msgspec.structs.force_setattr(self, "action", tuple(events))


class EnvReset(RewarderMessage, frozen=True):
    """``v0.env.reset``: asks for a new episode; None for the current environment and rate."""

    method = "v0.env.reset"
    env_id: str | None
    seed: int | float | None = None
    fps: int | float | None = None


class ControlPing(RewarderMessage, frozen=True):
    """``v0.control.ping``: asks for a reply."""

    method = "v0.control.ping"


class UnknownMessage(RewarderMessage, frozen=True):
    """A received message of a method that the document does not have; its body is ignored."""

    method: str  # type: ignore[misc]


class _Headers(Struct, omit_defaults=True):
    sent_at: float | None = None
    message_id: int | str | None = None
    episode_id: str | None = None
    parent_message_id: int | str | None = None
    parent_runtime: float | None = None


_KNOWN: Final = (
    *(EnvDescribe, EnvReward, EnvText, EnvObservation, ConnectionClose, ReplyError),
    *(ReplyEnvReset, ReplyControlPing, AgentAction, EnvReset, ControlPing),
)


def _wire(kind: type[RewarderMessage]) -> tuple[type[Any], type[Any], Callable[..., Any]]:
    """Return the classes of a method's JSON and of its body, and a getter of the body's fields."""
    # A reset is written with all of its members, None or not: the original's servers need them.
    fields = [
        (field.name, msgspec.Raw if field.name == "observation" else field.type)
        if field.default is not None
        else (field.name, field.type, None)
        for field in msgspec.structs.fields(kind)
        if field.name not in (*RewarderMessage.__struct_fields__, "about")
    ]
    body = msgspec.defstruct(f"{kind.__name__}.body", fields)
    members: list[Any] = [("headers", _Headers | None, None), ("body", body)]
    if kind is EnvDescribe:
        members[1] = "body", msgspec.Raw
    elif not fields:
        members[1] = "body", body | None, None
    text = msgspec.defstruct(
        kind.__name__, members, tag_field="method", tag=kind.method, kw_only=True
    )
    names = [name for name, *_ in fields]
    if len(names) > 1:
        return text, body, attrgetter(*names)
    return text, body, lambda value: [getattr(value, name) for name in names]


_WIRE: Final[dict[type[RewarderMessage], Any]] = {kind: _wire(kind) for kind in _KNOWN}
_MADE: Final = {text: (kind, get) for kind, (text, _, get) in _WIRE.items()}
_decode: Final = msgspec.json.Decoder(Union[tuple(_MADE)]).decode  # noqa: UP007
_decode_description: Final = msgspec.json.Decoder(_WIRE[EnvDescribe][1]).decode
_generic: Final = msgspec.json.Decoder().decode


class _Unknown(Struct):
    method: str
    headers: _Headers | None = None


_decode_unknown: Final = msgspec.json.Decoder(_Unknown).decode


def decode(buffer: Buffer, *, limits: Limits = DEFAULT) -> RewarderMessage:
    """Return the message in a JSON text, of either direction.

    Raises:
        DecodeError: the text is no message; with the offset or the path.
        LimitExceeded: the text exceeds one of the limits.
    """
    data = _json.bounded(buffer, limits)
    try:
        text = _json.read(_decode, data, limits)
    except DecodeError as error:
        if error.path != "$.method":
            raise
        unknown = _json.read(_decode_unknown, data, limits)
        return UnknownMessage(unknown.method, **asdict(unknown.headers or _Headers()))
    kind, get = _MADE[type(text)]
    headers = text.headers or _Headers()
    try:
        values = _description(text.body) if kind is EnvDescribe else get(text.body)
        if kind is EnvObservation:
            values = (_observation(values[0]),)
        return kind(
            *values,
            sent_at=headers.sent_at,
            message_id=headers.message_id,
            episode_id=headers.episode_id,
            parent_message_id=headers.parent_message_id,
            parent_runtime=headers.parent_runtime,
        )
    except UnicodeDecodeError:  # in a msgspec.Raw
        return _json.read(_generic, data, limits)  # raises it, with the offset
    except TypeError as error:
        raise DecodeError(f"{kind.method}: {error}", path="$.body.action") from None


def _description(raw: msgspec.Raw) -> tuple[Any, ...]:
    try:
        body = _decode_description(raw)
        about = _generic(raw)
    except msgspec.ValidationError as error:
        raise _json.misfit(error, path="$.body") from None
    for name in ("env_id", "env_state", "fps"):
        about.pop(name, None)
    return body.env_id, body.env_state, body.fps, about


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


def encode(
    message: RewarderMessage,
    *,
    sent_at: float | None = None,
    message_id: int | str | None = None,
    limits: Limits = DEFAULT,
) -> bytes:
    """Return a message as JSON, in UTF-8.

    Args:
        message: of a method of the document.
        sent_at: replaces the message's own.
        message_id: replaces the message's own.
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
    text, body, get = _WIRE[type(message)]
    value: Any = body(*get(message))
    if isinstance(message, EnvDescribe):
        value = asdict(value) | dict(message.about)
        if message.fps is None:
            del value["fps"]
    try:
        return _json.encode(text(headers=headers, body=value), limits)
    except EncodeError as error:
        raise EncodeError(f"{message.method}: {error.reason}", path=error.path) from None

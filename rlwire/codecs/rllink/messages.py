"""RLlink's messages, and a `Codec` for their two forms, which differ in a body's first byte.

The token in `Ping` is rlwire's own, which Ray ignores. The pickle in Ray's `SetConfig` stays bytes.
"""

from __future__ import annotations

import base64
import binascii
import functools
import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from rlwire.codecs import msgpack
from rlwire.codecs.rllink.episodes import Episode
from rlwire.codecs.rllink.frames import FRAME_MAXIMUM, HEAD, FrameEncoder, frame_size, framed
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, optional, quoted
from rlwire.limits import Limits, checked

__all__ = [
    "FRAME_MAXIMUM",
    "Codec",
    "Episodes",
    "EpisodesAndGetState",
    "Form",
    "GetConfig",
    "GetState",
    "Message",
    "Ping",
    "Pong",
    "Refused",
    "SetConfig",
    "SetState",
    "frame_size",
]

Form: TypeAlias = Literal["msgpack", "json"]
Buffer: TypeAlias = bytes | bytearray | memoryview

_OWN = "rlwire"  # the field for rlwire's own entries


class _Fields:
    """The fields of a body, without its type."""

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        return {}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> Any:
        return cls()


@dataclass(frozen=True)
class Ping(_Fields):
    """The first message of a client.

    Attributes:
        token: for a server of rlwire's that requires one.
        rlwire: whether the client is rlwire's, which can leave out empty infos.
    """

    token: str | None = None
    rlwire: bool = False

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        own = {} if self.token is None else {"token": self.token}
        return {_OWN: own} if own or (self.rlwire and form == "msgpack") else {}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> Ping:
        own = fields.get(_OWN)
        token = own.get("token") if type(own) is dict else None
        return cls(token if isinstance(token, str) else None, _OWN in fields)


@dataclass(frozen=True)
class Pong(_Fields):
    """The reply to `Ping`.

    Attributes:
        rlwire: whether the server is rlwire's, which needs no empty infos; Ray's does.
    """

    rlwire: bool = False

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        return {_OWN: {}} if self.rlwire and form == "msgpack" else {}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> Pong:
        return cls(_OWN in fields)


@dataclass(frozen=True)
class GetConfig(_Fields):
    """Requests a `SetConfig`."""


@dataclass(frozen=True)
class GetState(_Fields):
    """Requests a `SetState`."""


@dataclass(eq=False)
class Episodes(_Fields):
    """Sends episodes. There is no reply.

    Attributes:
        episodes: maps that `rlwire.codecs.rllink.Episode` reads and makes; to send, also Episodes.
        timesteps: steps of all episodes, ``env_steps`` in JSON; None: those of `Episode` objects.
        weights_seq_no: version of the weights that chose the actions.
    """

    episodes: list[Any]
    timesteps: int | None = None
    weights_seq_no: int | None = None

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        json, episodes, steps = form == "json", list(self.episodes), self.timesteps
        for index, one in enumerate(episodes):
            if isinstance(one, Episode):
                episodes[index] = one.to_document() if json else one.to_state(brief=brief)
        if steps is None and all(isinstance(one, Episode) for one in self.episodes):
            steps = sum(map(len, self.episodes))
        fields: dict[str, Any] = {"episodes": episodes}
        if steps is not None:
            # Ray's name, and the documented one.
            fields["timesteps" if form == "msgpack" else "env_steps"] = steps
        if self.weights_seq_no is not None:
            fields["weights_seq_no"] = self.weights_seq_no
        return fields

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> Any:
        episodes = fields.get("episodes")
        if isinstance(episodes, np.ndarray) and not episodes.size:  # JSON's empty list
            episodes = []
        if not isinstance(episodes, list):
            raise DecodeError(
                f"episodes must be a list, not a {type(episodes).__name__}", path="$.episodes"
            )
        steps = _count(fields, "timesteps" if "timesteps" in fields else "env_steps")
        number = _count(fields, "weights_seq_no")
        return cls(episodes, steps, number)


@dataclass(eq=False)
class EpisodesAndGetState(Episodes):
    """Sends episodes. The reply is a `SetState`, after the trainer has learned from them."""


@dataclass(frozen=True)
class SetConfig(_Fields):
    """The reply to `GetConfig`.

    Attributes:
        env_steps_per_sample: steps per message with episodes.
        force_on_policy: whether clients wait for new weights before they continue.
        config: RLlib's own configuration, pickled by Ray. rlwire never unpickles it.
    """

    env_steps_per_sample: int | None = None
    force_on_policy: bool | None = None
    config: bytes | None = None

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        if self.config is not None and form == "json":
            raise EncodeError("RLlink in JSON has no field for RLlib's config", path="$.config")
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> SetConfig:
        steps = _count(fields, "env_steps_per_sample", 1)
        on_policy = _typed(fields, "force_on_policy", bool, "true or false")
        return cls(steps, on_policy, _typed(fields, "config", bytes, "bytes"))


@dataclass(frozen=True, eq=False)
class SetState(_Fields):
    """Sends weights.

    Attributes:
        weights_seq_no: version of the weights, increasing; 0 if the server does not count.
        state: maps of arrays, as in RLlib's modules (Ray's form).
        onnx: an ONNX file, uncompressed (the documented form).
        mlir: an MLIR file (the documented form).
    """

    weights_seq_no: int = 0
    state: dict[str, Any] | None = None
    onnx: bytes | None = None
    mlir: bytes | None = None

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.state is None:
            fields["weights_seq_no"] = self.weights_seq_no
        elif form == "json":
            raise EncodeError("RLlink in JSON has ONNX and MLIR files, not states", path="$.state")
        else:
            fields["state"] = {**self.state, "weights_seq_no": self.weights_seq_no}
        if self.onnx is not None or self.mlir is not None:
            fields.update(self._files)
        return fields

    @functools.cached_property
    def _files(self) -> dict[str, str]:
        """The files as text, made once for all clients."""
        files = {}
        if self.onnx is not None:
            # mtime=0: the same file gives the same text.
            files["onnx_file"] = base64.b64encode(gzip.compress(self.onnx, mtime=0)).decode()
        if self.mlir is not None:
            files["mlir_file"] = base64.b64encode(self.mlir).decode()
        return files

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> SetState:
        state = _typed(fields, "state", dict, "a map")
        if state is None:
            number = _count(fields, "weights_seq_no") or 0
        else:
            number = _count(state, "weights_seq_no", 0, "$.state") or 0
            state.pop("weights_seq_no", None)
        onnx = _file(fields, "onnx_file")
        if onnx is not None:
            onnx = _gunzip(onnx, limits)
        return cls(number, state, onnx, _file(fields, "mlir_file"))


@dataclass(frozen=True)
class Refused(_Fields):
    """The reason for which an rlwire server closes the connection; the protocol has no other."""

    message: str

    def _to_fields(self, form: Form, brief: bool) -> dict[str, Any]:
        return {"message": self.message}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], limits: Limits) -> Refused:
        return cls(quoted(fields.get("message"), 500))


Message: TypeAlias = Ping | GetConfig | GetState | Episodes | Pong | SetConfig | SetState | Refused


class Codec:
    """Encodes messages to frames and decodes them. Stateless.

    Args:
        limits: for both directions; ``received`` applies to whole received bodies.
        copy: how to decode arrays; None for views of the frame if they are aligned in it.
    """

    def __init__(self, *, limits: Limits | None = None, copy: bool | None = None) -> None:
        self.limits = limits = checked(limits)
        self._pack = FrameEncoder(limits=limits)
        self._unpack = msgpack.Decoder(arrays="bytes", copy=copy, limits=limits)

    def encode_parts(
        self, message: Message, form: Form = "msgpack", brief: bool = False
    ) -> list[Any]:
        """Return the buffers of a frame, with large arrays by reference.

        `brief` is as in `rlwire.codecs.rllink.Episode.to_state`.

        Raises:
            TypeError: not a message, or an unknown form.
            EncodeError: a value cannot be sent.
            LimitExceeded: the frame exceeds the limits, or the maximum of eight digits.
        """
        name = NAMES.get(type(message))
        if name is None:
            raise TypeError(f"{type(message).__name__} is not an RLlink message")
        if brief and form == "msgpack" and isinstance(message, Episodes):
            parts = self._pack.episodes_parts(name, message, Episode)
            if parts is not None:
                return parts
        body = {"type": name, **message._to_fields(form, brief)}
        if form == "msgpack":
            return self._pack.encode_parts(body)
        if form != "json":
            raise TypeError(f"form must be 'msgpack' or 'json', not {form!r}")
        return [framed(self._json(message, body))]

    def encode(self, message: Message, form: Form = "msgpack") -> bytes:
        """Return a whole frame. Raises what `encode_parts` raises."""
        return b"".join(self.encode_parts(message, form))

    def _json(self, message: Message, body: dict[str, Any]) -> bytes:
        if type(message) in _SMALL and {type(value) for value in body.values()} <= _PLAIN:
            # Byte for byte as documented and as Ray sends them: a client may read a fixed number.
            return json.dumps(body).encode()
        text: bytes = _msgspec().encode(body, self.limits)
        return text

    def decode(self, frame: Buffer) -> Message:
        """Return the message in a whole frame. Raises what `open` raises."""
        return self.read(*self.open(memoryview(frame)[HEAD:]))

    def open(self, body: Buffer) -> tuple[type[Any], dict[str, Any]]:
        """Return the class of the message in a frame's body, and its fields for `read`.

        Raises:
            DecodeError: the bytes are not an RLlink message; the error has the offset or path.
            LimitExceeded: the message exceeds one of the limits.
        """
        try:
            if len(body) and body[0] == 0x7B:
                text = _msgspec()
                fields = text.arrays_of(text.decode(body, self.limits))
            else:
                fields = self._unpack.decode(body)
        except DecodeError as error:
            raise DecodeError(error.reason, offset=error.offset + HEAD, path=error.path) from None
        if type(fields) is not dict:
            raise DecodeError(f"a body must be a map, not a {type(fields).__name__}", offset=HEAD)
        name = fields.pop("type", None)
        message = _CLASSES.get(name) if isinstance(name, str) else None
        if message is None:
            what = "no type" if name is None else f"the type {quoted(name)}"
            raise DecodeError(
                f"a message has {what}, expected one of {', '.join(_CLASSES)}", path="$.type"
            )
        return message, fields

    def read(self, kind: type[Any], fields: dict[str, Any]) -> Message:
        """Return a message of this class, with its files unpacked."""
        message: Message = kind._from_fields(fields, self.limits)
        return message


def _msgspec() -> Any:
    with optional("msgspec", "gym"):
        from rlwire.codecs import _json
    return _json


NAMES: Final = {
    Ping: "PING",
    Pong: "PONG",
    GetConfig: "GET_CONFIG",
    GetState: "GET_STATE",
    Episodes: "EPISODES",
    EpisodesAndGetState: "EPISODES_AND_GET_STATE",
    SetConfig: "SET_CONFIG",
    SetState: "SET_STATE",
    Refused: "ERROR",
}
_CLASSES: Final = {name: kind for kind, name in NAMES.items()}
_SMALL: Final = frozenset({Refused, Ping, Pong, GetConfig, GetState, SetConfig})
_PLAIN: Final = frozenset({str, int, bool})


def _count(fields: dict[str, Any], name: str, least: int = 0, path: str = "$") -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DecodeError(
            f"{name} must be an integer >= {least}, not {quoted(value)}", path=f"{path}.{name}"
        )
    return value


def _typed(fields: dict[str, Any], name: str, kind: type, wanted: str) -> Any:
    value = fields.get(name)
    if value is not None and type(value) is not kind:
        raise DecodeError(f"{name} must be {wanted}, not {quoted(value)}", path=f"$.{name}")
    return value


def _file(fields: dict[str, Any], name: str) -> bytes | None:
    text = fields.get(name)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise DecodeError(f"{name} is not base64: {quoted(text)}", path=f"$.{name}") from None


def _gunzip(data: bytes, limits: Limits) -> bytes:
    engine = zlib.decompressobj(wbits=31)  # with gzip's header and checksum
    try:
        plain = engine.decompress(data, limits.expanded)
        if engine.unconsumed_tail:
            raise LimitExceeded(
                "expanded", limits.expanded, limits.expanded + 1, path="$.onnx_file"
            )
    except zlib.error:
        raise DecodeError("onnx_file is not gzip", path="$.onnx_file") from None
    if not engine.eof:
        raise DecodeError("onnx_file is truncated", path="$.onnx_file")
    return plain

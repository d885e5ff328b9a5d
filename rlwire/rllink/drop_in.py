"""The drop-in for RLlib's RLlink functions: `rlwire.install("rllib")`.

Ray's `send_rllink_message` and `get_rllink_message` then use rlwire's codec, in every RLlib module
that has imported them. The bytes are the same. Values that the codec cannot encode go to Ray's own
function. Received object arrays, which Ray would unpickle, and lengths other than eight digits are
rejected.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from rlwire.codecs import msgpack
from rlwire.codecs.rllink.frames import FRAME_MAXIMUM, HEAD, frame_size
from rlwire.errors import RlwireError
from rlwire.transports.sockets import receive_exactly

_NAMES = ("send_rllink_message", "get_rllink_message")


def replace() -> contextlib.ExitStack:
    from ray.rllib.env.external import rllink

    for name in (*_NAMES, "RLlink"):
        if not callable(getattr(rllink, name, None)):
            raise RuntimeError(
                f"this RLlib has no {rllink.__name__}.{name}: rlwire's drop-in is made for Ray 2.60"
            )
    send, get = (getattr(rllink, name) for name in _NAMES)
    replaced = {send: _sender(send), get: _receiver(rllink.RLlink)}
    undo = contextlib.ExitStack()
    undo.callback(_swap, {ours: theirs for theirs, ours in replaced.items()})
    _swap(replaced)
    return undo


def _swap(functions: dict[Any, Any]) -> None:
    """Replace functions in all loaded RLlib modules."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("ray.rllib") and module is not None:
            for name in _NAMES:
                if (found := vars(module).get(name)) in functions:
                    setattr(module, name, functions[found])


def _sender(original: Callable[..., Any]) -> Callable[..., None]:
    encode = msgpack.Encoder(arrays="msgpack_numpy").encode_parts

    def send_rllink_message(sock_: Any, message: dict[str, Any]) -> None:
        """Send a message; errors as in Ray's function."""
        try:
            parts = encode(message)
            size = sum(map(len, parts))
            if HEAD + size > FRAME_MAXIMUM:
                raise ConnectionError(
                    f"Error sending message: its body has {size} bytes, RLlink's limit is "
                    f"{FRAME_MAXIMUM - HEAD}"
                )
        except RlwireError:
            original(sock_, message)
            return
        try:
            sock_.sendall(b"".join((b"%08d" % size, *parts)))
        except Exception as error:
            raise ConnectionError(
                f"Error sending message to server on socket {sock_}! Original error was: {error}"
            ) from error

    return send_rllink_message


def _receiver(kinds: Any) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    decode = msgpack.Decoder(arrays="bytes", copy=None).decode
    types = {kind.name: kind for kind in kinds}

    def get_rllink_message(sock_: Any) -> tuple[Any, dict[str, Any]]:
        """Receive a message; errors as in Ray's function."""
        try:
            head = receive_exactly(sock_, HEAD)
            message = decode(receive_exactly(sock_, frame_size(head, 0, HEAD) - HEAD))
            kind = message.pop("type", None)
            if kind is None:
                raise ConnectionError(
                    "Protocol Error! Message from peer does not contain `type` field."
                )
            return types.get(kind) or kinds(kind), message
        except Exception as error:
            raise ConnectionError(
                f"Error receiving message from peer on socket {sock_}! Original error was: {error}"
            ) from error

    return get_rllink_message

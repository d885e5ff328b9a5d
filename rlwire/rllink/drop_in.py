"""RLlib's own functions for RLlink, replaced: `rlwire.install("rllib")`.

`send_rllink_message` and `get_rllink_message` of Ray then use rlwire's codec, in every module of
RLlib's that has imported them. The bytes are the same. Ray's own function gets what the codec
rejects. Arrays of objects, which Ray's function would unpickle, and lengths other than eight digits
are rejected.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from rlwire.codecs import msgpack
from rlwire.codecs.rllink.messages import FRAME_MAXIMUM, HEAD, frame_size
from rlwire.errors import RlwireError

logger = logging.getLogger(__name__)

_NAMES = ("send_rllink_message", "get_rllink_message")
_ROOM = "ray.rllib"

_originals: dict[str, Any] = {}
_replaced: dict[str, Any] = {}


def install() -> None:
    """Replace RLlib's functions; again does nothing.

    Raises:
        ImportError: Ray with RLlib is not installed.
        RuntimeError: this version of it has other functions than 2.60.
    """
    if _originals:
        return
    from ray.rllib.env.external import rllink

    for name in (*_NAMES, "RLlink"):
        if not callable(getattr(rllink, name, None)):
            raise RuntimeError(
                f"this RLlib has no {rllink.__name__}.{name}: rlwire's drop-in is made for Ray 2.60"
            )
    _originals.update({name: getattr(rllink, name) for name in _NAMES})
    _replaced["send_rllink_message"] = _sender(_originals["send_rllink_message"])
    _replaced["get_rllink_message"] = _receiver(rllink.RLlink)
    _swap(_originals, _replaced)
    logger.debug("rllib sends and receives RLlink with rlwire now")


def uninstall() -> None:
    """Restore RLlib's own functions; does nothing if `install` was not called."""
    if _originals:
        _swap(_replaced, _originals)
        _originals.clear()
        _replaced.clear()


def _swap(given: dict[str, Any], taken: dict[str, Any]) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_ROOM) and module is not None:
            for name in _NAMES:
                if vars(module).get(name) is given[name]:
                    setattr(module, name, taken[name])


def _sender(original: Callable[..., Any]) -> Callable[..., None]:
    encode = msgpack.Encoder(arrays="msgpack_numpy").encode_parts

    def send_rllink_message(sock_: Any, message: dict[str, Any]) -> None:
        """Send a message; errors as Ray's function."""
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
        """Receive a message; errors as Ray's function."""
        try:
            head = _received(sock_, HEAD)
            message = decode(_received(sock_, frame_size(head, 0, HEAD) - HEAD))
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


def _received(sock: Any, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise ConnectionError(f"No data received from socket {sock}!")
        view = view[count:]
    return data

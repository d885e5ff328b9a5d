"""Gymnasium's infos as MessagePack with arrays, if client and server are both rlwire's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rlwire.codecs import msgpack
from rlwire.errors import EncodeError, quoted

logger = logging.getLogger(__name__)


def encode_info(info: Mapping[str, Any], told: set[str]) -> bytes:
    """Encode an info; entries that `sendable` drops are missing."""
    try:
        return msgpack.encode(info)
    except EncodeError:
        return msgpack.encode(sendable(info, told))


def sendable(info: Mapping[str, Any], told: set[str]) -> dict[str, Any]:
    """Drop entries that MessagePack cannot carry, with a warning unless their key is in `told`."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        if value is ...:
            found[key] = None
        elif isinstance(value, Mapping):
            found[key] = sendable(value, told)
        else:
            try:
                msgpack.encode({key: value})
            except EncodeError as error:
                if key not in told:
                    told.add(key)
                    logger.warning("info %s is not sent: %s", quoted(key), error)
            else:
                found[key] = value
    return found

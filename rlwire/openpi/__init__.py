"""openpi's remote policies: server, client, and openpi-client's functions with rlwire's codec.

The peer may be openpi's own server or client. Programs that use openpi-client call
``rlwire.install("openpi_client")``. `rlwire.msgpack_numpy` describes the functions.
"""

from __future__ import annotations

import functools

from rlwire import msgpack_numpy
from rlwire.msgpack_numpy import Unpacker, unpackb
from rlwire.openpi.client import AsyncClient, Client
from rlwire.openpi.options import api_key_check
from rlwire.openpi.server import Server

__all__ = [
    "AsyncClient",
    "Client",
    "Packer",
    "Server",
    "Unpacker",
    "api_key_check",
    "pack_array",
    "packb",
    "unpack_array",
    "unpackb",
]

Packer = functools.partial(msgpack_numpy.Packer, dialect="openpi")
packb = msgpack_numpy.packs("openpi", Packer)
pack_array = functools.partial(msgpack_numpy.encode, dialect="openpi")
unpack_array = msgpack_numpy.decode

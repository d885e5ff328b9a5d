"""openpi's remote policies: a server, a client, and openpi-client's functions over rlwire's codec.

| openpi | here |
|---|---|
| `openpi_client.msgpack_numpy` | `packb`, `unpackb`, `Packer`, `Unpacker`, and its two hooks |
| `openpi_client.websocket_client_policy` | `PolicyClient`, `AsyncPolicyClient` |
| `openpi.serving.websocket_policy_server` | `PolicyServer` |

Either end may be openpi's own. A program that uses openpi-client as it is calls
``rlwire.install("openpi_client")``. `rlwire.adapters.msgpack_numpy` describes the functions.
"""

from __future__ import annotations

import functools

from rlwire.adapters import msgpack_numpy
from rlwire.adapters.msgpack_numpy import Unpacker, unpackb
from rlwire.adapters.openpi.client import AsyncPolicyClient, PolicyClient
from rlwire.adapters.openpi.server import PolicyServer, PolicyStatistics, api_key_check

__all__ = [
    "AsyncPolicyClient",
    "Packer",
    "PolicyClient",
    "PolicyServer",
    "PolicyStatistics",
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

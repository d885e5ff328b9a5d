"""openpi's remote policies: a server, a client, and openpi-client's functions over rlwire's codec.

| openpi | here |
|---|---|
| `openpi_client.msgpack_numpy` | `packb`, `unpackb`, `Packer`, `Unpacker`, and its two hooks |
| `openpi_client.websocket_client_policy` | `PolicyClient`, `AsyncPolicyClient` |
| `openpi.serving.websocket_policy_server` | `PolicyServer` |

Either end may be openpi's own. A program that uses openpi-client as it is calls
``rlwire.install("openpi_client")``, and its messages are packed by rlwire's codec. All arrays that
`unpackb` returns are read-only, as with the original: large ones may be views of the message. All
of an `Unpacker` are writable. Neither openpi-client nor msgpack need be installed.
"""

from __future__ import annotations

from rlwire.adapters.openpi.client import AsyncPolicyClient, PolicyClient
from rlwire.adapters.openpi.functions import Packer, Unpacker, packb, unpackb
from rlwire.adapters.openpi.packing import pack_array, unpack_array
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

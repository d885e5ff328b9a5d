"""Screens somewhere else, over RFB, the protocol of VNC, and screens shown to others.

`client` holds one (`RfbClient`, `AsyncRfbClient`), `screens` many in one process (`Screens`),
`server` shows one to any viewer (`Display`, `RfbServer`).
"""

from rlwire.adapters.rfb.client import AsyncRfbClient, RfbClient
from rlwire.adapters.rfb.screens import Screen, Screens
from rlwire.adapters.rfb.server import Display, RfbServer, Viewer

__all__ = [
    "AsyncRfbClient",
    "Display",
    "RfbClient",
    "RfbServer",
    "Screen",
    "Screens",
    "Viewer",
]

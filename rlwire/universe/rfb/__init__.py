"""Screens somewhere else, over RFB, the protocol of VNC, and screens shown to others.

`client` holds one (`RfbClient`, `AsyncRfbClient`), `screens` many in one process (`Screens`),
`server` shows one to any viewer (`Display`, `RfbServer`).
"""

from rlwire.universe.rfb.client import AsyncRfbClient, RfbClient
from rlwire.universe.rfb.screens import Screen, Screens
from rlwire.universe.rfb.server import Display, RfbServer, Viewer

__all__ = [
    "AsyncRfbClient",
    "Display",
    "RfbClient",
    "RfbServer",
    "Screen",
    "Screens",
    "Viewer",
]

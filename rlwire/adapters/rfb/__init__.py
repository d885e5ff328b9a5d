"""Screens somewhere else, over RFB, the protocol of VNC.

`RfbClient` and `AsyncRfbClient` hold one, `Screens` many.
"""

from rlwire.adapters.rfb.client import AsyncRfbClient, RfbClient
from rlwire.adapters.rfb.screens import Screen, Screens

__all__ = ["AsyncRfbClient", "RfbClient", "Screen", "Screens"]

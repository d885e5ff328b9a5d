"""The pixels of a remote over RFB, the protocol of VNC: viewers, and a server for any viewer."""

from rlwire.universe.rfb.client import AsyncRfbClient, RfbClient
from rlwire.universe.rfb.server import Display, RfbServer, Viewer

__all__ = ["AsyncRfbClient", "Display", "RfbClient", "RfbServer", "Viewer"]

"""RFB, the protocol of VNC: clients, and a server for any viewer."""

from rlwire.universe.rfb.client import RfbClient
from rlwire.universe.rfb.server import Display, RfbServer, Viewer

__all__ = ["Display", "RfbClient", "RfbServer", "Viewer"]

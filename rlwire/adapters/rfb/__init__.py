"""Screens somewhere else, over RFB, the protocol of VNC: `server` shows one to any viewer."""

from rlwire.adapters.rfb.server import Display, RfbServer, Viewer

__all__ = ["Display", "RfbServer", "Viewer"]

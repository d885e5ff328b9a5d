"""RFB, the protocol of VNC, for users: a display that viewers watch and play on (`server`)."""

"""Compiled encoders and decoders: no sockets, clocks, threads or state between messages."""

"""Servers of all protocols, above the transports."""

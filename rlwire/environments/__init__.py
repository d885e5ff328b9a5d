"""Environments of any kind, driven in one way: one, or many side by side.

Not here: bytes, peers, and what a protocol makes of a space.
"""

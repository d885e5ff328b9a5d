"""Bytes to values and back, compiled.

No socket, clock, thread, role, or memory of the last message.
"""

"""Algorithms that come with rlwire: agents and parameter servers that are there to be copied.

An algorithm is a folder with `agent.py` and `parameter_server.py`, as `rlwire serve algorithm:NAME`
takes it. What an algorithm stands on is in `rlwire.relaax`.
"""

"""`rlwire bench`: the time of a step on this machine, per protocol and payload.

An environment in another process replays recorded observations, and the client compares them. A
relay counts the bytes of a step. Steps are timed in turn with raw socket exchanges of as many
bytes, which carry the same observations in the same order.
"""

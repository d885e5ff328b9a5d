"""OpenAI Universe: the rewarder and the pixels of one environment, joined.

Not here: either connection by itself (`rlwire.adapters.rewarder`, `rlwire.adapters.rfb`).
"""

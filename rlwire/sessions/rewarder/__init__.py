"""The rewarder: who may say what when.

`client` and `server` are the two sides, `rules` is what both follow, `steps` what becomes of
rewards, observations and texts until an agent asks for them.
"""

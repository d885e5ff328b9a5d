"""RLlib over rlwire's protocols; whatever is distributed is Ray's. Needs the extra ``rllib``.

`rllink` has the runner that simulators send episodes to, `runners` what all runners share,
`directory` where they listen. Nothing is imported here: Ray takes seconds.
"""

"""RLlib over rlwire's protocols; needs the extra ``rllib``.

`rllink` has a runner for simulators that send episodes, `serving` a server of RLlib's algorithms,
`directory` the URLs of runners. Import these modules themselves: importing Ray takes seconds.
"""

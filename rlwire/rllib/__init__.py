"""RLlib over rlwire's protocols; distribution is Ray's. Needs the extra ``rllib``.

`rllink` has the runner that simulators send episodes to, `serving` RLlib's algorithms behind a
server, `directory` the URLs of runners. Nothing is imported here: Ray takes seconds.
"""

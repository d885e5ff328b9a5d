"""PERLERT: who may say what when.

`client` is a player's side, `server` a server's, of which `lobby`, `registration` and `rollout` are
the parts. Time is passed in; datagrams may be lost, doubled and out of order.
"""

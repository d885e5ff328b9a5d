"""Moves buffers for any session: addresses, timeouts, TLS, sockets, worker processes.

Nothing here knows a protocol: what a transport asks of a session stands in
`rlwire.transports.interface`.
"""

"""Moves buffers for any session: addresses, timeouts, TLS, sockets, worker processes."""

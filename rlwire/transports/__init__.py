"""Moves buffers for any session: addresses, timeouts, TLS, sockets.

======================  ===========================  =============================================
carrier                 blocking                     asyncio
======================  ===========================  =============================================
TCP, TLS, unix socket,  `tcp`, `connection`,         `tcp_asyncio`, `connection_asyncio` (over a
shared memory           `server`                     `stream_asyncio`), `server_asyncio`
UDP                     `udp`                        `udp_asyncio`
WebSocket, gRPC         layers over TCP: `rlwire.sessions.websocket`, `rlwire.sessions.grpc`
======================  ===========================  =============================================

`socket_calls`, `shm_calls` and `udp_calls` are the compiled system calls.
"""

"""Opens the stream of a connected socket: plain, with TLS, or beside shared memory."""

from __future__ import annotations

import asyncio
import socket
import ssl

from rlwire.transports.shm import ShmSocket
from rlwire.transports.shm_asyncio import ShmStream
from rlwire.transports.socket_asyncio import SocketStream, StreamOwner
from rlwire.transports.tls_asyncio import TLSPipe, TLSStream
from rlwire.transports.waiter_asyncio import try_waiters


async def _share(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    owner: StreamOwner,
    server_side: bool,
    seconds: float | None,
) -> None:
    shared = ShmSocket(sock, server_side=server_side)
    try:
        await asyncio.wait_for(shared.handshake_on(loop), seconds)
        ShmStream(loop, shared, owner)
    except BaseException as error:
        shared.close()
        if isinstance(error, asyncio.TimeoutError):
            raise TimeoutError(f"no word on shared memory within connect={seconds} s") from None
        raise


async def open_stream(
    owner: StreamOwner,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    shm: bool = False,
    handshake_timeout: float | None = None,
) -> None:
    """Make the stream of a connected, non-blocking socket, and give it to its owner.

    The socket stays the caller's if this raises. `server_hostname` is None on a server.
    """
    loop = asyncio.get_running_loop()
    try:
        loop.remove_reader(sock.fileno())
    except NotImplementedError:
        raise NotImplementedError(
            f"{type(loop).__name__} has no add_reader, which rlwire's connections need; "
            "use a selector event loop or uvloop, on a POSIX system"
        ) from None
    await try_waiters()
    if shm:
        await _share(loop, sock, owner, server_hostname is None, handshake_timeout)
    elif tls is None:
        SocketStream(loop, sock, owner)
    else:
        pipe = TLSPipe(tls, server_hostname)
        try:
            await asyncio.wait_for(pipe.shake_hands(loop, sock), handshake_timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no TLS handshake within connect={handshake_timeout} s") from None
        TLSStream(loop, sock, owner, pipe)

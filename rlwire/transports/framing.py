"""The receive buffer of a byte stream, without any I/O: all stream transports share it.

Small messages pass through a small inbox. When the session says that a message is larger than
that, a block of its size is taken from an arena and the rest of the message is received straight
into it, so a large array is never copied after the kernel's own copy. The message after a large
one is expected to be like it and is received into a block from its first byte on.
"""

from __future__ import annotations

from rlwire.buffers import Arena
from rlwire.transports.interface import Buffer, StreamSession

__all__ = ["INBOX", "FrameReader"]

INBOX = 4096
"""Bytes of the inbox. A connection that never had a large message holds no more than this."""

_ALIGNMENT = 64  # a cache line, and the widest vector register
_LIKELY_MAX = 1024 * 1024  # a block that waits for a message that may never come is no larger


class FrameReader:
    """Collects the bytes of one stream and hands out one whole frame after another.

    Write received bytes into `writable`, report their number to `advance`, then call `frame`
    until it returns None.

    Args:
        session: asked where frames end (`frame_size`) and where their data lies (`data_offset`).
        arena: where large frames live; by default one of its own.

    Attributes:
        inbox: where small frames arrive; always the same object. A transport may receive a whole
            small frame here and not tell the reader, as long as `partial` is (0, 0) and
            `expecting` is false.
        expecting: whether the next frame is expected to be as large as the last one.
        direct: whether `writable` is the rest of one large frame, so that nothing else fits in.
    """

    __slots__ = (
        "_arena",
        "_block",
        "_data_offset",
        "_end",
        "_frame_size",
        "_have",
        "_likely",
        "_pad",
        "_small",
        "_start",
        "_store",
        "_view",
        "_want",
        "direct",
        "expecting",
        "inbox",
    )

    def __init__(self, session: StreamSession, arena: Arena | None = None) -> None:
        self._frame_size = session.frame_size
        self._data_offset = session.data_offset
        self._arena = Arena() if arena is None else arena
        self.inbox = bytearray(INBOX)
        self._small = memoryview(self.inbox)
        self._store, self._view = self.inbox, self._small  # a larger one, while that is needed
        self._start = self._end = 0  # the bytes in it that are not yet handed out
        self._block: memoryview | None = None  # the large frame that is being received
        self._have = 0  # bytes of it that are there
        self._want = 0  # size of the current frame; 0 while unknown
        self._likely = self._pad = 0  # size and place in its block of the last large frame
        self.expecting = False
        self.direct = False

    @property
    def partial(self) -> tuple[int, int]:
        """Bytes that wait here, and the size of the frame that they begin (0: not yet known)."""
        if self._block is not None and self._have:
            return self._have, self._want
        return self._end - self._start, self._want

    def writable(self) -> memoryview:
        """Return where the next bytes belong; it is never empty."""
        block = self._block
        if block is not None:
            if self._have < len(block):
                return block[self._have :]
            # Nobody has fetched it: what follows begins the next frame, in the inbox.
        elif self._end == 0 and self.expecting:
            block = self.like_last()
            self.adopt(block, 0)
            return block
        if self._end == len(self._store):
            self._make_room(1)
        return self._view[self._end :] if self._end else self._view

    def advance(self, count: int) -> None:
        """Take note that `count` bytes were written to the start of `writable`."""
        if self._block is not None and self._have < len(self._block):
            self._have += count
        else:
            self._end += count

    def frame(self) -> Buffer | None:
        """Return the next whole frame, which is then the caller's; None if bytes are missing.

        Raises:
            DecodeError, LimitExceeded: what the session says about the bytes. They stay, so the
                stream has no further frames.
        """
        block = self._block
        if block is not None and (self.direct or self._is_as_expected(block)):
            return None if self._have < self._want else self.take_block()
        start, end = self._start, self._end
        if start == end:
            return None
        size = self._want or self._frame_size(self._store, start, end)
        if not size:
            return None
        if end - start >= size:
            message = self._store[start : start + size]
            start += size
            if start == end:
                start = self._end = 0
                self._store, self._view = self.inbox, self._small
            self._start = start
            self._want = 0
            return message
        self._want = size
        if size > len(self._store):
            self.begin_block(start, end, size)
        return None

    def begin_block(self, start: int, end: int, size: int) -> None:
        """Move the first bytes of a frame of `size` bytes, larger than the inbox, to a block.

        `frame` does this by itself; a transport that knows the size saves a look at the frame.
        The frame stays in the inbox for now if a few more bytes may tell where its array lies.

        Args:
            start: where in the inbox the frame begins.
            end: where the bytes in the inbox end.
            size: what the session's `frame_size` said.
        """
        have = end - start
        offset = self._data_offset(self._store, start, end)
        if not offset and have < len(self._store):
            return
        self._pad = pad = -offset % _ALIGNMENT
        self._block = block = memoryview(self._arena.take(pad + size))[pad : pad + size]
        block[:have] = self._view[start:end]
        self._have, self._want = have, size
        self._start = self._end = 0
        self._store, self._view = self.inbox, self._small
        self.direct = True

    def like_last(self) -> memoryview:
        """Return a block for a frame as large as the last one, and leave it to the caller.

        If such a frame fills it, the reader need not be told.
        """
        pad, size = self._pad, self._likely
        return memoryview(self._arena.take(pad + size))[pad : pad + size]

    def adopt(self, block: memoryview, have: int) -> None:
        """Take a block from `like_last` back, with `have` bytes of whatever has come."""
        self._block, self._have = block, have

    def take_block(self) -> memoryview:
        """Return the frame in the block, all of which has been written, and forget it."""
        block = self._block
        assert block is not None
        self._likely = size = self._want
        self.expecting = size <= _LIKELY_MAX
        self.direct = False
        self._block = None
        self._want = 0
        return block

    def _is_as_expected(self, block: memoryview) -> bool:
        """Look at the first bytes that arrived in a block before their size was known."""
        have, expected = self._have, self._likely
        if not have:
            return False
        if self._frame_size(block, 0, have) == expected:
            self._want = expected
            self.direct = True
            return True
        # Another message: its bytes go the usual way, by the inbox, before what is there already.
        self._block = None
        self.expecting = False
        self._make_room(have)
        waiting = self._end
        self._view[have : have + waiting] = self._store[:waiting]
        self._view[:have] = block[:have]
        self._end = have + waiting
        return False

    def _make_room(self, count: int) -> None:
        """Make room for `count` bytes: move the waiting ones, or get a larger store for a while.

        The inbox is too small only when a transport delivers bytes while whole frames wait here
        (asyncio's TLS does, in spite of pause_reading), or when several small messages come where
        a large one was expected.
        """
        start, end = self._start, self._end
        waiting = end - start
        if waiting + count <= len(self._store):
            # By way of a copy: the two regions may overlap.
            self._view[:waiting] = self._store[start:end]
        else:
            store = bytearray(max(2 * len(self._store), waiting + count))
            store[:waiting] = self._view[start:end]
            self._store, self._view = store, memoryview(store)
        self._start, self._end = 0, waiting

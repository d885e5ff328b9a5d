"""`SharedClipboard`: what one end of an RFB connection says of its clipboard, and of the other's.

Both sides use it. Where both know the extended clipboard, a text is in UTF-8: it is sent at once if
it is short enough for the other, else told of and sent when it is wanted. Else it is a plain cut
text of Latin-1. What is due is only noted until the peer takes something, so a flood of requests
gets one answer. Not here: bytes (`rlwire.codecs.rfb.clipboard`).
"""

from __future__ import annotations

from typing import Final

from rlwire.codecs.rfb.clipboard import (
    ACTIONS,
    CAPS,
    NOTIFY,
    PEEK,
    PROVIDE,
    REQUEST,
    TEXT,
    ClientClipboard,
    Clipboard,
    ServerClipboard,
    plain_text,
)
from rlwire.codecs.rfb.messages import (
    ClientCutText,
    ClientMessage,
    ServerCutText,
    ServerMessage,
    encode,
)

__all__ = ["SharedClipboard"]

_BY_DEFAULT: Final = TEXT | REQUEST | NOTIFY | PROVIDE  # of who has not said what it understands,
_SIZE_BY_DEFAULT: Final = 20 << 20  # and bytes of text that it takes unasked
_PLAIN: Final = 1


class SharedClipboard:
    """One end's part in it.

    Args:
        says: what this end says, of a clipboard and as a plain cut text.
        most: bytes of a text that it takes.
    """

    def __init__(
        self,
        says: type[ClientClipboard] | type[ServerClipboard],
        plain: type[ClientCutText] | type[ServerCutText],
        most: int,
    ) -> None:
        self._says, self._plain, self._most = says, plain, most
        self._introduced = False
        self._theirs = self._size = 0  # what the other understands, and takes unasked
        self._text: str | None = None
        self._due = 0  # actions, or _PLAIN

    @property
    def extended(self) -> bool:
        """Whether the other end is told of texts in UTF-8."""
        return bool(self._theirs & (NOTIFY | PROVIDE) and self._theirs & TEXT)

    def introduce(self) -> None:
        """Say what this end understands, once; the other knows that there is such a thing."""
        if not self._introduced:
            self._introduced = True
            self._due |= CAPS
            if not self._theirs:
                self._theirs, self._size = _BY_DEFAULT, _SIZE_BY_DEFAULT

    def tell(self, text: str) -> None:
        """Have a text in the clipboard; of several the newest is told.

        Raises:
            EncodeError: it cannot be said to this peer.
        """
        if not self.extended:
            encode(self._plain(text))
            self._due |= _PLAIN
        elif len(plain_text(text)) <= self._size and self._theirs & PROVIDE:
            self._due |= PROVIDE
        else:
            self._due |= NOTIFY
        self._text = text

    def take(self, said: Clipboard) -> str | None:
        """Take what the other end says; returns its text, if that is in it."""
        flags = said.flags
        if flags & CAPS:
            self._theirs = flags
            self._size = said.sizes[0] if flags & TEXT else 0
            self.introduce()
            return None
        if flags & PEEK:
            self._due |= NOTIFY
        elif flags & TEXT and flags & NOTIFY and self._theirs & REQUEST:
            self._due |= REQUEST
        elif flags & TEXT and flags & REQUEST and self._text is not None:
            self._due |= PROVIDE
        return said.text

    def outgoing(self) -> list[bytes]:
        """Return what there is to say, and forget it."""
        due, self._due = self._due, 0
        if not due:
            return []
        text, says = self._text, self._says
        said: list[ClientMessage | ServerMessage] = []
        if due & CAPS:
            said.append(says(ACTIONS | TEXT, (self._most,)))
        if due & REQUEST:
            said.append(says(REQUEST | TEXT))
        if due & NOTIFY:
            said.append(says(NOTIFY if text is None else NOTIFY | TEXT))
        if due & PROVIDE:
            said.append(says(PROVIDE | TEXT, text=text))
        if due & _PLAIN and text is not None:
            said.append(self._plain(text))
        return [encode(one) for one in said]

"""What a recording has: connections, their packets, and the messages decoded from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

MESSAGES: Final = 2**18
"""Messages of a file that its size does not pay for."""


@dataclass(frozen=True)
class RecordedConnection:
    """A connection in a recording."""

    number: int  # 1, 2, ... in the order of the recording
    protocol: str  # a URL's scheme, or "rfb" for the pixels of Universe
    side: str  # the end that recorded it: "client", which connects, or "server"
    peer: str  # the other end's name


@dataclass(slots=True)
class Packet:
    """Bytes of one direction of a connection; of a datagram protocol, one datagram.

    A packet begins at the border of a frame, unless the recorder has dropped some before it.
    """

    connection: RecordedConnection
    from_client: bool
    time: float  # seconds since 1970
    monotonic: float  # seconds of the recorder's clock
    data: bytes
    gap: int = 0  # packets of this connection that the recorder has dropped before this one
    ended: str = ""  # why the connection ended; `data` is then empty
    paid: int = 0  # bytes of the file, or from the peer, read for it and those after it


@dataclass(slots=True)
class Budget:
    """What the connections of one file or tap may use together, beyond what `pay` adds.

    A recording of rlwire stays far below: LZ4 makes 255 bytes of one at most, and a packet has 10
    or more, beside its bytes.
    """

    messages: float = MESSAGES  # to be decoded
    pixels: float = 2**27  # to be painted, or written as images
    written: float = 2**26  # bytes of arrays in JSON

    def pay(self, size: int) -> None:
        self.messages += size / 2
        self.pixels += size * 4096
        self.written += size * 256


@dataclass(slots=True)
class EnvStep:
    """What a message means for one environment."""

    environment: str = ""  # tells apart those of one connection, such as an agent's name
    begins: bool = False  # an episode
    has_action: bool = False
    has_observation: bool = False
    reward: Any = None  # a number, or numbers that add up
    terminated: bool = False
    truncated: bool = False


@dataclass(slots=True)
class Dissected:
    """A decoded message."""

    kind: str  # the protocol's name of the message, such as "StepRequest" or "update"
    value: Any = None  # dicts with texts as keys, lists, ndarrays, numbers, texts, bytes
    size: int = 0  # bytes on the wire
    offset: int = 0  # of its first byte in this direction of the connection
    error: str = ""  # why it could not be decoded, offset and path; `kind` is then "damaged"
    request_key: Any = None  # that of its reply's `reply_key`, if the protocol has replies
    reply_key: Any = None
    steps: list[EnvStep] = field(default_factory=list)  # what it means for environments

    def paired(self, key: Any, is_request: bool) -> Dissected:
        """Make it the request with this key, or its reply."""
        self.request_key, self.reply_key = (key, None) if is_request else (None, key)
        return self

"""What a recording has: connections, their packets, and the messages decoded from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

UNKNOWN: Final = object()
"""A part of an `EnvStep` that a message does not have."""

MESSAGES: Final = 2**18
"""Messages of a file that its size does not pay for."""


@dataclass(frozen=True)
class RecordedConnection:
    """A connection in a recording.

    Attributes:
        number: 1, 2, ... in the order of the recording.
        protocol: its label: a URL's scheme, or "rfb" for the pixels of Universe.
        side: which end recorded it, "client" or "server" (the client connects).
        peer: the other end's name.
    """

    number: int
    protocol: str
    side: str
    peer: str


@dataclass(slots=True)
class Packet:
    """Bytes of one direction of a connection; of a datagram protocol, one datagram.

    A packet begins at the border of a frame, unless the recorder has dropped some before it.

    Attributes:
        from_client: whether the client sent them.
        time: seconds since 1970.
        monotonic: seconds of the recorder's monotonic clock.
        gap: packets of this connection that the recorder has dropped before this one.
        ended: why the connection ended; `data` is then empty.
        paid: bytes of the file, or from the peer, that were read for it and those after it.
    """

    connection: RecordedConnection
    from_client: bool
    time: float
    monotonic: float
    data: bytes
    gap: int = 0
    ended: str = ""
    paid: int = 0


@dataclass(slots=True)
class Budget:
    """What the connections of one file or tap may use together, beyond what `pay` adds.

    A recording of rlwire stays far below: LZ4 makes 255 bytes of one at most, and a packet has 10
    or more, beside its bytes.

    Attributes:
        messages: to be decoded.
        pixels: to be painted, or written as images.
        written: bytes of arrays in JSON.
    """

    messages: float = MESSAGES
    pixels: float = 2**27
    written: float = 2**26

    def pay(self, size: int) -> None:
        self.messages += size / 2
        self.pixels += size * 4096
        self.written += size * 256


@dataclass(slots=True)
class EnvStep:
    """What a message means for one environment; parts that it does not have are `UNKNOWN`.

    Attributes:
        environment: tells apart the environments of one connection, such as an agent's name.
        begins: whether it begins an episode: `observation` is then that of the reset.
        observation_space, action_space: spaces of Gymnasium, where the protocol sends them.
    """

    environment: str = ""
    begins: bool = False
    action: Any = UNKNOWN
    observation: Any = UNKNOWN
    reward: Any = UNKNOWN
    terminated: Any = UNKNOWN
    truncated: Any = UNKNOWN
    observation_space: Any = None
    action_space: Any = None


@dataclass(slots=True)
class Dissected:
    """A decoded message.

    Attributes:
        kind: the protocol's name of the message, such as "StepRequest" or "update".
        value: its content: dicts with texts as keys, lists, ndarrays, numbers, texts, bytes.
        size: its bytes on the wire.
        offset: of its first byte in this direction of the connection.
        error: why it could not be decoded, with offset and path; `kind` is then "damaged".
        request_key, reply_key: a request and its reply have the same, if the protocol has replies.
        steps: what it means for environments.
    """

    kind: str
    value: Any = None
    size: int = 0
    offset: int = 0
    error: str = ""
    request_key: Any = None
    reply_key: Any = None
    steps: list[EnvStep] = field(default_factory=list)

    def paired(self, key: Any, is_request: bool) -> Dissected:
        """Make it the request with this key, or its reply."""
        self.request_key, self.reply_key = (key, None) if is_request else (None, key)
        return self

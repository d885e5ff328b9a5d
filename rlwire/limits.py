"""Every maximum, with the reason for its default.

Nothing is unlimited by default. A codec takes a `Limits`; sessions hand theirs to the codec;
transports have limits of their own kind (times and connections), which live with them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT", "Limits", "checked"]


@dataclass(frozen=True)
class Limits:
    """Maxima that an encoder or decoder checks before it allocates.

    Attributes:
        message: bytes in one message, without its framing. 1,000,000,000 is RELAAX's own maximum;
            a codec works on memory the caller already holds, so there is no reason to be stricter.
        received: bytes in one message that a connection accepts from its peer. 64 MiB: a batch of
            several hundred Atari stacks fits, and a thousand hostile peers cannot take a server's
            memory with one length prefix each. Where `message` is smaller, that one counts.
        depth: lists and dictionaries inside each other. 64: deeper than any observation, and
            far from the C stack's end.
        items: list items and dictionary entries in one message, counted over all levels. 2**20:
            numbers in bulk travel as arrays. Each counts 256 bytes in `expanded`.
        dims: dimensions of one array. 32, which every NumPy can hold.
        string: bytes of one string. 16 MiB.
        pixels: width times height of one image. 2**26, a little under Pillow's own limit.
        expanded: bytes that decoding one message may make beyond the bytes of the message, all
            that it makes together and before any of it is made. Copies of its bytes are free; what
            is larger than its bytes counts in full: an element that stands for a whole array,
            short varints, numbers in text, strings padded to the longest or of wide characters,
            images with what reading them takes. A list item or dictionary entry counts 256 bytes,
            whatever it is: the most that a place in a dictionary, a key and a small object take
            (an entry of an empty array with a key of its own takes up to 320, of which the message
            pays some 30). 256 MiB: four times `received`, and what `items` come to.
        datagram: bytes in one UDP datagram. 1,200: what gets through every IPv6 network, and
            through tunnels, in one piece (RFC 9000, section 14, chooses the same). 65,507 is the
            most that UDP over IPv4 carries, in pieces of which not one may be lost.
        header: bytes of an HTTP head, its lines and the empty one. 8 KiB, as web servers take.
        unsent: bytes that may wait here because a peer's windows do not let them go, over HTTP/2.
            While more waits, no message is taken to be sent, and a server ends the call. 128 MiB:
            twice `received`, so that a message can be given while another is on its way.
        keys: keys of maps in one message that are numbers (dm_env_rpc's UIDs). 2**14: a peer can
            choose numbers that fall on each other in a dictionary, where n of them cost n**2 steps;
            so many cost a tenth of a second or two, 2**20 would cost minutes.
    """

    message: int = 1_000_000_000
    received: int = 64 * 1024 * 1024
    depth: int = 64
    items: int = 2**20
    dims: int = 32
    string: int = 16 * 1024 * 1024
    pixels: int = 2**26
    expanded: int = 256 * 1024 * 1024
    datagram: int = 1200
    header: int = 8192
    unsent: int = 128 * 1024 * 1024
    keys: int = 2**14

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"limit {name} must be a positive int, not {value!r}")
        # The kernels add small constants to sizes in 64-bit arithmetic and recurse per level.
        for name in ("message", "received"):
            if getattr(self, name) >= 2**60:
                raise ValueError(f"limit {name} must be below 2**60")
        if self.datagram > 65_507:
            raise ValueError("limit datagram must be at most 65507, the most that UDP carries")
        if self.depth > 500:
            raise ValueError("limit depth must be at most 500, the decoder recurses per level")
        if self.dims > 32:
            raise ValueError("limit dims must be at most 32")


DEFAULT = Limits()
"""The limits in force where none are given."""


def checked(limits: Limits | None) -> Limits:
    """Return the limits that are meant, `DEFAULT` for None.

    Raises:
        TypeError: these are no `Limits`.
    """
    if limits is None:
        return DEFAULT
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    return limits

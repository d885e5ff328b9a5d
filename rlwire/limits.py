"""Limits on messages. Timeouts and limits on connections are in `rlwire.transports`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT", "Limits", "checked"]


# UDP's over IPv4, of the kernels' recursion, and NumPy's.
MAXIMA = {"datagram": 65_507, "depth": 500, "dims": 32}


@dataclass(frozen=True)
class Limits:
    """Maxima that an encoder or decoder checks before it allocates.

    Attributes:
        message: bytes of one message, without its framing. 1,000,000,000 is RELAAX's own maximum.
        received: bytes of one message that a connection accepts; `message` applies if smaller.
            64 MiB hold several hundred Atari stacks, and a thousand hostile peers cannot exhaust a
            server's memory with length prefixes.
        depth: levels of nested lists and dictionaries. 64 is deeper than any observation.
        items: list items and dictionary entries of one message, on all levels. Send large data as
            arrays, not as lists.
        dims: dimensions of one array. 32 is NumPy's own limit.
        string: bytes of one string. 16 MiB.
        pixels: width times height of one image. 2**26 is just under Pillow's own limit.
        expanded: bytes that decoding one message may allocate beyond the message's size, checked
            before each allocation. Plain copies of the message's bytes do not count. Data that is
            larger in memory than on the wire counts in full: repeated elements, short varints,
            numbers in text, padded or wide strings, images. A list item or dictionary entry counts
            256 bytes, the most that a slot, a key and a small object need. 256 MiB is four times
            `received`, and 256 times `items`.
        datagram: bytes of one UDP datagram. 1,200 bytes pass every IPv6 network unfragmented
            (RFC 9000, section 14). 65,507 is UDP's maximum over IPv4, with fragmentation.
        header: bytes of an HTTP head. 8 KiB, as web servers accept.
        unsent: bytes queued while a peer's HTTP/2 flow-control window is full. Above it, a client's
            `send` raises and a server ends the call. 128 MiB is twice `received`.
        keys: integer keys of maps in one message (dm_env_rpc's UIDs). Keys chosen to collide cost
            n**2 steps: 0.1 to 0.2 s for 2**14.
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
            most = MAXIMA.get(name, 2**60 - 1)  # the kernels add small constants in 64 bits
            if value > most:
                raise ValueError(f"limit {name} must be at most {most}, not {value}")


DEFAULT = Limits()


def checked(limits: Limits | None) -> Limits:
    """Return `limits`, or `DEFAULT` for None; TypeError for anything else."""
    if limits is None:
        return DEFAULT
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    return limits

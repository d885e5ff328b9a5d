"""Limits on messages. Those on times and connections are the transports'."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT", "Limits", "checked"]


@dataclass(frozen=True)
class Limits:
    """Maxima that an encoder or decoder checks before it allocates.

    Attributes:
        message: bytes of one message, without its framing. 1,000,000,000 is RELAAX's own maximum.
        received: bytes of one message that a connection accepts. 64 MiB: several hundred Atari
            stacks; a thousand hostile peers cannot exhaust a server's memory with length prefixes.
            `message` counts where it is smaller.
        depth: nested lists and dictionaries. 64: deeper than any observation.
        items: list items and dictionary entries of one message, on all levels. 2**20: large arrays
            are not lists.
        dims: dimensions of one array. 32, NumPy's own limit.
        string: bytes of one string. 16 MiB.
        pixels: width times height of one image. 2**26, a little under Pillow's own limit.
        expanded: bytes that decoding one message may allocate beyond the message's own, checked
            before each allocation. Copies of the message's bytes are free. What is larger than its
            bytes counts in full: repeated elements, short varints, numbers in text, padded or wide
            strings, images. A list item or dictionary entry counts 256 bytes, the most that a slot,
            a key and a small object take. 256 MiB: four times `received`, and `items` times 256.
        datagram: bytes of one UDP datagram. 1,200 pass every IPv6 network in one piece (RFC 9000,
            section 14). 65,507 is UDP's maximum over IPv4, in fragments.
        header: bytes of an HTTP head. 8 KiB, as web servers accept.
        unsent: bytes queued for a peer's HTTP/2 windows. Above it, a client's `send` raises and a
            server ends the call. 128 MiB: twice `received`.
        keys: integer keys of maps in one message (dm_env_rpc's UIDs). 2**14: keys chosen to collide
            cost n**2 steps, a tenth of a second or two for so many.
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
        # The kernels add small constants in 64-bit arithmetic and recurse per level.
        for name in ("message", "received"):
            if getattr(self, name) >= 2**60:
                raise ValueError(f"limit {name} must be below 2**60")
        if self.datagram > 65_507:
            raise ValueError("limit datagram must be at most 65507, UDP's maximum")
        if self.depth > 500:
            raise ValueError("limit depth must be at most 500")
        if self.dims > 32:
            raise ValueError("limit dims must be at most 32")


DEFAULT = Limits()


def checked(limits: Limits | None) -> Limits:
    """Return `limits`, or `DEFAULT` for None; TypeError for anything else."""
    if limits is None:
        return DEFAULT
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    return limits

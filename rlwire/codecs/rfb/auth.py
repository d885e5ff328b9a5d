"""VNC authentication: the answer to a server's challenge, bytes to bytes.

DES with a key that is the password; it protects the password and nothing that follows.

Source: RFC 6143, section 7.2.2, and its erratum 4951: the bits of each byte of the key are
reversed.
"""

from __future__ import annotations

import warnings

from rlwire.codecs.rfb.handshake import CHALLENGE_SIZE
from rlwire.errors import EncodeError, optional

_KEY = 8
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check_password(password: str) -> bytes:
    """Return the bytes of a password that count, which are the first eight."""
    try:
        return password.encode("latin-1")[:_KEY]
    except UnicodeEncodeError:
        raise EncodeError("a password of VNC has characters of Latin-1 only") from None


def respond(challenge: bytes, password: str) -> bytes:
    """Return the 16 bytes that prove to know a password."""
    if len(challenge) != CHALLENGE_SIZE:
        raise EncodeError(f"a challenge has {CHALLENGE_SIZE} bytes, not {len(challenge)}")
    key = check_password(password).ljust(_KEY, b"\0").translate(_REVERSED)
    with optional("cryptography", "universe"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is old, which nobody knows better than VNC
        from cryptography.hazmat.primitives.ciphers import Cipher, modes

        try:
            from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
        except ImportError:  # before version 43
            from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES
        # Three times the same key is DES.
        cipher = Cipher(TripleDES(3 * key), modes.ECB()).encryptor()
    return cipher.update(bytes(challenge)) + cipher.finalize()

from __future__ import annotations

import builtins
from typing import Any

import pytest

from rlwire.codecs.rfb.handshake import respond
from rlwire.errors import EncodeError, MissingExtra

CHALLENGE = bytes(range(16))


def test_it_is_des_with_the_bits_of_the_key_reversed() -> None:
    # FIPS 81's example, its key with the bits of each byte reversed as text of Latin-1.
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in bytes.fromhex("0123456789abcdef"))
    plain = bytes.fromhex("4e6f772069732074") * 2
    assert respond(plain, key.decode("latin-1")) == bytes.fromhex("3fa40e8a984d4815") * 2


def test_eight_characters_count() -> None:
    assert respond(CHALLENGE, "12345678") == respond(CHALLENGE, "123456789")
    assert respond(CHALLENGE, "12345678") != respond(CHALLENGE, "1234567")
    assert respond(CHALLENGE, "") == respond(CHALLENGE, "\0" * 8)


def test_a_password_has_characters_of_latin1() -> None:
    with pytest.raises(EncodeError, match="Latin-1"):
        respond(CHALLENGE, "€")


def test_a_challenge_has_sixteen_bytes() -> None:
    with pytest.raises(EncodeError, match="16 bytes, not 3"):
        respond(b"abc", "secret")


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"rlwire\[universe\]"):
        respond(CHALLENGE, "secret")

"""Bytes changed by chance, as every codec's tests of bad input want them."""

__all__ = ["mutated"]

# Bytes at which formats change their mind: counts, types, tags, signs of more to come, separators.
ODD = bytes([*range(13), 18, 26, 122, 127, 128, 129, 144, 196, 221, 255, *b":;,=-+.e 019"])
NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)


def mutated(chance, data):
    """Return the bytes with one to four changes."""
    bent = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        at = chance.randrange(len(bent) + 1)
        match chance.randrange(7):
            case 0 if at < len(bent):
                bent[at] ^= 1 << chance.randrange(8)
            case 1:
                bent[at : at + 1] = bytes([chance.choice(ODD)])
            case 2:
                del bent[at : at + chance.choice([1, 2, 4, 8])]
            case 3:
                bent[at:at] = chance.randbytes(chance.choice([1, 2, 5]))
            case 4:
                bent[at:at] = bent[at : at + chance.randrange(30)]
            case 5:
                number = chance.choice([*NUMBERS, len(bent), len(bent) - at])
                bent[at : at + 4] = number.to_bytes(4, chance.choice(["little", "big"]))
            case _:
                del bent[at : at + chance.choice([1, 1, len(bent)])]
    return bytes(bent)

"""Protobuf's fields, written by hand."""


def varint(number):
    number %= 2**64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, content):
    """A field of bytes, or of one number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content

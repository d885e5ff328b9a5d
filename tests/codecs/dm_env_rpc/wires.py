"""Protobuf's fields, written by hand."""


def varint(number):
    number %= 2**64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data

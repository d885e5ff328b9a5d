"""RFB's pixel encodings once more, slow and plain, from the words of RFC 6143 and rfbproto.rst.

A `Writer` makes rectangles at random in the client's pixel format, and paints what they mean into
its screen. `show` reads a server's rectangles in any pixel format.
"""

import struct
import zlib

import numpy as np


def head(x, y, width, height, encoding):
    return struct.pack(">HHHHi", x, y, width, height, encoding)


def colour(value):
    """A CPIXEL or TPIXEL: red, green, blue."""
    return value.to_bytes(3, "little")


def pixel(value):
    return value.to_bytes(4, "little")


def show(form, data, count, screen):
    """Paint `count` Raw or Tight rectangles, which fill `data`; every stream begins anew."""
    size = form.bits_per_pixel // 8
    maxima = np.array([form.red_max, form.green_max, form.blue_max])
    shifts = np.array([form.red_shift, form.green_shift, form.blue_shift])
    rgb = size == 4 and form.depth == 24 and (maxima == 255).all()
    at = 0

    def take(length):
        nonlocal at
        at += length
        assert at <= len(data)
        return data[at - length : at]

    def pixels(count, tight, plain=None):
        if tight and rgb:
            found = take(3 * count) if plain is None else plain
            return np.frombuffer(found, np.uint8).reshape(count, 3)
        found = take(size * count) if plain is None else plain
        values = np.frombuffer(found, f"{'>' if form.big_endian else '<'}u{size}").astype(np.int64)
        return ((values[:, None] >> shifts & maxima) * 255 + maxima // 2) // maxima

    def packed(length):
        if length < 12:
            return take(length)
        have = shift = 0
        for last in (False, False, True):
            byte = take(1)[0]
            have |= (byte if last else byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return zlib.decompressobj().decompress(take(have))

    for _ in range(count):
        x, y, width, height, encoding = struct.unpack(">HHHHi", take(12))
        area = width * height
        if encoding == 0:
            seen = pixels(area, False)
        elif (control := take(1)[0]) == 0x80:
            seen = pixels(1, True).repeat(area, 0)
        else:
            assert encoding == 7
            assert control & 1 << (control >> 4 & 3)  # its stream begins anew
            if not control & 0x40:
                plain = packed(area * (3 if rgb else size))
                seen = pixels(area, True, plain)
            else:
                assert take(1) == b"\1"
                palette = pixels(take(1)[0] + 1, True)
                row = (width + 7) // 8 if len(palette) == 2 else width
                indices = np.frombuffer(packed(row * height), np.uint8).reshape(height, row)
                if len(palette) == 2:
                    indices = np.unpackbits(indices, axis=1)[:, :width]
                seen = palette[indices]
        screen[y : y + height, x : x + width] = seen.reshape(height, width, 3)
    assert at == len(data)


class Writer:
    """Writes rectangles for one connection at random, and paints what they mean."""

    def __init__(self, screen, chance):
        self.screen, self.chance = screen, chance
        self.zrle_stream = zlib.compressobj()
        self.tight_streams = [zlib.compressobj() for _ in range(4)]

    def value(self):
        return self.chance.getrandbits(24)

    def place(self):
        height, width = self.screen.shape[:2]
        x, y = self.chance.randrange(width), self.chance.randrange(height)
        return x, y, self.chance.randint(1, width - x), self.chance.randint(1, height - y)

    def put(self, x, y, values):
        for j, row in enumerate(values):
            for i, value in enumerate(row):
                self.screen[y + j, x + i] = list(colour(value))

    def values(self, width, height, palette=None):
        pick = (lambda: self.chance.choice(palette)) if palette else self.value
        return [[pick() for _ in range(width)] for _ in range(height)]

    def raw(self):
        x, y, width, height = self.place()
        values = self.values(width, height)
        self.put(x, y, values)
        return head(x, y, width, height, 0) + b"".join(pixel(one) for row in values for one in row)

    def copy_rect(self):
        x, y, width, height = self.place()
        from_x = self.chance.randint(0, self.screen.shape[1] - width)
        from_y = self.chance.randint(0, self.screen.shape[0] - height)
        part = self.screen[from_y : from_y + height, from_x : from_x + width].copy()
        self.screen[y : y + height, x : x + width] = part
        return head(x, y, width, height, 1) + struct.pack(">HH", from_x, from_y)

    def rre(self):
        x, y, width, height = self.place()
        back = self.value()
        self.put(x, y, [[back] * width] * height)
        parts = [pixel(back)]
        count = self.chance.randint(0, 9)
        for _ in range(count):
            value = self.value()
            left, top = self.chance.randrange(width), self.chance.randrange(height)
            wide, high = self.chance.randint(0, width - left), self.chance.randint(0, height - top)
            self.put(x + left, y + top, [[value] * wide] * high)
            parts.append(pixel(value) + struct.pack(">HHHH", left, top, wide, high))
        return head(x, y, width, height, 2) + struct.pack(">I", count) + b"".join(parts)

    def tiles(self, edge, width, height):
        for top in range(0, height, edge):
            for left in range(0, width, edge):
                yield left, top, min(edge, width - left), min(edge, height - top)

    def hextile(self):
        x, y, width, height = self.place()
        parts = [head(x, y, width, height, 5)]
        back = None
        front = None
        for left, top, wide, high in self.tiles(16, width, height):
            if self.chance.random() < 0.2:
                values = self.values(wide, high)
                self.put(x + left, y + top, values)
                noise = self.chance.choice([0, 2, 4, 8, 16])  # is ignored beside Raw
                parts.append(bytes([1 | noise]))
                parts.append(b"".join(pixel(one) for row in values for one in row))
                back = front = None  # do not carry over from here
                continue
            mask, body = 0, b""
            if back is None or self.chance.random() < 0.5:
                back = self.value()
                mask |= 2
                body += pixel(back)
            self.put(x + left, y + top, [[back] * wide] * high)
            kind = self.chance.choice(["plain", "front", "coloured"])
            if kind == "front" and (front is None or self.chance.random() < 0.5):
                front = self.value()
                mask |= 4
                body += pixel(front)
            if kind != "plain":
                mask |= 8 | (16 if kind == "coloured" else 0)
                count = self.chance.randint(0, 12)
                body += bytes([count])
                for _ in range(count):
                    value = self.value() if kind == "coloured" else front
                    assert value is not None
                    if kind == "coloured":
                        body += pixel(value)
                    sx, sy = self.chance.randrange(wide), self.chance.randrange(high)
                    sw, sh = self.chance.randint(1, wide - sx), self.chance.randint(1, high - sy)
                    self.put(x + left + sx, y + top + sy, [[value] * sw] * sh)
                    body += bytes([sx << 4 | sy, (sw - 1) << 4 | (sh - 1)])
                if kind == "coloured":
                    front = None  # RFC 6143, 7.7.4: does not carry over coloured subrectangles
            parts.append(bytes([mask]) + body)
        return b"".join(parts)

    def run_length(self, count):
        return b"\xff" * ((count - 1) // 255) + bytes([(count - 1) % 255])

    def runs(self, total):
        lengths = []
        while total:
            longest = self.chance.choice([1, 3, 20, 255, 256, 257, 600, total])
            lengths.append(self.chance.randint(1, min(total, longest)))
            total -= lengths[-1]
        return lengths

    def zrle_tile(self, x, y, width, height):
        kind = self.chance.choice(["raw", "solid", "packed", "plain-rle", "palette-rle"])
        total = width * height
        if kind == "raw":
            values = self.values(width, height)
            self.put(x, y, values)
            return b"\0" + b"".join(colour(one) for row in values for one in row)
        if kind == "solid":
            value = self.value()
            self.put(x, y, [[value] * width] * height)
            return b"\1" + colour(value)
        size = self.chance.randint(2, 16 if kind == "packed" else 127)
        palette = [self.value() for _ in range(size)]
        colours = b"".join(colour(one) for one in palette)
        if kind == "packed":
            bits = 1 if size == 2 else 2 if size <= 4 else 4
            indices = [[self.chance.randrange(size) for _ in range(width)] for _ in range(height)]
            self.put(x, y, [[palette[one] for one in row] for row in indices])
            body = b""
            for row in indices:
                text = "".join(format(one, f"0{bits}b") for one in row)
                text += "0" * (-len(text) % 8)
                body += int(text, 2).to_bytes(len(text) // 8, "big")
            return bytes([size]) + colours + body
        flat = []
        body = b""
        for count in self.runs(total):
            index = self.chance.randrange(size)
            flat += [palette[index]] * count
            if kind == "plain-rle":
                body += colour(palette[index]) + self.run_length(count)
            elif count == 1:
                body += bytes([index])
            else:
                body += bytes([128 | index]) + self.run_length(count)
        self.put(x, y, [flat[i : i + width] for i in range(0, total, width)])
        return (b"\x80" if kind == "plain-rle" else bytes([128 + size]) + colours) + body

    def zrle(self):
        x, y, width, height = self.place()
        tiles = [
            self.zrle_tile(x + left, y + top, wide, high)
            for left, top, wide, high in self.tiles(64, width, height)
        ]
        data = self.zrle_stream.compress(b"".join(tiles))
        data += self.zrle_stream.flush(zlib.Z_SYNC_FLUSH)
        return head(x, y, width, height, 16) + struct.pack(">I", len(data)) + data

    def compact(self, size):
        if size < 128:
            return bytes([size])
        if size < 16384:
            return bytes([size & 127 | 128, size >> 7])
        return bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])

    def tight(self, kind=None):
        x, y, width, height = self.place()
        kinds = ["fill", "copy", "explicit-copy", "palette", "gradient"]
        kind = kind or self.chance.choice(kinds)
        resets = self.chance.getrandbits(4) & self.chance.getrandbits(4)
        for i in range(4):
            if resets >> i & 1:
                self.tight_streams[i] = zlib.compressobj(self.chance.randint(0, 9))
        parts = [head(x, y, width, height, 7)]
        if kind == "fill":
            value = self.value()
            self.put(x, y, [[value] * width] * height)
            return parts[0] + bytes([0x80 | resets]) + colour(value)
        stream = self.chance.randrange(4)
        control = resets | stream << 4
        if kind == "copy":
            parts.append(bytes([control]))
        else:
            number = {"explicit-copy": 0, "palette": 1, "gradient": 2}[kind]
            parts.append(bytes([control | 0x40, number]))
        if kind == "palette":
            size = self.chance.choice([1, 2, 2, 3, 16, 255, 256])
            palette = [self.value() for _ in range(size)]
            parts.append(bytes([size - 1]) + b"".join(colour(one) for one in palette))
            indices = [[self.chance.randrange(size) for _ in range(width)] for _ in range(height)]
            self.put(x, y, [[palette[one] for one in row] for row in indices])
            if size <= 2:
                data = b""
                for row in indices:
                    text = "".join(map(str, row)) + "0" * (-width % 8)
                    data += int(text, 2).to_bytes(len(text) // 8, "big")
            else:
                data = bytes(one for row in indices for one in row)
        else:
            values = self.values(width, height)
            self.put(x, y, values)
            if kind == "gradient":
                values = self.differences(values)
            data = b"".join(colour(one) for row in values for one in row)
        if len(data) < 12:
            return b"".join(parts) + data
        packed = self.tight_streams[stream].compress(data)
        packed += self.tight_streams[stream].flush(zlib.Z_SYNC_FLUSH)
        return b"".join(parts) + self.compact(len(packed)) + packed

    def differences(self, values):
        """The gradient filter: what is left of a colour when its neighbours predict it."""
        out = [[0] * len(row) for row in values]
        for shift in (0, 8, 16):

            def part(i, j, shift=shift):
                return values[j][i] >> shift & 255 if i >= 0 and j >= 0 else 0

            for j, row in enumerate(values):
                for i in range(len(row)):
                    expected = part(i - 1, j) + part(i, j - 1) - part(i - 1, j - 1)
                    expected = max(0, min(255, expected))
                    out[j][i] |= (part(i, j) - expected & 255) << shift
        return out

    ALL = ("raw", "copy_rect", "rre", "hextile", "zrle", "tight")

    def write(self, name):
        written = getattr(self, name)()
        assert isinstance(written, bytes)
        return written

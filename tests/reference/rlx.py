"""RLX in slow, plain Python: the oracle of the property tests and a rival of the benchmarks.

The same algorithm as RELAAX's own codec (a table of types, a method for each of them, one small
`struct` call a field), little-endian, strict about what it reads, and about as fast: the
benchmarks let it stand for RELAAX. Nothing of rlwire is imported here, so that the compiled codec
and this file can only agree by both being right.

Not here: netstrings; limits, so a message is judged by its bytes alone.
"""

import re
import struct
from struct import pack, unpack_from

import numpy as np
from PIL import Image

VERSION = 1
TYPES = {
    "none": 0, "null": 1, "int4": 2, "string": 3, "double": 4, "boolean": 5, "image": 6,
    "ndarray": 7, "list": 8, "uint4": 9, "int64": 10, "dict": 11,
}  # fmt: skip

# RELAAX scales these modes, and only these, to [0, 1].
SCALED_MODES = frozenset(["L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"])

# mode -> (dtype, channels; 0 means a two-dimensional array). Mode "1" packs eight pixels a byte.
MODES = {
    "L": ("|u1", 0), "P": ("|u1", 0), "LA": ("|u1", 2), "PA": ("|u1", 2), "La": ("|u1", 2),
    "RGB": ("|u1", 3), "YCbCr": ("|u1", 3), "LAB": ("|u1", 3), "HSV": ("|u1", 3),
    "RGBA": ("|u1", 4), "RGBa": ("|u1", 4), "RGBX": ("|u1", 4), "CMYK": ("|u1", 4), "I": ("<i4", 0),
    "F": ("<f4", 0), "I;16": ("<u2", 0), "I;16L": ("<u2", 0), "I;16N": ("<u2", 0),
    "I;16B": (">u2", 0),
}  # fmt: skip

_UNIT = r"(\[([1-9][0-9]{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"

# NumPy's str(dtype) for numbers, booleans, fixed-length strings and dates, and its short forms.
# Object, void, structured and sub-array dtypes have no form in it.
_DTYPE = re.compile(
    r"bool|float(16|32|64|96|128)|u?int(8|16|32|64)|complex(64|128|192|256)"
    rf"|(datetime64|timedelta64){_UNIT}"
    r"|[<>|=]?([?]|b1|[iu][1248]|f(2|4|8|12|16)|c(8|16|24|32)|[SU][1-9][0-9]{0,8})"
    rf"|[<>|=]?[Mm]8{_UNIT}"
)


class Refused(ValueError):
    """The oracle's only error: a value it cannot write or bytes it cannot read."""


def encode(message):
    """The bytes inside the netstring for `message`."""
    writer = _Writer()
    writer.put("<I", VERSION)
    for key, value in message.items():
        writer.text(key)
        writer.value(value)
    return bytes(writer.out)


def decode(data, *, images="array"):
    """The message whose bytes, without the netstring, are `data`; arrays are read-only copies."""
    reader = _Reader(data, images)
    try:
        if reader.get("<I") != VERSION:
            raise Refused("not version 1")
        message = {}
        while reader.at < len(data):
            reader.entry(message)
        return message
    except struct.error:
        raise Refused("the message ends early") from None


_NAMES = {
    type(None): "null", bool: "boolean", np.bool_: "boolean", float: "double", str: "string",
    list: "list", tuple: "list", dict: "dict", np.ndarray: "ndarray",
}  # fmt: skip


def _name_of(value):
    """The type, by its name in `TYPES`, as which a value is sent."""
    if type(value) is int or (isinstance(value, int) and not isinstance(value, bool)):
        return "int4" if -(2**31) <= value < 2**31 else "int64"
    if isinstance(value, np.integer) and not isinstance(value, np.timedelta64):
        if value.dtype.itemsize == 8:
            return "int64"
        return "int4" if value < 2**31 else "int64"
    if isinstance(value, np.floating):
        return "double"
    if isinstance(value, Image.Image) or isinstance(getattr(value, "image", None), Image.Image):
        return "image"  # the attribute is that of RELAAX's RLXMessageImage
    for base in (float, str, list, tuple, dict):
        if isinstance(value, base):
            return _NAMES[base]
    if isinstance(value, np.generic) and not isinstance(value, bytes):
        raise Refused(f"{type(value).__name__} cannot be sent")
    return "ndarray"


class _Writer:
    def __init__(self):
        self.out = bytearray()

    def value(self, value):
        name = _NAMES.get(type(value)) or _name_of(value)
        self.put("<B", TYPES[name])
        getattr(self, f"put_{name}")(value)

    def put(self, layout, number):
        try:
            self.out += pack(layout, number)
        except struct.error as error:
            raise Refused(f"{number}: {error}") from None

    def text(self, text):
        if not isinstance(text, str):
            raise Refused(f"a key must be a str, not {type(text).__name__}")
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Refused(str(error)) from None
        self.put("<I", len(data))
        self.out += data

    def put_null(self, value):
        pass

    def put_boolean(self, value):
        self.put("<B", 1 if value else 0)

    def put_int4(self, value):
        self.put("<i", int(value))

    def put_int64(self, value):
        self.put("<q", int(value))

    def put_double(self, value):
        self.put("<d", float(value))

    def put_string(self, value):
        self.text(value)

    def put_list(self, value):
        self.put("<I", len(value))
        for item in value:
            self.value(item)

    def put_dict(self, value):
        self.put("<I", len(value))
        for key, item in value.items():
            self.text(key)
            self.value(item)

    def put_ndarray(self, value):
        array = _as_array(value)
        if array.dtype.kind not in "biufcSUMm" or array.dtype.itemsize == 0:
            raise Refused(f"an array of dtype {array.dtype} cannot be sent")
        self.text(str(array.dtype))
        self.put("<I", array.ndim)
        for size in array.shape:
            self.put("<I", size)
        self.put("<I", array.nbytes)
        self.out += np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def put_image(self, value):
        image = value if isinstance(value, Image.Image) else value.image
        self.text(image.mode)
        for size in image.size:
            self.put("<I", size)
        data = image.tobytes()
        self.put("<I", len(data))
        self.out += data


def _as_array(value):
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        pass
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise Refused(f"{type(value).__name__} cannot be sent")


_READ_BY = {number: f"get_{name}" for name, number in TYPES.items()}
_SIZES = {"<B": 1, "<i": 4, "<I": 4, "<q": 8, "<d": 8}


class _Reader:
    def __init__(self, data, images):
        self.data = data
        self.at = 0
        self.images = images

    def value(self):
        number = self.get("<B")
        if number not in _READ_BY:
            raise Refused(f"type {number} before byte {self.at}")
        return getattr(self, _READ_BY[number])()

    def entry(self, entries):
        key = self.text()
        if key in entries:
            raise Refused(f"the key {key!r} stands twice")
        entries[key] = self.value()

    def get(self, layout):
        (number,) = unpack_from(layout, self.data, self.at)
        self.at += _SIZES[layout]
        return number

    def block(self):
        size = self.get("<I")
        if size > len(self.data) - self.at:
            raise Refused(f"{size} bytes promised before byte {self.at}, which are not there")
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self):
        try:
            return str(self.block(), "utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"not UTF-8 before byte {self.at}: {error}") from None

    def count(self, least):
        count = self.get("<I")
        if count * least > len(self.data) - self.at:
            raise Refused(f"{count} entries promised before byte {self.at}, which are not there")
        return count

    def get_none(self):
        return None

    def get_null(self):
        return None

    def get_int4(self):
        return self.get("<i")

    def get_uint4(self):
        return self.get("<I")

    def get_int64(self):
        return self.get("<q")

    def get_double(self):
        return self.get("<d")

    def get_boolean(self):
        value = self.get("<B")
        if value > 1:
            raise Refused(f"boolean {value} before byte {self.at}")
        return bool(value)

    def get_string(self):
        return self.text()

    def get_list(self):
        return [self.value() for _ in range(self.count(1))]  # an item has at least its type

    def get_dict(self):
        entries = {}
        for _ in range(self.count(5)):  # an entry has at least its key's length and a type
            self.entry(entries)
        return entries

    def get_ndarray(self):
        dtype = self.named_dtype()
        dims = self.get("<I")
        if dims > 32:
            raise Refused(f"{dims} dimensions")
        shape = [self.get("<I") for _ in range(dims)]
        data = self.block()
        wanted = dtype.itemsize
        for size in shape:  # Python's integers do not overflow
            wanted *= size
        if wanted != len(data):
            raise Refused(f"shape {shape} of {dtype} takes {wanted} bytes, not {len(data)}")
        try:
            return np.frombuffer(data, dtype).reshape(shape)
        except ValueError as error:  # an empty array whose other dimensions overflow an address
            raise Refused(str(error)) from None

    def named_dtype(self):
        name = self.text()
        if not _DTYPE.fullmatch(name):
            raise Refused(f"dtype {name!r}")
        try:
            return np.dtype(name)
        except (TypeError, ValueError):  # such as a long double of another kind of machine
            raise Refused(f"dtype {name!r}") from None

    def get_image(self):
        mode = self.text()
        width, height = self.get("<I"), self.get("<I")
        data = self.block()
        if mode == "1":
            dtype, channels, wanted = np.dtype("|b1"), 0, (width + 7) // 8 * height
        elif mode in MODES:
            name, channels = MODES[mode]
            dtype = np.dtype(name)
            wanted = width * height * (channels or 1) * dtype.itemsize
        else:
            raise Refused(f"image mode {mode!r}")
        if wanted != len(data):
            raise Refused(f"{width}x{height} in mode {mode} take {wanted} bytes, not {len(data)}")
        if mode == "1":
            rows = np.frombuffer(data, np.uint8).reshape(height, (width + 7) // 8)
            return np.unpackbits(rows, axis=1)[:, :width].astype(bool)
        shape = (height, width, channels) if channels else (height, width)
        array = np.frombuffer(data, dtype).reshape(shape)
        if self.images == "float32" and mode in SCALED_MODES:
            return array.astype(np.float32) * np.float32(1.0 / 255.0)
        return array

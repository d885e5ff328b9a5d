"""Camera frames in msgpack, compressed: an ext type that both ends ask for.

::

    wire = msgpack.encode({"camera": images.encode(frame, "jpeg"), "joints": joints})
    observation = msgpack.decode(wire, ext_hook=images.ImageHook())

`encode` gives an ExtType that any msgpack encoder takes, `ArrayHook` does so for all images of a
message; `ImageHook` is an ``ext_hook=``. The layout is in docs/protocols/msgpack_images.md.
Compression is Pillow's, lz4's and zstandard's; here are the layout, the checks, and what is done to
the bytes before and after.

Nothing is remembered here: a difference to an earlier frame is made and undone with a `reference`
that the caller holds. `rlwire.sessions.msgpack_images` holds them, one for each stream.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.msgpack.image_files import (
    decode_jpeg,
    decode_png,
    encode_jpeg,
    encode_png,
    geometry,
)
from rlwire.codecs.msgpack.values import ExtType
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, optional
from rlwire.limits import Limits, checked

# What sessions need besides (`pack`, `unpack` and what belongs to them) is no part of the face.
__all__ = [
    "EXT_CODE",
    "VERSION",
    "ArrayHook",
    "Header",
    "ImageHook",
    "Kind",
    "Place",
    "decode",
    "encode",
    "read_header",
]

Array = NDArray[Any]
Buffer = bytes | bytearray | memoryview
KindName = Literal["raw", "png", "jpeg", "lz4", "zstd"]

EXT_CODE = 73
"""The ext type's code, an "I" in ASCII; 0 to 127 are for applications."""
VERSION = 1
"""The first byte of the ext type's data."""


class Kind(enum.IntEnum):
    """How the data is compressed; the number stands on the wire."""

    RAW = 0
    PNG = 1
    JPEG = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def lossless(self) -> bool:
        """Whether the very same numbers come back."""
        return self is not Kind.JPEG


class Place(NamedTuple):
    """Where a frame stands in a stream.

    Attributes:
        stream: the stream's name, such as a camera's.
        sequence: the frame's number.
        reference: the number of the frame it is the difference to; None: it stands for itself.
    """

    stream: str
    sequence: int
    reference: int | None = None


class Header(NamedTuple):
    """What stands before the compressed bytes.

    Attributes:
        kind: how they are compressed.
        dtype: the array's, native.
        shape: the array's.
        shuffled: whether they are sorted by the byte's place in its element.
        place: the frame's in a stream; None: it is in none.
        size: bytes of the header.
    """

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    shuffled: bool
    place: Place | None
    size: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


_STREAM, _DELTA, _SHUFFLE = 1, 2, 4  # bits of the flags byte
_FLAGS = {Kind.RAW: 1, Kind.PNG: 0, Kind.JPEG: 0, Kind.LZ4: 7, Kind.ZSTD: 7}  # that a kind may have
_HEAD = struct.Struct("<5B")  # version, kind, flags, dtype, dimensions
_U64 = struct.Struct("<Q")

# By the number on the wire. Elements lie little-endian there, whatever the host does.
_NAMES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
_DTYPES = [np.dtype(name) for name in _NAMES]
_WIRE_DTYPES = [dtype.newbyteorder("<") for dtype in _DTYPES]
_NUMBERS = {dtype.str[1:]: number for number, dtype in enumerate(_DTYPES)}
_WORDS = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}

# What is there at once while an array is read, in times its bytes: what was decompressed, and what
# is made of that; Pillow's own image, which has four bytes a pixel for RGB, and twice the bytes it
# gives out, in pieces and joined; what libjpeg holds of an image that comes in several scans.
_AT_ONCE = {Kind.RAW: 1, Kind.LZ4: 2, Kind.ZSTD: 2, Kind.PNG: 4, Kind.JPEG: 6}

# What a byte can stand for at the most: an LZ4 length byte for 255 (its block format), four bytes
# of a zstd block for 128 KiB (RFC 8878, 3.1.1.2.3), deflate for 1032 (RFC 1951). What claims
# more is a lie, which is seen before there is memory for it.
_AT_MOST = {Kind.LZ4: 255, Kind.ZSTD: 2**15, Kind.PNG: 1032}


def kind_of(name: KindName | Kind) -> Kind:
    """The kind of this name."""
    if isinstance(name, Kind):
        return name
    found = Kind.__members__.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"kind must be 'raw', 'png', 'jpeg', 'lz4' or 'zstd', not {name!r}")
    return found


def check_sizes(
    kind: Kind,
    shape: tuple[int, ...],
    itemsize: int,
    limits: Limits,
    offset: int | None,
    *,
    left: int | None = None,
    kept: int = 0,
) -> None:
    """Compare what reading an array makes with the limits.

    Args:
        kind: how it is compressed.
        shape: its shape.
        itemsize: bytes of an element.
        limits: the maxima.
        offset: of the shape, for errors; None when encoding.
        left: what may be made, if that is less than `limits.expanded`.
        kept: how often the array itself is there in the end, if that is more.
    """
    if len(shape) > limits.dims:
        raise LimitExceeded("dims", limits.dims, len(shape), offset=offset)
    if kind in (Kind.PNG, Kind.JPEG):
        sizes = geometry(shape)
        if sizes is not None and sizes[0] * sizes[1] > limits.pixels:
            raise LimitExceeded("pixels", limits.pixels, sizes[0] * sizes[1], offset=offset)
    # NumPy refuses an empty array whose other dimensions multiply to more than an address.
    size = math.prod(filter(None, shape)) * itemsize * max(_AT_ONCE[kind], kept)
    most = limits.expanded if left is None else min(limits.expanded, left)
    if size > most:
        raise LimitExceeded("expanded", most, size, offset=offset)


# Compressors, by kind and level.

Compress = Callable[[memoryview], bytes]


def make_compressor(kind: Kind, level: int | None) -> Compress:
    """A function that compresses with LZ4 or zstd; of one thread at a time.

    Raises:
        MissingExtra: the package is not installed.
        ValueError: there is no such level.
    """
    if kind is Kind.LZ4:
        with optional("lz4", "compression"):
            import lz4.block
        options: dict[str, Any] = {"store_size": False}
        if level is not None:
            if not 1 <= level <= 12:
                raise ValueError(f"the levels of LZ4 are 1 to 12, not {level}")
            options |= {"mode": "high_compression", "compression": level}
        return lambda data: bytes(lz4.block.compress(data, **options))
    with optional("zstandard", "compression"):
        import zstandard
    # The frame states the size of its content: a decoder of ours insists on that.
    return zstandard.ZstdCompressor(
        level=1 if level is None else level, write_content_size=True
    ).compress


def _expand_lz4(data: memoryview, size: int, offset: int) -> Buffer:
    with optional("lz4", "compression"):
        import lz4.block
    try:
        # It writes no byte beyond `size`.
        expanded: bytearray = lz4.block.decompress(
            data, uncompressed_size=size, return_bytearray=True
        )
    except lz4.block.LZ4BlockError as problem:
        raise DecodeError(f"no LZ4 block of {size} bytes: {problem}", offset=offset) from None
    return expanded


def _expand_zstd(data: memoryview, size: int, offset: int) -> Buffer:
    with optional("zstandard", "compression"):
        import zstandard
    try:
        # The package believes the frame rather than `max_output_size`, so the frame is asked first.
        found = zstandard.get_frame_parameters(data)
        if found.content_size != size or found.dict_id:
            _bad(
                f"a zstd frame of {found.content_size} bytes with dictionary {found.dict_id}, "
                f"the array has {size} and needs none",
                offset,
            )
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=size, read_across_frames=False, allow_extra_data=False
        )
    except zstandard.ZstdError as problem:
        raise DecodeError(f"no zstd frame of {size} bytes: {problem}", offset=offset) from None


def _shuffle(array: Array) -> Array:
    """All first bytes of the elements, then all second ones, and so on."""
    return np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T)


def _unshuffle(expanded: Buffer, itemsize: int) -> Array:
    planes = np.frombuffer(expanded, np.uint8).reshape(itemsize, -1)
    elements = np.empty((planes.shape[1], itemsize), np.uint8)
    for place, plane in enumerate(planes):  # NumPy's own transposition is several times slower
        elements[:, place] = plane
    return elements.reshape(-1)


def _bytes(array: Array) -> memoryview:
    """The memory of a contiguous array; `memoryview.cast` would refuse one without elements."""
    return array.reshape(-1).view(np.uint8).data


def _words(array: Array) -> Array:
    """The elements of a contiguous array as unsigned numbers."""
    return array.reshape(-1).view(_WORDS[array.itemsize])


def _little(words: Array) -> Array:
    """The numbers little-endian again: what NumPy calculates is in the host's order."""
    return words.astype(_WORDS[words.itemsize], copy=False)


def prepared(array: Any) -> Array:
    """The array as it lies on the wire: contiguous and little-endian, copied only if it is not.

    Raises:
        EncodeError: its dtype is none of those that the ext type has.
    """
    found = np.asarray(array)
    number = _NUMBERS.get(found.dtype.str[1:])
    if number is None:
        raise EncodeError(
            f"images are arrays of bool, integers or float16 to float64, not of {found.dtype}"
        )
    # Not ascontiguousarray, which makes a 0-d array a 1-d one.
    return np.asarray(found, dtype=_WIRE_DTYPES[number], order="C")


def pack(
    kind: Kind,
    array: Array,
    *,
    compress: Compress | None = None,
    level: int | None = None,
    quality: int = 90,
    shuffle: bool | None = None,
    place: Place | None = None,
    reference: Array | None = None,
) -> ExtType:
    """`encode` with an array that is `prepared`, and with a compressor that is there."""
    flags = 0
    data: Any
    if kind is Kind.PNG:
        data = encode_png(array, 1 if level is None else level)
    elif kind is Kind.JPEG:
        data = encode_jpeg(array, quality)
    elif kind is Kind.RAW:
        data = _bytes(array)
    else:
        if shuffle is None:
            shuffle = array.itemsize > 1
        work = array if reference is None else _little(_words(array) - _words(reference))
        if shuffle and array.itemsize > 1:
            work = _shuffle(work)
            flags |= _SHUFFLE
        if compress is None:
            compress = make_compressor(kind, level)
        data = compress(_bytes(work))
        if len(data) >= array.nbytes and reference is None:
            kind, flags, data = Kind.RAW, 0, _bytes(array)
    where = b""
    if place is not None:
        try:
            name = place.stream.encode()
        except UnicodeEncodeError as problem:
            raise EncodeError(f"a stream's name is no Unicode: {problem}") from None
        if len(name) > 255:
            raise EncodeError(f"a stream's name has at most 255 bytes, not {len(name)}")
        where = bytes((len(name),)) + name + _U64.pack(place.sequence)
        flags |= _STREAM
        if place.reference is not None:
            where += _U64.pack(place.reference)
            flags |= _DELTA
    number = _NUMBERS[array.dtype.str[1:]]
    head = _HEAD.pack(VERSION, kind, flags, number, array.ndim)
    shape = struct.pack(f"<{array.ndim}I", *array.shape)
    return ExtType(EXT_CODE, b"".join((head, shape, where, data)))


def encode(
    array: Any,
    kind: KindName | Kind = "zstd",
    *,
    level: int | None = None,
    quality: int = 90,
    shuffle: bool | None = None,
    limits: Limits | None = None,
) -> ExtType:
    """The ext type of one array, to put in its place into a message.

    Args:
        array: what NumPy can see as an array of bool, integers or floats. PNG and JPEG take
            shapes (height, width) and (height, width, 1, 3 or 4) of uint8; PNG also takes uint16
            with one channel. Four channels are RGBA in PNG and four separate ones in JPEG.
        kind: ``"raw"``; ``"png"``; ``"jpeg"``, the only one that is **lossy**: the numbers that
            come back are near, not equal; ``"lz4"``; ``"zstd"``. The last two need the extra
            ``compression``, and give raw bytes where they would make the array larger.
        level: how hard to try: zstd 1 (default) to 22, or below 0 for haste; LZ4 None (default) or
            1 to 12, which are slow; PNG 0 to 9, 1 is the default.
        quality: of JPEG, 1 to 95.
        shuffle: for LZ4 and zstd, sort the bytes by their place in an element. None: where
            elements have more than one. Depth images gain much by it; frames with few different
            values, such as rendered ones scaled to float32, are better off without.
        limits: `dims`, `pixels` and `expanded` are compared, so that what a decoder with the same
            limits would refuse is not sent: reading a PNG takes four times the array's bytes, a
            JPEG six times, zstd and LZ4 twice.

    Raises:
        EncodeError: the kind cannot carry this dtype or shape.
        LimitExceeded: it is too large.
        MissingExtra: lz4 or zstandard is not installed.
    """
    found = kind_of(kind)
    ready = prepared(array)
    check_sizes(found, ready.shape, ready.itemsize, checked(limits), None)
    return pack(found, ready, level=level, quality=quality, shuffle=shuffle)


def _bad(reason: str, offset: int) -> NoReturn:
    raise DecodeError(reason, offset=offset)


def _part(data: memoryview, offset: int, size: int) -> memoryview:
    if len(data) - offset < size:
        _bad(f"the image's header ends early: {size} bytes needed", offset)
    return data[offset : offset + size]


def read_header(
    data: Buffer, *, limits: Limits | None = None, left: int | None = None, kept: int = 0
) -> Header:
    """What an ext type's data says about itself; nothing is decompressed.

    Args:
        data: of an ext type with `EXT_CODE`.
        limits: as `decode`'s.
        left: as `check_sizes`'s.
        kept: as `check_sizes`'s.

    Raises:
        DecodeError: it is no header of this version.
        LimitExceeded: the array would be larger than the limits allow.
    """
    view = memoryview(data)
    version, number, flags, dtype_number, dims = _HEAD.unpack(_part(view, 0, 5))
    if version != VERSION:
        _bad(f"an image of version {version}, this is version {VERSION}", 0)
    if number >= len(Kind):
        _bad(f"there is no kind {number} of image", 1)
    kind = Kind(number)
    if flags & ~7 or flags & (_STREAM | _DELTA) == _DELTA:
        _bad(f"no image has the flags 0x{flags:02x}", 2)
    if flags & ~_FLAGS[kind]:
        _bad(f"an image of kind {kind.name} has no flags 0x{flags:02x}", 2)
    if dtype_number >= len(_DTYPES):
        _bad(f"there is no dtype {dtype_number}", 3)
    dtype = _DTYPES[dtype_number]
    if flags & _SHUFFLE and dtype.itemsize == 1:
        _bad("bytes have no bytes to sort", 2)
    limits = checked(limits)
    if dims > limits.dims:
        raise LimitExceeded("dims", limits.dims, dims, offset=4)
    shape = struct.unpack(f"<{dims}I", _part(view, 5, 4 * dims))
    check_sizes(kind, shape, dtype.itemsize, limits, 5, left=left, kept=kept * (flags & _STREAM))
    spot, place = 5 + 4 * dims, None
    if flags & _STREAM:
        length = _part(view, spot, 1)[0]
        try:
            stream = str(_part(view, spot + 1, length), "utf-8")
        except UnicodeDecodeError:
            _bad("the stream's name is not UTF-8", spot + 1)
        spot += 1 + length
        (sequence,) = _U64.unpack(_part(view, spot, 8))
        spot += 8
        reference = None
        if flags & _DELTA:
            (reference,) = _U64.unpack(_part(view, spot, 8))
            spot += 8
        place = Place(stream, sequence, reference)
    return Header(kind, dtype, shape, bool(flags & _SHUFFLE), place, spot)


def unpack(header: Header, data: Buffer, reference: Array | None = None) -> Array:
    """`decode` after `read_header`, to an array that may be read-only and not its own."""
    kind, dtype, size, spot = header.kind, header.dtype, header.nbytes, header.size
    body = memoryview(data)[spot:]
    if kind in _AT_MOST and size > (len(body) + 1) * _AT_MOST[kind]:
        _bad(f"{len(body)} bytes of {kind.name} cannot stand for {size}", 5)
    if kind is Kind.PNG:
        return decode_png(bytes(body), header.shape, dtype, spot)
    if kind is Kind.JPEG:
        return decode_jpeg(bytes(body), header.shape, dtype, spot)
    expanded: Any
    if kind is Kind.RAW:
        expanded = body
    elif kind is Kind.LZ4:
        expanded = _expand_lz4(body, size, spot)
    else:
        expanded = _expand_zstd(body, size, spot)
    if len(expanded) != size:
        _bad(f"{len(expanded)} bytes of data for an array of {size}", spot)
    if header.shuffled:
        expanded = _unshuffle(expanded, dtype.itemsize)
    if header.place is not None and header.place.reference is not None:
        if reference is None:
            _bad("a difference to another frame, for which a FrameReader is needed", 2)
        if reference.shape != header.shape or reference.dtype != dtype:
            _bad(
                f"a difference of {dtype} {header.shape} to a frame of {reference.dtype} "
                f"{reference.shape}",
                3,
            )
        words = np.frombuffer(expanded, _WORDS[dtype.itemsize])
        expanded = _little(words + _words(prepared(reference)))
    array = np.frombuffer(expanded, dtype.newbyteorder("<")).reshape(header.shape)
    # Other bytes than 0 and 1 in an array of booleans are undefined behaviour in NumPy's C code.
    if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        _bad("a boolean that is neither 0 nor 1", spot)
    return array.astype(dtype, copy=False)


def owned(array: Array) -> Array:
    """The array itself, or a copy that nobody else can see."""
    return array if array.flags.owndata and array.flags.writeable else array.copy()


def decode(data: Buffer, *, limits: Limits | None = None, reference: Array | None = None) -> Array:
    """The array of an ext type's data: owned, writable, aligned, C-contiguous.

    Args:
        data: of an ext type with `EXT_CODE`.
        limits: `dims`, `pixels` and `expanded` are compared before anything is decompressed;
            `expanded` with all that is there at once, see `encode`.
        reference: the frame that this one is the difference to, if it is one.

    Raises:
        DecodeError: the data is not what the layout says; `offset` counts from its first byte.
        LimitExceeded: the array would be larger than the limits allow.
        MissingExtra: lz4 or zstandard is needed and not installed.
    """
    return owned(unpack(read_header(data, limits=limits), data, reference))


class ArrayHook:
    """An ``array_hook=`` that compresses a message's images and leaves its other arrays alone.

    An image is an array of uint8 or uint16 of shape (height, width) or (height, width, 1, 3 or 4).
    So is a table of bytes: where there are such, or where JPEG would do harm to one of the images,
    call `encode` for each one instead.

    Args:
        kind: as `encode`'s. uint16 goes as zstd where JPEG or PNG cannot carry it.
        at_least: bytes of the smallest array that is compressed.
        level: as `encode`'s.
        quality: as `encode`'s.
        limits: as `encode`'s.
    """

    def __init__(
        self,
        kind: KindName | Kind = "zstd",
        *,
        at_least: int = 1024,
        level: int | None = None,
        quality: int = 90,
        limits: Limits | None = None,
    ) -> None:
        self._kind = kind_of(kind)
        self._at_least = at_least
        self._level = level
        self._quality = quality
        self._limits = checked(limits)

    def __call__(self, array: Array) -> ExtType | None:
        """The image as an ext type; None for any other array."""
        bits = array.dtype.itemsize * 8
        if array.dtype.kind != "u" or bits > 16 or array.nbytes < self._at_least:
            return None
        sizes = geometry(array.shape)
        if sizes is None:
            return None
        kind, level = self._kind, self._level
        if bits == 16 and (kind is Kind.JPEG or (kind is Kind.PNG and sizes[2] > 1)):
            kind, level = Kind.ZSTD, None
        return encode(array, kind, level=level, quality=self._quality, limits=self._limits)


class ImageHook:
    """An ``ext_hook=`` that turns this ext type into arrays; threads may share it.

    Args:
        limits: as `decode`'s, for each image; the decoder's own are for all that a message makes.
        otherwise: the hook for all other codes; None: they come back as ExtType.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        otherwise: Callable[[int, Any], Any] | None = None,
    ) -> None:
        self._limits = checked(limits)
        self._otherwise: Callable[[int, Any], Any] = otherwise or ExtType

    def __call__(self, code: int, data: Any) -> Any:
        """The array, or what the other hook makes of another code."""
        return self.within(code, data, self._limits.expanded)

    def within(self, code: int, data: Any, left: int) -> Any:
        """The same, making no more than `left` bytes at a time: how a decoder calls it."""
        if code != EXT_CODE:
            return self._otherwise(code, data)
        return owned(unpack(read_header(data, limits=self._limits, left=left), data))

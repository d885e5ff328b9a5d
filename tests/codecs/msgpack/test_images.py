"""The ext type of images: its bytes, every kind both ways, and the hook."""

from __future__ import annotations

import builtins
import io
import struct
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import images
from rlwire.codecs.msgpack.values import ExtType
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, MissingExtra
from rlwire.limits import Limits

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
SHAPES = [(8, 6), (8, 6, 1), (8, 6, 3), (8, 6, 4)]
LOSSLESS = ["raw", "lz4", "zstd"]


def smooth(shape: tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    """A picture with gradients."""
    count = int(np.prod(shape))
    return (np.arange(count) * 255 // max(count, 1)).astype(dtype).reshape(shape)


def is_callers_own(array: np.ndarray[Any, Any]) -> bool:
    flags = array.flags
    return flags.owndata and flags.writeable and flags.aligned and flags.c_contiguous


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_comes_back(kind: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    frame = rng.integers(0, 2, (5, 4, 3)).astype(dtype)
    wire = images.encode(frame, kind)
    assert wire.code == images.EXT_CODE == 73
    found = images.decode(wire.data)
    assert found.dtype == frame.dtype
    np.testing.assert_array_equal(found, frame)
    assert is_callers_own(found)


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (100,), (2, 3, 4, 5, 6)])
def test_any_shape_comes_back(kind: Any, shape: tuple[int, ...]) -> None:
    frame = smooth(shape, np.float32)
    found = images.decode(images.encode(frame, kind).data)
    assert found.shape == shape
    np.testing.assert_array_equal(found, frame)
    assert is_callers_own(found)


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("dtype", [">u2", "<u2", ">f4", "<f4", ">i8"])
def test_byte_order_and_layout_are_the_senders_affair(kind: Any, dtype: str) -> None:
    frame = smooth((40, 30), dtype)
    for given_ in (frame, frame.T, frame[::-2, 3:]):
        found = images.decode(images.encode(given_, kind).data)
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, given_)


@pytest.mark.parametrize("shape", SHAPES)
def test_png(shape: tuple[int, ...]) -> None:
    frame = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    found = images.decode(images.encode(frame, "png").data)
    np.testing.assert_array_equal(found, frame)
    assert is_callers_own(found)


@pytest.mark.parametrize("shape", [(8, 6), (8, 6, 1)])
@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_png_of_16_bits(shape: tuple[int, ...], dtype: str) -> None:
    frame = np.random.default_rng(1).integers(0, 2**16, shape).astype(dtype)
    found = images.decode(images.encode(frame, "png").data)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, frame)
    assert is_callers_own(found)


@pytest.mark.parametrize("shape", [(80, 60), (80, 60, 1), (80, 60, 3), (80, 60, 4)])
def test_jpeg_is_near(shape: tuple[int, ...]) -> None:
    frame = smooth(shape)
    wire = images.encode(frame, "jpeg", quality=95)
    found = images.decode(wire.data)
    assert found.shape == frame.shape
    assert np.abs(found.astype(int) - frame).max() <= 8
    assert is_callers_own(found)
    assert len(wire.data) < frame.nbytes
    assert len(images.encode(frame, "jpeg", quality=5).data) < len(wire.data)


def test_channels_of_a_stack_stay_apart_in_jpeg() -> None:
    stack = np.zeros((32, 32, 4), np.uint8)
    stack[..., 2] = 200
    found = images.decode(images.encode(stack, "jpeg", quality=95).data)
    assert np.abs(found.astype(int) - stack).max() <= 2


def test_only_jpeg_says_it_is_lossy() -> None:
    lossy = [kind for kind in images.Kind if not kind.lossless]
    assert lossy == [images.Kind.JPEG]


# The layout, byte by byte, as docs/protocols/msgpack_images.md has it.
def test_the_bytes() -> None:
    frame = np.array([[1, 2, 3], [4, 5, 0x0607]], np.uint16)
    data = images.encode(frame, "raw").data
    assert data.hex(" ") == (
        "01 00 00 02 02 02 00 00 00 03 00 00 00 01 00 02 00 03 00 04 00 05 00 07 06"
    )
    header = images.read_header(data)
    assert header == (images.Kind.RAW, np.dtype("u2"), (2, 3), False, None, 13)
    assert header.nbytes == 12


def test_the_bytes_of_a_difference() -> None:
    before = np.arange(300, dtype=np.uint8)[:, None]
    after = before + np.uint8(1)
    wire = images.pack(
        images.Kind.ZSTD, after, place=images.Place("éa", 258, 257), reference=before
    )
    head = "01 04 03 01 02 2c 01 00 00 01 00 00 00 03 c3 a9 61 02 01 00 00 00 00 00 00"
    head += " 01 01 00 00 00 00 00 00"
    assert wire.data[:33].hex(" ") == head
    zstandard = pytest.importorskip("zstandard")
    assert zstandard.decompress(wire.data[33:]) == b"\1" * 300
    np.testing.assert_array_equal(images.decode(wire.data, reference=before), after)
    assert images.read_header(wire.data).place == ("éa", 258, 257)


def test_shuffled_bytes_lie_by_their_place() -> None:
    frame = np.arange(1000, dtype=np.uint16)
    data = images.encode(frame, "lz4").data
    block = pytest.importorskip("lz4.block")
    assert data[2] == 4
    planes = block.decompress(data[9:], uncompressed_size=2000)
    assert planes == b"".join((part % 256).astype("u1").tobytes() for part in (frame, frame >> 8))
    plain = images.encode(frame, "lz4", shuffle=False).data
    assert plain[2] == 0
    assert len(data) < len(plain)
    np.testing.assert_array_equal(images.decode(plain), frame)


def test_what_does_not_compress_goes_raw() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (50, 50), dtype=np.uint8)
    for kind in ("lz4", "zstd"):
        data = images.encode(frame, kind).data
        assert images.read_header(data).kind is images.Kind.RAW
        assert len(data) == 13 + frame.nbytes


@pytest.mark.parametrize(("kind", "level"), [("zstd", -3), ("zstd", 19), ("lz4", 9), ("png", 9)])
def test_levels(kind: Any, level: int) -> None:
    frame = smooth((64, 64, 3))
    data = images.encode(frame, kind, level=level).data
    np.testing.assert_array_equal(images.decode(data), frame)


def test_files_are_files() -> None:
    """What stands in a PNG or JPEG image is a file that any program reads."""
    frame = smooth((20, 30, 3))
    for kind in ("png", "jpeg"):
        data = images.encode(frame, kind).data
        size = images.read_header(data).size
        with Image.open(io.BytesIO(data[size:])) as image:
            assert image.format == kind.upper()
            assert image.size == (30, 20)
            np.testing.assert_array_equal(np.asarray(image), images.decode(data))


REFUSED: list[tuple[str, Any, str]] = [
    ("raw", np.array([None]), "not of object"),
    ("raw", np.array(["a"]), "not of <U1"),
    ("raw", np.array([1j]), "complex128"),
    ("raw", np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    ("raw", np.zeros(1, [("a", "u1")]), "not of"),
    ("png", np.zeros((2, 3), np.float32), "PNG takes uint8"),
    ("png", np.zeros((2, 3, 3), np.uint16), "one channel"),
    ("png", np.zeros((2, 3), bool), "PNG takes uint8"),
    ("png", np.zeros((2, 3, 2), np.uint8), "PNG takes arrays of shape"),
    ("png", np.zeros((2,), np.uint8), "PNG takes arrays of shape"),
    ("png", np.zeros((2, 0), np.uint8), "none of them empty"),
    ("jpeg", np.zeros((2, 3), np.uint16), "JPEG takes uint8"),
    ("jpeg", np.zeros((2, 2, 2, 3), np.uint8), "JPEG takes arrays of shape"),
    ("jpeg", np.zeros((70_000, 1), np.uint8), "Pillow cannot write this JPEG"),
]


@pytest.mark.parametrize(("kind", "value", "words"), REFUSED)
def test_what_no_image_can_carry(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        images.encode(value, kind)


def test_arguments() -> None:
    frame = smooth((4, 4))
    with pytest.raises(ValueError, match="kind must be"):
        images.encode(frame, "gif")
    with pytest.raises(ValueError, match="levels of LZ4"):
        images.encode(frame, "lz4", level=99)
    with pytest.raises(TypeError, match="limits must be"):
        images.encode(frame, limits=5)
    assert images.encode(frame, images.Kind.PNG) == images.encode(frame, "png")


def test_limits_of_the_sender() -> None:
    frame = smooth((40, 50, 3))
    # Pillow has its own image of it, and what comes out twice.
    images.encode(frame, "png", limits=Limits(pixels=2000, expanded=24_000))
    for limits, name in [
        (Limits(pixels=1999), "pixels"),
        (Limits(expanded=23_999), "expanded"),
        (Limits(dims=2), "dims"),
    ]:
        with pytest.raises(LimitExceeded) as caught:
            images.encode(frame, "png", limits=limits)
        assert caught.value.limit == name
        assert caught.value.offset is None


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_without_the_extra(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = smooth((40, 50))
    data = images.encode(frame, kind).data
    real = builtins.__import__

    def no_import(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in ("lz4", "zstandard"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_import)
    with pytest.raises(MissingExtra, match=r"rlwire\[compression\]"):
        images.encode(frame, kind)
    with pytest.raises(MissingExtra, match=r"rlwire\[compression\]"):
        images.decode(data)
    np.testing.assert_array_equal(images.decode(images.encode(frame, "raw").data), frame)


CAMERAS = {"front": smooth((20, 30, 3)), "wrist": smooth((60, 50)), "depth": smooth((40, 40), "u2")}


def test_the_hook_in_a_message() -> None:
    message: dict[str, Any] = {
        "cameras": [images.encode(frame, "png") for frame in CAMERAS.values()],
        "joints": np.arange(7.0),
        "other": ExtType(5, b"abc"),
    }
    for wire in (msgpack.encode(message), b"".join(msgpack.encode_parts(message))):
        found = msgpack.decode(wire, ext_hook=images.ImageHook())
        for array, frame in zip(found["cameras"], CAMERAS.values(), strict=True):
            np.testing.assert_array_equal(array, frame)
            assert is_callers_own(array)
        np.testing.assert_array_equal(found["joints"], message["joints"])
        assert found["other"] == ExtType(5, b"abc")
    hook = images.ImageHook(otherwise=lambda code, data: (code, len(data)))
    assert hook(5, b"abc") == (5, 3)


def test_refused_without_a_hook() -> None:
    packed = msgpack.encode({"cameras": [1, images.encode(CAMERAS["front"], "raw")]})
    words = (
        r"pass ext_hook=rlwire\.codecs\.msgpack\.images\.ImageHook\(\)"
        r".*at byte 11, \$\.cameras\[1\]"
    )
    for decode in (msgpack.decode, msgpack.Decoder(arrays=False, copy=False).decode):
        with pytest.raises(DecodeError, match=words):
            decode(packed)
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed + b"\x05")
    with pytest.raises(DecodeError, match=words):
        next(unpacker)
    assert next(unpacker) == 5  # the message is passed, as with other errors in it
    found = msgpack.decode(packed, ext_hook=ExtType)["cameras"][1]
    assert type(found) is ExtType
    assert found.code == images.EXT_CODE


def test_what_is_no_image_needs_no_hook() -> None:
    code, version = images.EXT_CODE, images.VERSION
    for other in (
        ExtType(code, b""),
        ExtType(code, bytes([version + 1, 0])),
        ExtType(code + 1, bytes([version, 0])),
    ):
        assert msgpack.decode(msgpack.encode(other)) == other


def test_the_hook_in_the_package_msgpack() -> None:
    """Whose ExtType has the same two fields."""
    package = pytest.importorskip("msgpack")
    wires = {name: images.encode(frame) for name, frame in CAMERAS.items()}
    packed = package.packb({name: package.ExtType(*wire) for name, wire in wires.items()})
    assert packed == msgpack.encode(wires)
    found = package.unpackb(packed, ext_hook=images.ImageHook())
    for name, frame in CAMERAS.items():
        np.testing.assert_array_equal(found[name], frame)


@pytest.mark.parametrize("kind", ["raw", "png", "jpeg", "lz4", "zstd"])
def test_the_hook_for_all_images_of_a_message(kind: Any) -> None:
    hook = images.ArrayHook(kind, at_least=100, quality=95)
    joints = {"joints": np.arange(700.0), "ids": np.arange(200, dtype=np.uint8)}
    tiny = {"tiny": np.zeros((9, 11), np.uint8)}
    message = CAMERAS | joints | tiny
    wire = msgpack.encode(message, array_hook=hook)
    opened = msgpack.decode(wire, ext_hook=lambda code, data: images.read_header(data).kind)
    depth = images.Kind.ZSTD if kind == "jpeg" else images.Kind[kind.upper()]
    assert [opened[name] for name in CAMERAS][:2] == [images.Kind[kind.upper()]] * 2
    assert opened["depth"] is depth
    found = msgpack.decode(wire, ext_hook=images.ImageHook())
    for name, frame in message.items():
        assert found[name].dtype == frame.dtype
        assert np.abs(found[name].astype(float) - frame).max() <= (8 if kind == "jpeg" else 0)


def test_an_error_of_the_hook_comes_through() -> None:
    wire = msgpack.encode({"a": images.encode(CAMERAS["front"])._replace(data=b"\2")})
    with pytest.raises(DecodeError, match="5 bytes needed"):
        msgpack.decode(wire, ext_hook=images.ImageHook())


def test_the_hook_obeys_its_limits() -> None:
    wire = images.encode(np.zeros((20, 30), np.uint8), "zstd")
    # What was decompressed, and the array.
    assert images.ImageHook(limits=Limits(expanded=1200))(*wire).shape == (20, 30)
    with pytest.raises(LimitExceeded, match="1200 is over the limit expanded=1199"):
        images.ImageHook(limits=Limits(expanded=1199))(*wire)
    with pytest.raises(TypeError, match="limits must be"):
        images.ImageHook(limits=1)


def test_any_buffer() -> None:
    frame = smooth((20, 30))
    for kind in ("raw", "png", "jpeg", "lz4", "zstd"):
        data = images.encode(frame, kind).data
        for buffer in (data, bytearray(data), memoryview(data)):
            found = images.decode(buffer)
            assert found.shape == (20, 30)
            assert is_callers_own(found)


def test_a_raw_image_is_no_view_of_the_message() -> None:
    data = bytearray(images.encode(smooth((4, 4)), "raw").data)
    found = images.decode(data)
    data[-1] ^= 255
    np.testing.assert_array_equal(found, smooth((4, 4)))


def test_a_difference_alone_cannot_be_read() -> None:
    frame = smooth((4, 4))
    wire = images.pack(images.Kind.ZSTD, frame, place=images.Place("", 2, 1), reference=frame)
    with pytest.raises(DecodeError, match="FrameReader"):
        images.decode(wire.data)
    for other in (frame.astype(np.int8), frame.reshape(2, 8)):
        with pytest.raises(DecodeError, match="a difference of uint8"):
            images.decode(wire.data, reference=other)


def test_threads_share_a_hook() -> None:
    hook = images.ImageHook()
    frames = [smooth((60, 50, 3)) + np.uint8(number) for number in range(4)]
    wires = [images.encode(frame, "zstd") for frame in frames]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            if not np.array_equal(hook(*wires[number]), frames[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@st.composite
def frames(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = np.dtype(draw(st.sampled_from(DTYPES[1:])))
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    size = int(np.prod(shape)) * dtype.itemsize
    pattern = draw(st.binary(min_size=1, max_size=40))
    data = (pattern * (size // len(pattern) + 1))[:size]
    return np.frombuffer(data, dtype).reshape(shape)


@settings(max_examples=2 * settings().max_examples)
@given(frames(), frames(), st.sampled_from(["lz4", "zstd"]), st.booleans())
def test_differences_come_back_bit_by_bit(
    first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], kind: str, shuffle: bool
) -> None:
    """Also NaN with any payload: they are the difference of whole numbers."""
    if first.shape != second.shape or first.dtype != second.dtype:
        second = np.roll(first.reshape(-1), 1).reshape(first.shape)
    wire = images.pack(
        images.Kind[kind.upper()],
        images.prepared(second),
        shuffle=shuffle,
        place=images.Place("x", 1, 0),
        reference=images.prepared(first),
    )
    found = images.decode(wire.data, reference=first)
    assert found.tobytes() == second.tobytes()
    assert (found.dtype, found.shape) == (second.dtype, second.shape)


def test_header_struct_is_little_endian() -> None:
    data = images.encode(np.zeros((1, 258), np.uint8), "raw").data
    assert struct.unpack_from("<2I", data, 5) == (1, 258)

import numpy as np
import pytest
from PIL import Image

from rlwire.buffers import Block
from rlwire.codecs import rlx
from rlwire.limits import Limits
from tests.memory import in_block
from tests.raising import raised, raised_with


def data_at(data, array):
    """Where in the message `data` the bytes of `array` lie."""
    return data.index(array.tobytes())


def address(array):
    return int(array.__array_interface__["data"][0])


def floats(size):
    return np.random.default_rng(size).random(size)


def test_keys_of_each_length_and_alphabet_are_decoded(oracle):
    """Short ASCII keys come from a cache; others and clashes in it must be right as well."""
    keys = ["", "a", "ключ", "🎲", "k" * 31, "k" * 32, "k" * 33, "a\0", "\0", "é"]
    keys += [f"key {n}" for n in range(3000)] + [chr(n) for n in range(33, 127)][1:]
    message = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    data = oracle.encode(message)
    for _ in range(2):
        decoded = rlx.decode(data)
        assert decoded == message
        assert list(decoded) == list(message)
    first, second = rlx.decode(rlx.encode({"a": {"command": 1}})), rlx.decode(data)
    assert first == {"a": {"command": 1}}
    assert hash(next(iter(first["a"]))) == hash("command")
    assert second["a"] == message["a"]


@pytest.mark.parametrize("pattern", ["joint{:02}.pos", "observation.images.{:02}.left", "{:02}"])
def test_keys_that_differ_in_the_middle_are_cached(pattern):
    data = rlx.encode({pattern.format(n): n for n in range(40)})
    first, second = list(rlx.decode(data)), list(rlx.decode(data))
    assert sum(a is b for a, b in zip(first, second, strict=True)) > 30  # a few clash


MODES = [
    *["1", "L", "P", "LA", "PA", "La", "RGB", "YCbCr", "LAB", "HSV", "RGBA", "RGBa", "RGBX"],
    *["CMYK", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"],
]
PIXEL = {
    "L": 1, "P": 1, "LA": 2, "PA": 2, "La": 2, "I;16": 2, "RGB": 3, "YCbCr": 3, "LAB": 3, "HSV": 3,
}  # fmt: skip


def picture(mode, width, height):
    pixel = 2 if mode.startswith("I;16") else PIXEL.get(mode, 4)
    size = (width + 7) // 8 * height if mode == "1" else width * height * pixel
    data = np.random.default_rng(size).integers(0, 250, size, "u1").tobytes()
    return Image.frombytes(mode, (width, height), data)


@pytest.mark.each("mode", MODES)
@pytest.mark.each(("width", "height"), [(5, 3), (1, 1), (16, 2), (0, 0), (0, 3), (4, 0)])
@pytest.mark.each("images", ["array", "float32"])
def test_images_of_each_mode_are_decoded(mode, width, height, images, oracle, same):
    try:
        image = picture(mode, width, height)
    except ValueError as problem:
        pytest.skip(f"this Pillow: {problem}")
    sent = rlx.encode({"i": [image]})
    assert sent == oracle.encode({"i": [image]})
    for copy in (True, False, None):
        decoded = rlx.decode(sent, images=images, copy=copy)["i"][0]
        assert decoded.shape[:2] == (height, width)
        assert same(decoded, oracle.decode(sent, images=images)["i"][0])
        assert decoded.flags.writeable or not copy


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"])
def test_image_bytes_are_scaled_to_float32_as_by_numpy(mode):
    pixels = np.arange(256 * 12, dtype="u2").astype("u1")
    image = Image.frombytes(mode, (256, 12 // PIXEL.get(mode, 4)), pixels.tobytes())
    decoded = rlx.decode(rlx.encode({"i": image}), images="float32")["i"]
    assert decoded.dtype == np.float32
    assert decoded.ravel().tobytes() == (pixels.astype(np.float32) * (1.0 / 255.0)).tobytes()
    assert decoded.flags.owndata
    assert decoded.flags.writeable


MESSAGES = [
    ({"a": floats(600)}, "a"),
    ({"command": "update", "reward": 1.0, "state": floats(5000), "terminal": False}, "state"),
    ({"a": [1, "x", floats(3), floats(700)], "b": floats(9000)}, None),
    ({"a": {"b": {"c": floats(700)}}}, None),
    ({"a": picture("RGB", 84, 84), "b": floats(5000)}, None),
]


@pytest.mark.parametrize(("message", "key"), MESSAGES)
def test_data_offset_is_the_start_of_the_first_large_array(message, key):
    frame = rlx.encode(message, framed=True)
    parts = rlx.encode_parts(message, framed=True)
    expected = len(parts[0])  # up to the first large array or image
    buffer = b"???" + frame + b"???"
    for start in range(0, expected):
        assert rlx.data_offset(buffer, 3, 3 + start) == 0
    for end in (expected, expected + 1, expected + 100, len(frame)):
        assert rlx.data_offset(buffer, 3, 3 + end) == expected
    block = Block(len(frame) + 64)
    begin = -expected % 64
    memoryview(block)[begin : begin + len(frame)] = frame
    decoded = rlx.decode(memoryview(block)[begin : begin + len(frame)], copy=None, framed=True)
    if key is not None:
        assert decoded[key].base is not None
        assert address(decoded[key]) % 64 == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"x", b"05:", b"99999999999:", b"10:\2\0\0\0", b"50:\1\0\0\0\1\0\0\0a\x63",
        b"99999:\1\0\0\0\1\0\0\0a\7\6\0\0\0object\1\0\0\0",
        b"999999:\1\0\0\0\1\0\0\0a\7\0\0\1\0name of a dtype that is far too long",
    ],
)  # fmt: skip
def test_data_offset_of_malformed_frames_is_within_the_frame(frame):
    for end in range(len(frame) + 1):
        assert 0 <= rlx.data_offset(frame, 0, end) <= end


def test_decode_whole_decodes_only_one_complete_frame(same):
    message = {"command": "update", "state": floats(5), "terminal": False}
    frame = rlx.encode(message, framed=True)
    for options in ({}, {"framed": True, "copy": None}, {"copy": False}):
        decoder = rlx.RLXDecoder(**options)
        inbox = bytearray(4096)
        inbox[: len(frame)] = frame
        for feed in (inbox, memoryview(inbox), bytes(inbox), in_block(bytes(inbox))[0]):
            decoded = decoder.decode_whole(feed, len(frame))
            assert same(decoded, message)
            assert decoded["state"].flags.owndata
        inbox.extend(b"x")  # nothing looks at it any more
        glued = frame + frame
        for size in range(len(glued) + 1):
            if size != len(frame):
                assert decoder.decode_whole(glued, size) is None
    for other in (b"", b"x", b"05:hello,", b"5:hello;", b"9" * 30 + b":,", b"-1:,"):
        assert rlx.RLXDecoder().decode_whole(other, len(other)) is None


def test_decode_whole_returns_none_over_the_received_limit():
    frame = rlx.encode({"k": "x" * 50}, framed=True)
    assert rlx.RLXDecoder().decode_whole(frame, len(frame)) == {"k": "x" * 50}
    assert rlx.RLXDecoder(limits=Limits(received=50)).decode_whole(frame, len(frame)) is None
    huge = Limits(received=2**60 - 1)
    for number in (2**64 - 1, 2**64 + 4, 2**60):
        frame = b"%d:abcd," % number
        assert rlx.RLXDecoder(limits=huge).decode_whole(frame, len(frame)) is None


def test_decoder_options_are_validated():
    for options in [{"copy": 2}, {"copy": "yes"}, {"images": "jpeg"}]:
        raised_with(ValueError, r"copy|images", rlx.RLXDecoder, **options)
        raised_with(ValueError, r"copy|images", rlx.decode, rlx.encode({}), **options)
    assert "Limits" in str(raised(TypeError, rlx.RLXDecoder, limits=5))

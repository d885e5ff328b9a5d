import collections
import dataclasses
import enum
import io
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from rlwire.codecs import rlx
from rlwire.errors import EncodeError, LimitExceeded, shown
from rlwire.limits import Limits
from tests.raising import raised, raised_with

LARGE = 4096  # bytes; arrays from here on go by reference


def encoded(value, **options):
    return rlx.encode({"": value}, **options)[8:]


def array_of(size, dtype="u1"):
    return np.random.default_rng(size).integers(0, 256, size, "u1").view(dtype)


class Colour(enum.IntEnum):
    RED = 7


class Flag(enum.IntFlag):
    BIG = 2**40


class Text(str, enum.Enum):
    NAME = "name"


class MyFloat(float):
    pass


class MyList(list[Any]):
    pass


class Point(NamedTuple):
    x: int
    y: float


class Silent:
    """Equal to nothing RLX knows."""


SUBCLASSES = [
    pytest.param(Colour.RED, 7, id="IntEnum"),
    pytest.param(Flag.BIG, 2**40, id="IntFlag"),
    pytest.param(Text.NAME, "name", id="str enum"),
    pytest.param(MyFloat(2.5), 2.5, id="float"),
    pytest.param(np.str_("text"), "text", id="np.str_"),
    pytest.param(np.float64(0.1), 0.1, id="np.float64"),
    pytest.param(MyList([1, 2]), [1, 2], id="list"),
    pytest.param(Point(1, 2.0), [1, 2.0], id="namedtuple"),
    pytest.param(collections.OrderedDict(a=1, b=2), {"a": 1, "b": 2}, id="OrderedDict"),
    pytest.param(collections.defaultdict(int, a=1), {"a": 1}, id="defaultdict"),
    pytest.param(collections.Counter("aab"), {"a": 2, "b": 1}, id="Counter"),
]

REFUSED = [
    pytest.param(2**63, "TYPE_INT64", id="2**63"),
    pytest.param(-(2**63) - 1, "TYPE_INT64", id="-2**63-1"),
    pytest.param(np.uint64(2**63), "TYPE_INT64", id="uint64"),
    pytest.param(np.complex64(1), "complex64", id="complex scalar"),
    pytest.param(np.datetime64("2020-01-01"), "datetime64", id="datetime scalar"),
    pytest.param(1j, "complex", id="complex"),
    pytest.param({1, 2}, "set", id="set"),
    pytest.param(Silent(), "Silent", id="object"),
    pytest.param(io.BytesIO(b"x"), "BytesIO", id="file"),
    pytest.param("\ud800", "surrogate", id="lone surrogate"),
    pytest.param({"\udfff": 1}, "surrogate", id="lone surrogate in a key"),
    pytest.param({1: 2}, "must be str, not int", id="int key"),
]


@pytest.mark.parametrize(("value", "plain"), SUBCLASSES)
def test_subclass_instance_is_encoded_as_its_base_type(value, plain):
    assert encoded(value) == encoded(plain)
    assert encoded([value]) == encoded([plain])


@pytest.mark.each(("value", "words"), REFUSED)
@pytest.mark.each("nested", [False, True])
def test_unencodable_values_are_rejected_with_their_path(value, words, nested):
    message = {"state": [0, {"x": (value,)}]} if nested else {"state": value}
    caught = raised(EncodeError, rlx.encode, message)
    assert caught.path == ("$.state[1].x[0]" if nested else "$.state")
    assert caught.path in str(caught)
    for other in (lambda: rlx.encode_parts(message), lambda: rlx.encode_into(message, bytearray())):
        raised_with(EncodeError, words, other)


@pytest.mark.parametrize("message", [None, 5, [], "text", [("a", 1)]])
def test_non_dict_message_is_rejected(message):
    for encoder in (rlx, rlx.RLXEncoder()):
        for call in (encoder.encode, encoder.encode_parts):
            raised(EncodeError, call, message)
    raised(EncodeError, rlx.encode_into, message, bytearray(10))


SHAPES_OF_MESSAGES = [
    {}, {"command": "reset"}, {"a": array_of(LARGE - 1)}, {"a": array_of(LARGE)},
    {"a": array_of(LARGE), "b": 1}, {"a": array_of(LARGE), "b": array_of(LARGE + 1)},
    {"text": "x" * 5000, "a": array_of(10_000), "more": "y" * 5000},
    {f"k{i}": array_of(LARGE + i) for i in range(40)},
    {"list": [array_of(LARGE + i) for i in range(9)], "tail": {"x": array_of(100)}},
    {"many": list(range(3000))},
]  # fmt: skip


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("message", SHAPES_OF_MESSAGES)
def test_each_encode_function_produces_the_same_bytes(message, framed, oracle):
    expected = oracle.encode(message)
    if framed:
        expected = b"%d:%b," % (len(expected), expected)
    assert rlx.encode(message, framed=framed) == expected
    parts = rlx.encode_parts(message, framed=framed)
    assert b"".join(parts) == expected
    assert all(len(part) for part in parts) or message == {}
    room = bytearray(b"\xaa" * (len(expected) + 30))
    assert rlx.encode_into(message, room, 10, framed=framed) == len(expected)
    assert room == b"\xaa" * 10 + expected + b"\xaa" * 20


def test_object_with_an_image_attribute_is_encoded_as_its_image():
    """RELAAX's RLXMessageImage is such an object."""

    @dataclasses.dataclass
    class Wrapper:
        image: Any

    image = Image.frombytes("RGB", (2, 1), b"abcdef")
    assert encoded(Wrapper(image)) == encoded(image)
    raised(EncodeError, encoded, Wrapper("no image"))


class Meddler:
    """Does something to the message when it is asked for its array."""

    def __init__(self, deed):
        self.deed = deed

    def __array__(self, dtype=None, copy=None):
        self.deed()
        return np.zeros(2, "u1")


@pytest.mark.parametrize("top", [True, False])
def test_dict_that_changes_while_encoded_is_rejected(top):
    def encode(change, rest=5):
        entries = {"first": "x" * 100}
        entries["meddler"] = Meddler(lambda: change(entries))
        entries |= {f"k{i}": [i] * 10 for i in range(rest)}
        return rlx.encode(entries if top else {"m": entries})

    def grow(entries):
        entries.update({f"new {i}": Meddler(lambda: grow(entries)) for i in range(100)})

    def grow_by_one(entries):
        entries[f"new {len(entries)}"] = Meddler(lambda: grow_by_one(entries))

    for change in (dict.clear, dict.popitem, grow, grow_by_one):
        raised(EncodeError, encode, change)

    def replace(entries):
        entries["first"] = entries["meddler"] = entries["k1"] = None

    assert b"k4" in encode(replace)  # the same keys: nothing to object to


@pytest.mark.parametrize("change", [list.clear, list.pop, lambda items: items.append(1)])
def test_list_that_changes_while_encoded_is_rejected(change):
    items = ["x" * 100]
    items += [Meddler(lambda: change(items)), *[[i] * 10 for i in range(50)]]
    raised(EncodeError, rlx.encode, {"m": items})


def test_cyclic_value_exceeds_the_depth_limit():
    items = []
    items.append(items)
    entries = {}
    entries["again"] = (entries,)
    for value, path in ((items, "$.a" + "[0]" * 64), (entries, "$.a" + ".again[0]" * 32)):
        problem = raised(LimitExceeded, rlx.encode, {"a": value})
        assert (problem.limit, problem.maximum, problem.size) == ("depth", 64, 65)
        assert problem.path == shown(path)
        assert problem.offset is None
    message = {}
    message["self"] = message
    assert raised(LimitExceeded, rlx.encode, message).limit == "depth"


def nest(levels):
    value = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


OVER = [
    pytest.param({"depth": 3}, {"a": nest(3)}, {"a": nest(4)}, 4, id="depth"),
    pytest.param({"depth": 500}, {"a": nest(500)}, {"a": nest(501)}, 501, id="deepest"),
    pytest.param({"items": 5}, {"a": [1, 2, 3], "b": 4}, {"a": [1, 2, 3, 4], "b": 5}, 6, id="list"),
    pytest.param(
        {"items": 3}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 2, "d": 3}}, 4, id="dict"
    ),
    pytest.param({"items": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, 3, id="entries"),
    pytest.param({"items": 4}, {"a": ((), (), ())}, {"a": ((), (), (), ())}, 5, id="tuple"),
    pytest.param({"dims": 2}, {"a": np.zeros((1, 1))}, {"a": np.zeros((1, 1, 1))}, 3, id="dims"),
    pytest.param({"string": 4}, {"a": "éé"}, {"a": "ééa"}, 5, id="string"),
    pytest.param({"string": 4}, {"aaaa": 1}, {"aaaaa": 1}, 5, id="key"),
    pytest.param(
        {"pixels": 6}, {"i": Image.new("L", (2, 3))}, {"i": Image.new("1", (7, 1))}, 7, id="pixels"
    ),
    pytest.param({"message": 10}, {"k": None}, {"kk": None}, 11, id="message"),
    pytest.param(
        {"message": 127}, {"k": np.zeros(96, "u1")}, {"k": np.zeros(128, "u1")}, 128, id="array"
    ),
]


@pytest.mark.parametrize(("limit", "fits", "over", "size"), OVER)
def test_encoder_rejects_values_over_the_limits(limit, fits, over, size):
    limits = Limits(**limit)
    ((name, maximum),) = limit.items()
    rlx.encode(fits, limits=limits)
    for call in (
        rlx.encode,
        rlx.encode_parts,
        lambda m, **o: rlx.encode_into(m, bytearray(9), **o),
    ):
        caught = raised(LimitExceeded, call, over, limits=limits)
        assert (caught.limit, caught.maximum) == (name, maximum)
        assert caught.size == size


def test_message_limit_is_checked_before_copying_an_array():
    strided = np.zeros((2, 100_000), np.uint8)[:, ::2]  # 100,000 bytes as a message has them
    message, limits = {"state": [strided] * 3}, Limits(message=250_000)
    caught = raised(LimitExceeded, rlx.encode, message, limits=limits)
    assert (caught.path, caught.size) == ("$.state[2]", 300_000)


@pytest.mark.parametrize("name", ["decode", "encode", "encode_into", "encode_parts"])
def test_unknown_option_is_an_error_of_the_called_function(name):
    buffers = {"decode": [b""], "encode_into": [{}, bytearray(9)]}
    function = getattr(rlx, name)
    raised_with(TypeError, rf"^{name}\(\).*'frame'", function, *buffers.get(name, [{}]), frame=True)
    assert all(option in rlx.encode.__doc__ for option in ("dialect", "dtype", "framed", "limits"))

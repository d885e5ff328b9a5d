"""`rlwire.install("msgpack_numpy")`: the library as a program sees it, with and without."""

import numpy as np
import pytest

import rlwire
from rlwire import installing
from rlwire.errors import DecodeError, EncodeError
from tests.test_msgpack_numpy import ADDRESSES, PICKLED

library = pytest.importorskip("msgpack_numpy")
msgpack = pytest.importorskip("msgpack")

# As a program has them that imported them before.
from msgpack_numpy import Packer, Unpacker, decode, encode, packb, unpackb  # noqa: E402

from tests.raising import raised  # noqa: E402

NAMES = [
    "Packer", "Unpacker", "packb", "unpackb", "pack", "unpack", "dump", "dumps", "load", "loads",
]  # fmt: skip
VALUE = {"image": np.arange(48, dtype=np.uint8).reshape(4, 4, 3), "state": np.float32(0.5), "n": 1j}
OBJECTS = np.array([1.5, 2.5], object)


@pytest.fixture
def installed():
    rlwire.install("msgpack_numpy")
    yield
    rlwire.uninstall("msgpack_numpy")


@pytest.fixture
def patched():
    """The msgpack package as it was, whatever a test patches."""
    before = {name: getattr(msgpack, name) for name in NAMES}
    yield
    for name, original in before.items():
        setattr(msgpack, name, original)


class Counting:
    """Counts calls of the codec, which shows in whose hands a message is."""

    def __init__(self, monkeypatch):
        self.calls = 0
        for name in ("ndarray_to_bytes", "_unpack_dtype"):
            monkeypatch.setattr(library, name, self.counted(getattr(library, name)))

    def counted(self, original):
        def call(*args):
            self.calls += 1
            return original(*args)

        return call


def check(found):
    np.testing.assert_array_equal(found["image"], VALUE["image"])
    assert found["image"].dtype == np.uint8
    assert found["state"] == np.float32(0.5)
    assert type(found["state"]) is np.float32
    assert found["n"] == 1j


def test_drop_in_replaces_every_function(installed, patched, monkeypatch):
    library.patch()
    original = Counting(monkeypatch)
    ways = [
        (library.packb, library.unpackb),
        (library.dumps, library.loads),
        (msgpack.packb, msgpack.unpackb),
        (library.Packer().pack, library.unpackb),
        (msgpack.Packer().pack, msgpack.loads),
        # Names from before.
        (packb, unpackb),
        (Packer().pack, unpackb),
    ]
    for pack, unpack in ways:
        check(unpack(pack(VALUE)))
    for unpacker in (library.Unpacker(), msgpack.Unpacker(), Unpacker()):
        unpacker.feed(packb(VALUE))
        check(unpacker.unpack())
    assert original.calls == 0, "the library's own code was at work"


def test_uninstall_restores_the_library(patched):
    def everything():
        found = {("library", name): value for name, value in vars(library).items()}
        for name in ("packb", "unpackb", "unpack", "encode", "decode"):
            found["code", name] = getattr(library, name).__code__
        found |= {("msgpack", name): value for name, value in vars(msgpack).items()}
        for kind in (library.Packer, library.Unpacker):
            found |= {(kind.__name__, name): value for name, value in vars(kind).items()}
        return found

    for before in (lambda: None, library.patch):
        before()
        was = everything()
        rlwire.install("msgpack_numpy")
        assert library.packb.__code__ is not was["code", "packb"]
        rlwire.install("msgpack_numpy")
        rlwire.uninstall("msgpack_numpy")
        rlwire.uninstall("msgpack_numpy")
        now = everything()
        assert now.keys() == was.keys()
        assert [name for name, value in was.items() if now[name] is not value] == []


def test_user_subclasses_of_packer_and_unpacker_use_the_drop_in(installed):
    class Mine(Packer):
        def pack(self, obj):
            return b"mine" + super().pack(obj)

    class Yours(Unpacker):
        pass

    packed = Mine().pack(VALUE)
    assert packed[:4] == b"mine"
    unpacker = Yours()
    unpacker.feed(packed[4:])
    check(unpacker.unpack())


def test_packers_created_before_install_keep_working(patched):
    old_packer, old_unpacker = Packer(), Unpacker()
    rlwire.install("msgpack_numpy")
    old_unpacker.feed(old_packer.pack(VALUE))
    check(old_unpacker.unpack())
    new_packer, new_unpacker = Packer(), Unpacker()
    half = new_packer.pack(VALUE)
    new_unpacker.feed(half[:20])
    rlwire.uninstall("msgpack_numpy")
    new_unpacker.feed(half[20:])
    check(new_unpacker.unpack())
    assert new_packer.pack(VALUE) == half


@pytest.mark.parametrize(
    "call",
    [
        lambda: library.packb(object()), lambda: library.Packer().pack({1, 2}),
        lambda: library.unpackb(b""), lambda: library.unpackb(b"\x81\x01\x02"),
        lambda: library.unpackb(b"\x01", no_such=1), lambda: library.unpackb("a text"),
        lambda: library.unpackb(b"\x01", timestamp=9),
    ],
)  # fmt: skip
def test_drop_in_raises_the_errors_of_the_library(call, request):
    def outcome():
        try:
            return call()
        except Exception as error:
            return type(error)

    without = outcome()
    request.getfixturevalue("installed")
    assert outcome() == without


def test_drop_in_delegates_unsupported_values_to_the_library(installed):
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    np.testing.assert_array_equal(library.unpackb(library.packb(masked)), [1, 2, 3])
    deep = []
    for _ in range(505):
        deep = [deep]
    assert library.unpackb(library.packb(deep)) == deep


# -- pickles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("trap", [PICKLED, ADDRESSES])
def test_drop_in_decoder_rejects_object_arrays(installed, patched, trap):
    library.patch()
    packed = msgpack.packb(trap)
    for unpack in (library.unpackb, unpackb, msgpack.unpackb):
        raised(DecodeError, unpack, packed)
    raised(DecodeError, msgpack.unpackb, packed, object_hook=library.decode)
    for unpacker in (library.Unpacker(), Unpacker()):
        unpacker.feed(packed)
        raised(DecodeError, unpacker.unpack)


def test_drop_in_encoder_rejects_object_arrays(installed):
    for pack in (library.packb, packb, library.Packer().pack, Packer(autoreset=False).pack):
        assert "pickle" in str(raised(EncodeError, pack, {"a": OBJECTS}))


def test_pickle_option_delegates_object_arrays_to_the_library():
    installing.install("msgpack_numpy", pickle=True)
    try:
        for pack in (library.packb, packb, Packer().pack):
            found = unpackb(pack({"a": OBJECTS, "b": np.arange(3)}))
            assert found["a"].dtype == object
            assert found["a"].tolist() == [1.5, 2.5]
        raised(DecodeError, library.unpackb, msgpack.packb(ADDRESSES))
        assert "pickle" in str(raised(RuntimeError, rlwire.install, "msgpack_numpy"))
        installing.install("msgpack_numpy", pickle=True)
    finally:
        rlwire.uninstall("msgpack_numpy")


def test_hooks_imported_before_install_use_the_drop_in(installed):
    check(msgpack.unpackb(msgpack.packb(VALUE, default=encode), object_hook=decode))
    raised(EncodeError, encode, OBJECTS)
    for trap in (PICKLED, ADDRESSES):
        raised(DecodeError, msgpack.unpackb, msgpack.packb(trap), object_hook=decode)


# -- other versions ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["packb", "decode", "Packer"])
def test_install_rejects_a_version_without_a_patched_name(name, monkeypatch):
    monkeypatch.delattr(library, name)
    with pytest.raises(RuntimeError, match=rf"{name}\b.* 0\.4\.8"):
        rlwire.install("msgpack_numpy")
    assert "msgpack_numpy" not in installing._installed

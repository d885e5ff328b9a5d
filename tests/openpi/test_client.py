"""`rlwire.openpi`'s functions, and `rlwire.install("openpi_client")`."""

import contextlib
import io
import subprocess
import sys

import numpy as np
import pytest

import rlwire
from rlwire import installing, msgpack_numpy
from rlwire import openpi as ours
from rlwire.errors import DecodeError, EncodeError
from rlwire.openpi import Server

msgpack = pytest.importorskip("msgpack")
theirs = pytest.importorskip("openpi_client.msgpack_numpy")

# As a program has them that imported them before.
from openpi_client.msgpack_numpy import Packer, Unpacker, packb, unpackb  # noqa: E402

from tests.raising import raised, raised_with  # noqa: E402

# The kinds of values that openpi-client's own tests go through, and some more.
VALUES = {
    "float": 1.5,
    "numpy bool": np.bool_(True),
    "numpy int": np.int64(3),
    "numpy float32": np.float32(0.1),
    "numpy float64": np.float64(0.1),
    "numpy str": np.str_("fold"),
    "dict": {"key": "value", b"key": {"more": [1, 2]}},
    "no dimensions": np.array(1.0),
    "no items": np.zeros((0, 3), np.int8),
    "strings": np.array(["fold", "towel"]),
    "bytes": np.array([b"fold", b"towel"]),
    "bools": np.array([True, False]),
    "cube": np.arange(8, dtype=np.int16).reshape(2, 2, 2),
    "special": np.array([np.nan, np.inf, -np.inf]),
    "dates": np.array(["2024-02-29"], "M8[D]"),
    "strided": np.arange(20)[::3],
    "big endian": np.arange(3, dtype=">u2"),
    "nested": {"arr": np.arange(3), "nested": {"arr": np.arange(6.0).reshape(2, 3)}},
    "observation": {
        "observation/image": np.arange(224 * 224 * 3, dtype=np.uint32).astype(np.uint8),
        "observation/state": np.arange(8, dtype=np.float32),
        "prompt": "fold the towel",
    },
}
COMPLEX = np.arange(3) * 1j
ADDRESSES = {b"__ndarray__": True, b"data": b"\x41" * 8, b"dtype": "|O", b"shape": (1,)}


@pytest.mark.each("name", VALUES)
def test_codec_matches_openpi_in_bytes_and_values(name, same):
    value = VALUES[name]
    packed = theirs.packb(value)
    assert ours.packb(value) == ours.Packer().pack(value) == packed
    expected = theirs.unpackb(packed)
    assert same(ours.unpackb(packed), expected)
    unpacker = ours.Unpacker()
    unpacker.feed(packed)
    assert same(unpacker.unpack(), expected)
    assert same(list(ours.Unpacker(io.BytesIO(packed * 2))), [expected, expected])


@pytest.mark.each(
    "value", [COMPLEX, np.complex64(1j), np.array([None]), np.zeros(2, [("a", np.int32)])]
)
def test_values_openpi_does_not_send_are_rejected(value):
    for pack in (theirs.packb, ours.packb, ours.pack_array):
        with pytest.raises(ValueError):  # noqa: PT011
            pack(value)
    raised(EncodeError, ours.pack_array, value)


WRONG = [
    ADDRESSES,
    {b"__ndarray__": True, b"data": b"1234", b"dtype": "<c8", b"shape": (1,)},
    {b"__npgeneric__": True, b"data": 1, b"dtype": "|O"},
    # NumPy's own parser raises SyntaxError, and divides by zero.
    {b"__ndarray__": True, b"data": b"1234", b"dtype": "(,)f4", b"shape": (1,)},
    {b"__ndarray__": True, b"data": b"12345678", b"dtype": "M8[s/0]", b"shape": (1,)},
    {b"__npgeneric__": True, b"data": 1, b"dtype": "M8[s/0]"},
]


@pytest.mark.each("wrong", WRONG, ids=str)
def test_decoder_rejects_maps_that_describe_no_array(wrong):
    raised(DecodeError, ours.unpack_array, wrong)


# -- installed ---------------------------------------------------------------------------------


@pytest.fixture
def installed():
    rlwire.install("openpi_client")
    yield
    rlwire.uninstall("openpi_client")


@pytest.mark.each("name", VALUES)
def test_drop_in_matches_openpi_in_bytes_and_values(name, same):
    rlwire.install("openpi_client")
    packed = packb(VALUES[name])
    assert theirs.Packer().pack(VALUES[name]) == packed
    found = unpackb(packed)
    rlwire.uninstall("openpi_client")
    assert packed == packb(VALUES[name])
    assert same(found, unpackb(packed))


def test_install_replaces_every_codec_function(installed):
    """Seen by what only rlwire does: large arrays are views of the message."""
    packed = packb(VALUES["observation"])
    for unpack in (unpackb, theirs.unpackb):
        image = unpack(packed)["observation/image"]
        assert np.shares_memory(image, np.frombuffer(packed, np.uint8))
    assert isinstance(Packer(), msgpack_numpy.Packer)


def test_uninstall_restores_every_function():
    def everything():
        parts = vars(theirs).items()
        states = [
            (name, value.func, value.args, value.keywords)
            for name, value in parts
            if type(value).__name__ == "partial"
        ]
        assert len(states) == 4
        return [(name, id(value)) for name, value in parts], states

    was = everything()
    for _ in range(2):
        rlwire.install("openpi_client")
    assert everything() != was
    for _ in range(2):
        rlwire.uninstall("openpi_client")
    assert everything() == was


def test_custom_hooks_override_the_array_hooks(installed):
    def default(value):
        return repr(type(value))

    for pack in (packb, lambda value, **options: Packer(**options).pack(value)):
        assert msgpack.unpackb(pack(np.arange(3), default=default)) == repr(np.ndarray)
    packed = packb({"a": np.arange(3)})
    assert unpackb(packed, object_hook=dict)["a"][b"__ndarray__"] is True
    unpacker = Unpacker(object_hook=dict)
    unpacker.feed(packed)
    assert unpacker.unpack()["a"][b"__ndarray__"] is True


@pytest.mark.parametrize(
    "call",
    [
        lambda: packb(object()), lambda: packb(COMPLEX), lambda: packb(1, no_such=1),
        lambda: packb(), lambda: theirs.Packer(1, 2), lambda: unpackb(b""),
        lambda: unpackb(b"\x01", no_such=1), lambda: unpackb("a text"),
        lambda: unpackb(b"\x81\x01\x02", strict_map_key=False),
    ],
)  # fmt: skip
def test_drop_in_raises_the_same_error_types_as_the_library(call):
    def outcome():
        try:
            return call()
        except Exception as error:
            return type(error)

    without = outcome()
    rlwire.install("openpi_client")
    try:
        found = outcome()
        assert found == without or (found, without) == (EncodeError, ValueError)
    finally:
        rlwire.uninstall("openpi_client")


def test_decoder_rejects_object_arrays(installed):
    packed = msgpack.packb(ADDRESSES)
    raised(DecodeError, unpackb, packed)
    unpacker = Unpacker()
    unpacker.feed(packed)
    raised(DecodeError, unpacker.unpack)


def test_drop_in_coexists_with_the_msgpack_numpy_drop_in(same, monkeypatch):
    library = pytest.importorskip("msgpack_numpy")
    for name, value in list(vars(msgpack).items()):
        monkeypatch.setattr(msgpack, name, value)  # put back afterwards
    try:
        rlwire.install("msgpack_numpy")
        library.patch()
        rlwire.install("openpi_client")
        packed = packb(VALUES["nested"])
        assert b"__ndarray__" in packed
        assert same(unpackb(packed), VALUES["nested"])
    finally:
        rlwire.uninstall("openpi_client")
        rlwire.uninstall("msgpack_numpy")


@pytest.mark.parametrize("name", ["packb", "Unpacker"])
def test_install_rejects_an_unknown_openpi_client_version(name, monkeypatch):
    monkeypatch.setattr(theirs, name, getattr(msgpack, name))
    raised_with(RuntimeError, f"msgpack_numpy.{name}", rlwire.install, "openpi_client")
    assert "openpi_client" not in installing._installed


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")
def test_openpis_client_works_with_the_drop_in(installed, same):
    policies = pytest.importorskip("openpi_client.websocket_client_policy")
    with Server(lambda obs: {"seen": obs}, "127.0.0.1:0") as server:
        client = policies.WebsocketClientPolicy("127.0.0.1", server.address.port)
        with contextlib.closing(client._ws):
            assert same(client.infer(VALUES["observation"])["seen"], VALUES["observation"])


OWN_TESTS = """
import sys
import pytest
import rlwire
rlwire.install("openpi_client")
options = ["-q", "-p", "no:cacheprovider", "-c", "none.ini", "--rootdir", "."]
sys.exit(pytest.main([*options, "--pyargs", "openpi_client.msgpack_numpy_test"]))
"""


def test_openpi_client_test_suite_passes_with_the_drop_in(tmp_path):
    pytest.importorskip("tree")
    (tmp_path / "none.ini").write_text("[pytest]\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", OWN_TESTS], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 passed" in done.stdout

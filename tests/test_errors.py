import copy
import json
import pickle
import sys

import pytest

import rlwire
from rlwire import _imports, errors
from rlwire.codecs.http2.frames import Http2Error
from rlwire.environments.loading import load_environment
from rlwire.environments.spaces import describe, space_of
from rlwire.limits import Limits
from rlwire.perlert.cipher import DatagramCipher
from rlwire.perlert.spaces import SpaceText
from rlwire.rlx import TensorBoardMetrics
from rlwire.rlx.config import EnvironmentOptions
from rlwire.sessions.grpc import CallEnded, CallStatus
from rlwire.sessions.websocket import Closed
from tests.raising import raised

BASES = {
    **dict.fromkeys(("EncodeError", "DecodeError", "LimitExceeded"), ValueError),
    **dict.fromkeys(("LocalProtocolError", "RemoteProtocolError", "PeerError"), Exception),
    "DeadlineExceeded": TimeoutError,
    "ConnectionClosed": ConnectionError,
    "MissingExtra": ImportError,
}


def test_error_classes_have_their_bases_and_docs():
    for name, base in BASES.items():
        assert issubclass(getattr(errors, name), base)
        assert errors.RlwireError in getattr(errors, name).__mro__
        assert f"{name} " in (errors.__doc__ or "")


def test_errors_keep_their_arguments_as_attributes():
    encode = errors.EncodeError("why", path="$.a")
    assert (encode.reason, encode.path) == ("why", "$.a")
    decode = errors.DecodeError("why", offset=3, path="$.a")
    assert (decode.reason, decode.offset, decode.path) == ("why", 3, "$.a")
    limit = errors.LimitExceeded("items", 5, 6, offset=1, path="$")
    assert (limit.limit, limit.maximum, limit.size) == ("items", 5, 6)
    assert (limit.offset, limit.path) == (1, "$")
    assert errors.LimitExceeded("items", 5, 6).offset is None
    missing = errors.MissingExtra("rich", "bench")
    assert (missing.package, missing.extra) == ("rich", "bench")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder with the metadata of a rlwire that has no extra, as the only installed package."""
    info = tmp_path / "site" / "rlwire-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: rlwire\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(info.parent)])
    monkeypatch.setattr(_imports, "__file__", str(info.parent / "rlwire" / "_imports.py"))
    monkeypatch.chdir(tmp_path)
    return info


def test_missing_extra_has_the_command_for_its_installation(installed, tmp_path):
    wheel = tmp_path / "rlwire-1.whl"
    origins = (
        ({"url": f"file://{wheel}", "archive_info": {}}, "rlwire[gym]"),  # while there is no file
        ({"url": f"file://{tmp_path}", "dir_info": {}}, f"{tmp_path}[gym]"),
        ({"url": "https://a.b/c", "vcs_info": {"vcs": "git"}}, "rlwire[gym] @ git+https://a.b/c"),
    )
    for origin, what in origins:
        (installed / "direct_url.json").write_text(json.dumps(origin))
        assert _imports.install_command("gym") == f"pip install '{what}'"
    (tmp_path / "rlwire").mkdir()
    (tmp_path / "rlwire" / "buffers.pyx").touch()  # a checkout
    assert _imports.install_command("gym") == "pip install '.[gym]'"


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("cryptography.exceptions", "gym", lambda: DatagramCipher(bytes(32), "client")),
        ("gymnasium", "gym", lambda: SpaceText(object(), "it", named=True)),
        ("gymnasium", "gym", lambda: describe(object())),
        ("gymnasium", "gym", lambda: space_of({"discrete": 2})),
        ("gymnasium", "gym", lambda: load_environment("gym:CartPole-v1")),
        ("onnxruntime", "onnx", lambda: rlwire.play("gym:CartPole-v1", "rllink://127.0.0.1:1")),
        ("tensorboardX", "metrics", lambda: TensorBoardMetrics("anywhere")),
        ("ruamel.yaml", "relaax", lambda: EnvironmentOptions().load(["--config", "app.yaml"])),
        ("mcap", "record", lambda: rlwire.connect("rlx://127.0.0.1:9", record="run.mcap")),
    ],
)
def test_use_without_its_package_names_the_extra(module, extra, use, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    assert raised(errors.MissingExtra, use).extra == extra


@pytest.mark.parametrize(
    "error",
    [
        errors.EncodeError("why", path="$.a"),
        errors.DecodeError("why", offset=3, path="$.a"),
        errors.LimitExceeded("items", 5, 6, offset=1, path="$"),
        errors.LimitExceeded("items", 5, 6),
        errors.LimitExceeded("items", 5, 6, advice="send fewer"),
        errors.LimitExceeded("items", 5, 6, path="$.\n", whose="the server"),
        errors.DecodeError("\n" * 5000, path="\x1b" * 5000),
        errors.PeerError("\n" * 5000),
        errors.MissingExtra("rich", "bench"),
        errors.PeerError("text"),
        errors.ConnectionClosed("text"),
        Http2Error("why", 8, 7, offset=3),
        CallEnded(CallStatus("ABORTED", "why", (("t-bin", b"\1"),))),
        Closed(4000, "bye"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling_and_copying(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


BAD = "a\nb\x1b[31m\u2028\u202e\ud800é\\'"


def test_text_of_a_peer_is_one_printable_line():
    assert errors.shown(BAD) == "a\\nb\\x1b[31m\\u2028\\u202e\\ud800é\\'"
    for kind in (errors.EncodeError, errors.DecodeError):
        for error in (kind(BAD), kind("why", path="$." + BAD)):
            assert str(error).isprintable()
            assert error.reason.isprintable()
            assert error.path.isprintable()
    for name in BASES:
        if name != "LimitExceeded" and name != "MissingExtra":
            assert str(getattr(errors, name)(BAD)).isprintable()
    assert str(errors.LimitExceeded("items", 1, 2, path=BAD, advice=BAD)).isprintable()
    assert errors.quoted(BAD).isprintable()
    assert errors.quoted({BAD: [BAD]}).isprintable()


@pytest.mark.parametrize("character", ["a", "\n", "\U000e0001"])
def test_text_of_a_peer_is_bounded_in_length(character):
    long = character * 1_000_000
    assert len(errors.shown(long)) <= 200
    assert errors.shown(long).endswith("... (1000000 characters)")
    assert errors.shown(errors.shown(long)) == errors.shown(long)
    assert len(errors.DecodeError("why", path=long).path) <= 200
    assert len(str(errors.DecodeError(long))) < 2100
    assert len(str(errors.RlwireError(long))) <= 2000
    assert len(errors.quoted(long)) < 1100
    assert errors.quoted(long).endswith("... (1000000 characters)")
    assert len(errors.quoted([long] * 1000)) <= 100
    assert errors.shown("a" * 200) == "a" * 200


def test_peer_error_keeps_its_text():
    text = "Traceback:\n  " + "x" * 5000
    error = errors.PeerError(text)
    assert error.text == text
    assert str(error).isprintable()


def test_limit_errors_name_the_side_and_the_option():
    for name, value in vars(Limits()).items():
        if name == "datagram":
            continue
        error = errors.LimitExceeded(name, min(value, 31), value + 1, offset=3)
        way = f": limits=Limits({name}=N), --limits.{name}"
        assert str(error).endswith(f"raise this side's limit{way}")
        theirs = errors.for_peer(error, "the server")
        assert f"{name}={error.maximum} of the server: raise it there{way}" in theirs
        # So much of it goes into a WebSocket's close frame.
        assert (
            way in errors.for_peer(errors.LimitExceeded(name, value, value + 1), "the server")[:123]
            or value < 99
        )
    for name in ("max_connections", "max_sids"):
        option = name.replace("_", "-")
        assert str(errors.LimitExceeded(name, 5, 6)).endswith(f"limit: {name}=N, --{option} N")
    assert errors.for_peer(errors.DecodeError("no"), "the server") == str(errors.DecodeError("no"))
    # Where nothing can be raised, nobody is told to.
    for name, limit in (("dims", 32), ("fragments", 131072)):
        assert "raise" not in str(errors.LimitExceeded(name, limit, limit + 1))


@pytest.mark.parametrize(
    "text", [errors.describe, errors.text_of, lambda error: errors.for_peer(error, "the server")]
)
def test_text_of_an_exception_is_encodable_and_bounded(text):
    class Silent(Exception):
        def __str__(self):
            raise ValueError

    assert text(ValueError("x")).removeprefix("ValueError: ") == "x"
    assert "Silent" in text(Silent())
    assert text(ValueError("\ud800")).encode("utf-8").endswith(b"\\ud800")
    assert len(errors.describe(ValueError("x" * 10**6))) < 3000


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_on_error_runs_when_the_block_fails(error):
    done = []
    with errors.on_error(lambda: done.append("too early")):
        pass
    with pytest.raises(error), errors.on_error(lambda: done.append("undone")):
        raise error
    assert done == ["undone"]

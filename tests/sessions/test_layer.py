"""`Layer` is the contract: what the others do with it, and a protocol that another package adds."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import rlwire
from rlwire import registry
from rlwire.errors import ConnectionClosed
from rlwire.sessions.layer import Layer, LayerPhase
from tests.raising import raised

PACKAGE = Path(rlwire.__file__).parent
CALLERS = [
    path
    for room in ("transports", "serving", "sessions")
    for path in sorted((PACKAGE / room).rglob("*.py"))
]
LAYERS = ("session", "layer", "connection", "inner", "outer", "core")


def names_a_layer(node):
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lstrip("_").removeprefix("make_") in LAYERS


@pytest.mark.each(("path",), [pytest.param(path, id=path.name) for path in CALLERS])
def test_callers_never_use_getattr_or_hasattr_on_a_layer(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            assert not names_a_layer(node.args[0]), f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.each(("path",), [pytest.param(path, id=path.name) for path in CALLERS])
def test_layer_parameters_are_never_annotated_any(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.arg) and names_a_layer(ast.Name(node.arg)):
            assert node.annotation is None or ast.unparse(node.annotation) != "Any", node.lineno


def test_layers_and_transports_do_not_import_each_other():
    for path in CALLERS:
        room = path.relative_to(PACKAGE).parts[0]
        for name in re.findall(
            r"^from rlwire\.(\S+) import", path.read_text("utf-8"), re.MULTILINE
        ):
            if room == "sessions":
                assert not name.startswith(("transports", "streams", "serving")), path
            elif room == "transports":
                assert name == "sessions.layer" or not name.startswith("sessions"), path


def test_layer_requires_only_three_methods():
    layer = Layer()
    assert (layer.phase, layer.closed, layer.opened) == (LayerPhase.OPEN, False, True)
    for method in (layer.frame_size, layer.receive, layer.send):
        raised(NotImplementedError, method, *range(len(inspect.signature(method).parameters)))
    assert layer.close_message() == []
    assert layer.closed


@pytest.fixture
def echo(tmp_path, monkeypatch):
    """Install the package with its metadata, as pip does."""
    metadata = tmp_path / "rlwire_echo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rlwire-echo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rlwire.protocols]\necho = rlwire_echo:PROTOCOL\n")
    source = Path(__file__).parent / "echo" / "rlwire_echo.py"
    (tmp_path / source.name).write_text(source.read_text("utf-8"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for cache in (registry._registered, registry._loaded):
        cache.cache_clear()
    yield
    for cache in (registry._registered, registry._loaded):
        cache.cache_clear()


def test_protocol_of_another_package_works_through_serve_and_connect(echo):
    with (
        rlwire.serve(bytes.upper, "echo://localhost:0?limits.received=100") as server,
        rlwire.connect(server.url) as client,
    ):
        assert server.url.startswith("echo://localhost:")
        expected = [b"ONE", b"", b"THREE"]
        assert [client.exchange(line) for line in (b"one", b"", b"three")] == expected
        client.send(b"x" * 200)
        raised(ConnectionClosed, client.receive)

"""Imports run downhill only, and importing the core pulls in nothing heavy."""

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import rlwire

INSTALLED = Path(rlwire.__file__).parent
# A wheel has no .pyx: those are read from the checkout that this file belongs to.
CHECKOUT = Path(__file__).parents[1] / "rlwire"

# What each room of the package may import beside itself. Rooms not named as keys are refused.
BASE = {"errors", "limits", "buffers", "kernels"}
SHARED = (BASE - {"kernels"}) | {"environments", "registry", "serving", "sessions", "transports"}
SHARED |= {"codecs", "layer", "_options", "recording", "urls", "web", "websocket"}
ROOMS = {"rlx", "dm_env_rpc", "perlert", "universe", "rllink", "openpi", "rllib", "relaax"}
ALLOWED = {
    "__init__": BASE
    | {"_imports", "_options", "environments", "installing", "serving", "transports", "urls"},
    "_imports": set(),
    "aio": {"__init__", "_options", "errors", "serving", "transports", "urls"},
    "errors": {"_imports", "limits"},
    "limits": set(),
    "kernels": set(),
    "buffers": {"errors"},
    "codecs": BASE,
    "layer": {"errors", "sessions"},  # sessions/layer.py; the password check's type
    "sessions": BASE | {"codecs", "layer"},
    "streams": {"buffers", "errors", "layer"},
    "transports": (BASE - {"kernels"}) | {"streams", "layer"},
    "_options": {"errors", "limits", "recording", "registry", "transports", "urls"},
    "registry": set(),
    "urls": {"errors", "recording", "registry", "transports"},
    "environments": (BASE - {"kernels"}) | {"transports", "codecs", "_options", "urls"},
    "websocket": {"errors", "layer", "sessions", "transports"},
    **dict.fromkeys(("serving", "recording", "rlx", "perlert"), SHARED),
    "universe": SHARED | {"streams"},  # types of the reader and the loan
    **dict.fromkeys(("dm_env_rpc", "rllink", "openpi"), SHARED | {"msgpack_numpy"}),  # drop-ins
    "msgpack_numpy": {"codecs", "errors", "limits"},
    "lerobot": {"_imports", "buffers", "codecs", "errors", "limits", "msgpack_numpy"},
    "installing": {"errors"},
    "relaax": SHARED | {"rlx", "__init__"},
    "rllib": SHARED | {"rllink", "rlx", "openpi", "relaax"},
    "testing": {"recording"},
    "bench": SHARED | ROOMS | {"__init__"},
    "demo": {"environments", "errors", "sessions", "transports", "universe"},
    "cli": SHARED | ROOMS | {"__init__", "bench", "demo"},
    "web": set(),
    "__main__": {"cli"},
}


def room_of(path, root):
    if path.stem == "layer":
        return "layer"
    return path.relative_to(root).parts[0].partition(".")[0]


def python_names(source, package):
    """What a Python file imports, wherever in the file; `package` is its own."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], base]).rstrip(".")
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<base>[\w.]+)[ \t]+c?import[ \t]+\(?(?P<names>[\w \t,]+|\*)"
    r"|c?import[ \t]+(?P<modules>[\w., \t]+))",
    re.MULTILINE,
)


def cython_names(source):
    found = set()
    for match in IMPORT.finditer(source):
        base = f"{match['base']}." if match["base"] else ""
        assert not base.startswith("."), match[0]
        for name in (match["names"] or match["modules"]).split(","):
            found |= {base + each for each in name.split()[:1]}
    return found


def rooms(names):
    """`rlwire.codecs.rlx` -> codecs; `rlwire` and `rlwire.__version__` -> __init__."""
    found = set()
    for name in names:
        package, _, rest = name.partition(".")
        if package == "rlwire":
            first = "layer" if rest.startswith("sessions.layer") else rest.partition(".")[0]
            found.add(first if first in ALLOWED else "__init__")
    return found


def sources():
    """(file, root) of all sources, Python's of the installed package."""
    found = [(path, INSTALLED) for path in sorted(INSTALLED.rglob("*.py"))]
    for suffix in ("*.pyx", "*.pxd"):
        root = INSTALLED if any(INSTALLED.rglob(suffix)) else CHECKOUT
        found += [(path, root) for path in sorted(root.rglob(suffix))]
    return found


@pytest.mark.each(
    ("path", "root"),
    [pytest.param(path, root, id=str(path.relative_to(root))) for path, root in sources()],
)
def test_modules_import_only_lower_layers(path, root):
    room = room_of(path, root)
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        names = python_names(source, ["rlwire", *path.relative_to(root).parts[:-1]])
    else:
        names = cython_names(source)
    assert room in ALLOWED, f"{room} is a new room: say here what it may import"
    uphill = rooms(names) - ALLOWED[room] - {room}
    assert not uphill, f"{path.name}, in {room}, imports {sorted(uphill)}"


def test_import_check_parses_each_form_of_import():
    assert {"errors.py", "cli.py", "kernels.pxd"} <= {path.name for path, _ in sources()}
    package = ["rlwire", "transports"]
    for source, found in {
        "import rlwire.sessions.rlx as s": {"sessions"},
        "def f():\n    from rlwire import codecs": {"codecs"},
        "from ..serving import x\nfrom . import tcp": {"serving", "transports"},
        "import rlwire\nimport numpy": {"__init__"},
    }.items():
        assert rooms(python_names(source, package)) == found
    for source, found in {
        "from rlwire.codecs._glue cimport (a,\n  b)\ncimport numpy as np": {"codecs"},
        "    from rlwire.sessions.rlx import x as y\n": {"sessions"},
        "cimport rlwire.serving.x, rlwire.buffers": {"serving", "buffers"},
    }.items():
        assert rooms(cython_names(source)) == found


def module_imports():
    """Modules of the package that each module imports, wherever in the file."""
    files = {}
    for path, root in sources():
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        files.setdefault(name, []).append(path)
    found = {}
    for name, paths in files.items():
        names = found.setdefault(name, set())
        for path in paths:
            source = path.read_text("utf-8")
            names |= python_names(source, []) if path.suffix == ".py" else cython_names(source)
    return {
        name: {each if each in files else each.rpartition(".")[0] for each in names} & set(files)
        for name, names in found.items()
    }


HEAVY = [
    *["matplotlib", "gymnasium", "ale_py", "PIL", "ssl", "asyncio", "multiprocessing"],
    *["tensorboardX", "torch", "rich", "websockets", "grpc", "http", "Cython", "pytest"],
]


def loaded_by(modules):
    program = f"import json, sys; before = set(sys.modules); import {modules}; " + (
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    # Not in the source tree: its rlwire/ is not the installed package.
    with tempfile.TemporaryDirectory() as elsewhere:
        words = [sys.executable, "-c", program]
        return set(json.loads(subprocess.check_output(words, timeout=60, cwd=elsewhere)))


PROTOCOL_ROOMS = {"codecs", "sessions", "environments", *ROOMS}
EXTRAS = {"gymnasium", "ale_py", "tensorboardX", "rich", "torch", "PIL"}


@pytest.mark.parametrize(
    ("modules", "rooms", "packages"),
    [
        ("rlwire", {*PROTOCOL_ROOMS, "registry", "urls", "buffers", "transports"}, {"numpy"}),
        (
            "rlwire.errors, rlwire.limits, rlwire.buffers",
            PROTOCOL_ROOMS | {"transports"},
            {"numpy"},
        ),
        ("rlwire.codecs.rlx", {*ROOMS, "transports", "serving", "bench"}, EXTRAS),
        ("rlwire.sessions.rlx", {*ROOMS, "transports", "serving", "bench"}, EXTRAS),
        ("rlwire.urls", PROTOCOL_ROOMS, {"numpy", "ssl", "asyncio"}),
        ("rlwire.aio", PROTOCOL_ROOMS - {"sessions"}, {"numpy"}),
        ("rlwire.transports.tcp", {"codecs", "sessions.passwords", "sessions.rlx", *ROOMS}, EXTRAS),
        ("rlwire.rlx", set(), (EXTRAS - {"PIL"}) | {"pettingzoo", "grpc", "dm_env"}),
        ("rlwire.perlert", set(), (EXTRAS - {"PIL"}) | {"pettingzoo", "cryptography", "grpc"}),
    ],
)
def test_imports_do_not_load_unrelated_subpackages_or_packages(modules, rooms, packages):
    loaded = loaded_by(modules)
    assert "rlwire" in loaded
    assert not loaded & {f"rlwire.{room}" for room in rooms}
    assert not loaded & packages


OWN = {"rlwire", "rlwire._imports"}
ERRORS = OWN | {"rlwire.errors", "rlwire.limits"}
RLX = ERRORS | {f"rlwire.codecs{name}" for name in ("", "._arrays", "._glue", "._output")}
RLX |= {f"rlwire.codecs.rlx{name}" for name in ("", ".decoder", ".encoder")}
RLX |= {"rlwire.buffers", "rlwire.codecs.casting"}


@pytest.mark.parametrize(
    ("module", "ours"), [("rlwire", OWN), ("rlwire.errors", ERRORS), ("rlwire.codecs.rlx", RLX)]
)
def test_core_imports_only_the_listed_modules(module, ours):
    """What is imported of rlwire is listed here; of other packages only NumPy is, by a codec."""
    loaded = loaded_by(module)
    assert {name for name in loaded if name.startswith("rlwire")} == ours
    if module == "rlwire.codecs.rlx":
        loaded -= loaded_by("numpy")  # NumPy's own imports are NumPy's affair
    assert loaded & set(HEAVY) == set()
    packages = {name.partition(".")[0] for name in loaded}
    others = packages - sys.stdlib_module_names - {"rlwire"}
    assert [name for name in others if "cython" not in name] == []  # Cython makes two of its own

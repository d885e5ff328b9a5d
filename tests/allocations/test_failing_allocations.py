"""No memory, at each point where an encoder or decoder asks for some: `failing.py` tells how."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CODECS = ["rlx", "msgpack", "perlert", "dm_env_rpc"]
CODECS += ["websocket", "http2", "rfb", "streams", "json"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="malloc is put in place of the linker's"),
    pytest.mark.skipif(
        "libasan" in os.environ.get("LD_PRELOAD", ""),
        reason="the sanitizer has a malloc of its own",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """malloc and its family, to be preloaded."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    built = tmp_path_factory.mktemp("failing") / "failing.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", HERE / "failing.c", "-o", built]
    subprocess.run([*command, "-ldl"], check=True)
    return built


def run(library, *arguments):
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )


# CPython 3.13.0 crashes where there is no memory to call a Python function, as our errors' are.
REFUSALS = pytest.param(
    "refusals", marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="errors are Python's")
)


@pytest.mark.parametrize("codec", [*CODECS, REFUSALS])
def test_codec_survives_each_failed_allocation(library, codec):
    done = run(library, HERE / "failing.py", library, codec)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    counts = [int(count) for count in re.findall(r" (\d+)$", done.stdout, re.MULTILINE)]
    assert len(counts) == len(done.stdout.splitlines())
    assert sum(counts) >= 5


def test_leak_and_swallowed_memory_error_are_detected(library):
    program = """
import sys
sys.argv[1:2] = []
sys.path.insert(0, {here!r})
import failing

kept = []

def leaks():
    part = bytearray(100)
    kept.append(part)
    bytes(bytearray(200))
    kept.pop()

def swallows():
    try:
        return len(bytearray(100))
    except MemoryError:
        return 0

failing.CALLS = {{"wrong": lambda: iter([("call", {call}, ())])}}
failing.main()
"""
    for call, output in (("leaks", "blocks stay each time"), ("swallows", "request 1: 0")):
        text = program.format(here=str(HERE), call=call)
        done = run(library, "-c", text, "unused", library, "wrong")
        assert done.returncode == 1
        assert output in done.stderr, done.stderr

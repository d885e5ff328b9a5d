"""What the tests of dm_env_rpc share: an environment, and servers in other processes."""

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def voyage():
    return load("voyage")


@contextlib.contextmanager
def _run(name, *arguments):
    process = subprocess.Popen(
        [sys.executable, str(HERE / f"{name}.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port, "the server has not started"
        yield f"127.0.0.1:{port}"
    finally:
        try:
            process.communicate("", timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def reference_server():
    with _run("reference_server") as address:
        yield address


@pytest.fixture(scope="session", params=["threads", "asyncio"])
def our_server(request):
    with _run("our_server", request.param) as address:
        yield address


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return request.param

"""What all tests share: how they are run, the slow oracle, a strict comparison, live blocks."""

import asyncio
import contextlib
import gc
import importlib
import inspect
import itertools
import os
import re
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from PIL import Image

from rlwire import buffers
from rlwire.errors import DecodeError, LimitExceeded, RemoteProtocolError
from rlwire.sessions.layer import Layer, LayerPhase
from rlwire.transports.tls import ClientTLS, ServerTLS

# Processes that tests start by multiprocessing import what they run from here, also where pytest
# has not put this folder on the path. At the end, so that rlwire is the installed one.
sys.path.append(str(Path(__file__).parents[1]))

# Ctrl-C is ignored in what a shell script starts in the background, and in what that starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anybody imports Ray: it is at 127.0.0.1 alone, and puts no token into one's home.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
# Ray gives up its start after half a minute, which a busy machine needs.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")

# How long an example takes is the machine's affair; pytest-timeout sees what hangs. The examples
# are the same each time, so more of them find nothing on the next day;
# --hypothesis-profile=search looks for others, and for more. A test that needs many asks for a
# multiple: max_examples=10 * settings().max_examples.
hypothesis.settings.register_profile(
    "search", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "same", hypothesis.settings.get_profile("search"), derandomize=True, max_examples=40
)
hypothesis.settings.register_profile(  # where the same code was tried with "same"
    "few", hypothesis.settings.get_profile("same"), max_examples=10
)
hypothesis.settings.load_profile("same")


def cores():
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests on all cores, and one process more, since they wait for sockets so often.

    Those that were chosen by path run in this process.
    """
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = 0 if config.option.file_or_dir else cores() + 1
    if config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_finish():
    """Hide modules, tests and fixtures from garbage collections, which took half of some tests."""
    # At its first test hypothesis looks for what refers to its generator, and must find it.
    hypothesis.given(hypothesis.strategies.none())(lambda value: None)()
    gc.collect()
    gc.freeze()


Case = tuple[str, dict[str, Any]]  # what it is called in a message, arguments


class Cases(list[Case]):
    """What a test with the mark `each` is called with, one after the other."""


def names_of(names):
    """Split what `parametrize` takes as names of arguments."""
    return names.replace(" ", "").split(",") if isinstance(names, str) else list(names)


def cases_of(names, values, ids=None):
    """Yield the cases that `parametrize` would make of these arguments."""
    split = names_of(names)
    for number, value in enumerate(values):
        case = ids[number] if isinstance(ids, Sequence) else None
        if isinstance(value, type(pytest.param())):
            assert not value.marks, "a case has no marks of its own"
            case, value = value.id or case, value.values
        elif len(split) == 1:
            value = (value,)
        if case is None:
            case = "-".join(str((ids or repr)(part)) for part in value)
        yield case, dict(zip(split, value, strict=True))


def pytest_generate_tests(metafunc):
    """`@pytest.mark.each` takes what `parametrize` does, but makes one test of all."""
    marks = list(metafunc.definition.iter_markers("each"))
    if marks:
        names = [name for mark in marks for name in names_of(mark.args[0])]
        cases = Cases()
        for parts in itertools.product(*[cases_of(*mark.args, **mark.kwargs) for mark in marks]):
            arguments = {name: value for _, part in parts for name, value in part.items()}
            cases.append((", ".join(case for case, _ in parts), arguments))
        assert cases, f"{metafunc.definition.nodeid} has no cases"
        metafunc.parametrize(names, [pytest.param(*[cases] * len(names), id="each")])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine, and call a test with the mark `each` for each of its cases."""
    wanted = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in wanted}
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.funcargs.get("run", asyncio.run)(pyfuncitem.obj(**given))
        return True
    if not pyfuncitem.get_closest_marker("each"):
        return None
    cases = next(value for value in given.values() if isinstance(value, Cases))
    failed = []
    for case, arguments in cases:
        try:
            pyfuncitem.obj(**given | arguments)
        except (Exception, pytest.fail.Exception) as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            failed.append(f"--- {case}\n{''.join(traceback.format_exception(error))}")
    if failed:
        pytest.fail("\n".join([f"{len(failed)} of {len(cases)} failed", *failed]), pytrace=False)
    return True


def pytest_terminal_summary(terminalreporter):
    """Say what the settings in pyproject.toml leave out."""
    left_out = re.fullmatch(r"not \((.*)\)", terminalreporter.config.option.markexpr)
    about = dict(line.split(": ", 1) for line in terminalreporter.config.getini("markers"))
    for name in left_out[1].split(" or ") if left_out else ():
        why = about[name].replace(";", ",")
        terminalreporter.write_line(f"left out: tests marked {name!r} ({why}); run by -m {name}")
    if old := built_before(Path(buffers.__file__).parent):
        names = ", ".join(old)
        terminalreporter.write_line(
            f"{names}: built before the source changed, run `python setup.py build_ext --inplace`"
        )


def built_before(folder):
    """Name the compiled modules in a checkout that are older than their sources."""
    old = []
    if not (folder / "buffers.pyx").exists():  # installed, and the times are the installer's
        return old
    for module in sorted({*folder.rglob("*.so"), *folder.rglob("*.pyd")}):
        stem = module.name.split(".")[0]
        sources = [module.with_name(f"{stem}{end}") for end in (".pyx", ".pxd", ".py")]
        built = module.stat().st_mtime
        if any(source.exists() and source.stat().st_mtime > built for source in sources):
            old.append(str(module.relative_to(folder).with_name(stem)))
    return old


if buffers.DEBUG:

    @pytest.fixture(autouse=True)
    def no_leaked_blocks(request, caplog):
        """Whatever a test received into is freed when it ends."""
        before = buffers.live_blocks()
        yield
        # pytest keeps the values of fixtures, such as a closed connection with its last block, and
        # what is logged, and an error among it the frames that it came through.
        request.node.funcargs.clear()
        logged = request.config.pluginmanager.get_plugin("logging-plugin")
        deadline = time.monotonic() + 30.0  # a connection's thread may still be on its way out
        while buffers.live_blocks() > before and time.monotonic() < deadline:
            for records in (
                caplog.get_records("call"),
                logged.caplog_handler.records,
                logged.report_handler.records,
            ):
                records.clear()
            gc.collect()
            time.sleep(0.01)
        assert buffers.live_blocks() <= before, "blocks outlive the test"


@pytest.fixture(scope="session")
def cluster():
    """One small Ray for all tests that need it; a program finds it by RAY_ADDRESS=<what it is>.

    It takes seconds to begin and to end.
    """
    ray = pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")
    context = ray.init(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=False,
        object_store_memory=200_000_000,
    )  # fmt: skip
    yield context.address_info["gcs_address"]
    ray.shutdown()


@dataclass
class Files:
    """Where an authority's, a server's and a client's certificates are."""

    ca: Path
    server: Path
    client: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    trustme = pytest.importorskip("trustme")
    folder = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    found = Files(folder / "ca.pem", folder / "server.pem", folder / "client.pem")
    ca.cert_pem.write_to_path(found.ca)
    for certificate, path in (
        (ca.issue_cert("localhost", "127.0.0.1"), found.server),
        (ca.issue_cert("client@example.org"), found.client),
    ):
        certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return found


@pytest.fixture
def contexts(files):
    """Return a server's context, and one of a client that trusts it."""
    return ServerTLS(files.server)(), ClientTLS(files.ca)()


@pytest.fixture(scope="session")
def oracle():
    """`tests/reference/rlx.py`: encode() and decode() in slow Python."""
    return importlib.import_module("tests.reference.rlx")


@pytest.fixture(scope="session")
def same():
    """Whether two values are the same in type, order, dtype, byte order, shape and every bit."""
    return _same


def _same(one, other):
    if isinstance(one, Image.Image) and isinstance(other, Image.Image):
        return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (np.ndarray, np.generic)):
        one, other = ((each.dtype.str, each.shape, each.tobytes()) for each in (one, other))
        return one == other
    if isinstance(one, float):
        return one.hex() == other.hex()
    return bool(one == other)


class Blobs(Layer):
    """A small session of its own: streams are tested without any real protocol.

    Frames have a 4-byte size (of the whole frame), 16 bytes of padding, and a body.
    Bodies are bytes on the way out and owned buffers on the way in. A first byte 0xff is a broken
    frame, the body ``b"turn"`` is out of turn, ``b"end"`` ends the session.
    """

    limit = 2**26
    header_size = 20  # so that what follows is not aligned by itself

    def __init__(self):
        self.refused = []

    def frame_size(self, buffer, start, end):
        if end > start and buffer[start] == 0xFF:
            raise DecodeError("no frame begins with ff", offset=start)
        if end - start < 4:
            return 0
        size = int.from_bytes(buffer[start : start + 4], "big")
        if size > self.limit:
            raise LimitExceeded("received", self.limit, size, offset=start)
        return size

    def receive_whole(self, buffer, size):
        try:
            if not size or self.frame_size(buffer, 0, size) != size:
                return None
        except (DecodeError, LimitExceeded):
            return None
        return self.receive(bytes(buffer[:size]))

    def data_offset(self, buffer, start, end):
        return self.header_size if end - start >= self.header_size else 0

    def receive(self, message):
        body = memoryview(message)[self.header_size :]
        word = bytes(body[:10])
        if word == b"turn":
            raise RemoteProtocolError("not now")
        if word == b"nothing":
            return []
        if word == b"twice":
            return [b"one", b"two"]
        if word == b"end":
            self.phase = LayerPhase.CLOSED
        return [body]

    def send(self, event):
        parts = event if isinstance(event, list) else [event]
        return [self.header(sum(map(len, parts))), *parts] if parts != [b""] else [self.header(0)]

    def reject(self, error):
        self.refused.append(error)
        if not isinstance(error, RemoteProtocolError):
            self.phase = LayerPhase.CLOSED
        return [self.frame(f"refused: {error}".encode())]

    @classmethod
    def header(cls, size):
        return (size + cls.header_size).to_bytes(4, "big") + bytes(cls.header_size - 4)

    @classmethod
    def frame(cls, body):
        return cls.header(len(body)) + body


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def blobs():
    return Blobs


class Interrupter:
    """Ctrl-C for the main thread, which hears of it once.

    A signal that comes just before a call of the system does not end that call, with Python's own
    sockets neither: so it is given again until it was heard.
    """

    def __init__(self):
        self.heard = threading.Event()

    def _hear(self, *_):
        if not self.heard.is_set():
            self.heard.set()
            raise KeyboardInterrupt

    def __call__(self):
        until = time.monotonic() + 30
        while not self.heard.is_set():
            assert time.monotonic() < until, "the main thread was not interrupted"
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            self.heard.wait(0.05)


@pytest.fixture
def ctrl_c():
    if os.name != "posix":
        pytest.skip("signals of POSIX")
    interrupter = Interrupter()
    before = signal.signal(signal.SIGINT, interrupter._hear)
    yield interrupter
    signal.signal(signal.SIGINT, before)

"""Programs in C that share memory with Python, compiled with the sanitizers."""

import random
import signal
import subprocess

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.transports import shm, tcp
from rlwire.transports.server import ThreadServer
from tests.consumers.test_consumers import CC, HERE
from tests.kernels.test_kernels import INCLUDE, SANITIZERS, WARNINGS
from tests.programs import run, running
from tests.raising import raised

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shm.AVAILABLE, reason="shared memory needs Linux"),
]


def compile_source(*words):
    flags = ["-std=c11", "-g", "-O1", *WARNINGS, *SANITIZERS, f"-I{INCLUDE}"]
    return run([*CC(), *flags, *map(str, words)])


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = tmp_path_factory.mktemp("shm") / "shm_echo"
    done = compile_source(HERE / "shm_echo.c", "-o", made)
    assert done.returncode == 0, done.stderr
    return made


def test_c_client_exchanges_messages_over_shm(program, blobs, tmp_path):
    def echo(connection):
        while True:
            connection.send(bytes(connection.receive()))

    with ThreadServer(f"shm:{tmp_path}/s", blobs, echo):
        done = run([program, "client", f"{tmp_path}/s"], timeout=60)
    assert (done.returncode, done.stdout) == (0, "8 frames came back\n"), done.stderr


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_c_server_exchanges_messages_over_shm(program, blobs, tmp_path, end):
    command = [program, "server", f"{tmp_path}/s"]
    with running(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        with tcp.connect(f"shm:{tmp_path}/s", blobs()) as connection:
            for size in (0, 1, 4076, 100_000, 3 << 20, 7):
                data = random.Random(size).randbytes(size)
                assert bytes(connection.exchange(data)) == data
            if end == "is killed":
                server.send_signal(signal.SIGKILL)
                raised(ConnectionClosed, connection.receive)
        if end == "leaves":
            assert server.stdout.read() == "it left\n"
            assert server.wait(30) == 0


@pytest.mark.parametrize(("flags", "output"), [([], ""), (["-U__linux__"], "#error not here")])
def test_header_reports_whether_the_system_has_shm(tmp_path, flags, output):
    source = tmp_path / "asks.c"
    source.write_text(
        "#include <rlwire/shm.h>\n#if !RLW_HAS_SHM\n#error not here\n#endif\n"
        "int main(void) { return rlw_ring_can_be(4096) != 1; }\n"
    )
    done = compile_source(*flags, "-fsyntax-only", source)
    assert (done.returncode == 0) == (not output)
    assert output in done.stderr
    assert "rlwire/shm" not in done.stderr  # the header itself is right

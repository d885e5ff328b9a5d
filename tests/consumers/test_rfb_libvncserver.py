"""RFB's client against a server of libvncserver's, which is built here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rlwire.adapters.rfb.client import RfbClient
from rlwire.codecs.rfb import Encoding

pytestmark = pytest.mark.consumers
SOON = 60.0
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None or shutil.which("pkg-config") is None:
        pytest.skip("no C compiler or pkg-config")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libvncserver"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if found.returncode:
        pytest.skip("libvncserver's headers (libvncserver-dev) are missing")
    program = tmp_path_factory.mktemp("libvncserver") / "pattern"
    source = str(HERE / "rfb_pattern.c")
    subprocess.run(["cc", source, "-o", str(program), *found.stdout.split()], check=True)
    return program


class Server:
    """One that runs, and paints when it is told to."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.address = f"127.0.0.1:{int(self._out.readline())}"

    def do(self, what: bytes = b"n") -> None:
        self._in.write(what)
        self._in.flush()
        assert self._out.read(1) == b"."


@contextmanager
def serving(program: Path, size: int) -> Iterator[Server]:
    process = subprocess.Popen(
        [str(program), str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()


@pytest.mark.parametrize("size", [2, 3, 4])  # 3 is no RFC's; it has it nevertheless
@pytest.mark.parametrize("encoding", ["RRE", "HEXTILE", "ZRLE", "TIGHT"])
def test_the_pixels_of_raw(encoding: str, size: int, program: Path) -> None:
    with (
        serving(program, size) as server,
        RfbClient(server.address, encodings=[Encoding[encoding], Encoding.COPY_RECT]) as viewer,
        RfbClient(server.address, encodings=[Encoding.RAW]) as beside,
    ):
        seen = set()
        for what in (b"", b"n", b"n", b"c", b"n", b"c"):
            if what:
                server.do(what)
            for each in (viewer, beside):
                each.update(SOON)
            # An update may be in parts.
            while not np.array_equal(viewer.snapshot(), beside.snapshot()):
                viewer.poll()
                beside.poll()
            seen.add(viewer.snapshot().tobytes())
        assert len(seen) == 6

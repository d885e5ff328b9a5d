"""The decoder, and a viewer in C, against TigerVNC's Xvnc as it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rlwire
from rlwire.codecs.rfb import BGR233, RGB565, RGB888, RGBX, Encoding, PixelFormat
from rlwire.codecs.rfb.encodings import quality_level
from tests.reference import xvnc

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

KINDS = [xvnc.game, xvnc.photo, xvnc.text]
BIG = PixelFormat(32, 24, True, 255, 255, 255, 8, 16, 24)


@pytest.mark.parametrize("form", [RGBX, RGB888, BIG, RGB565, BGR233], ids=str)
@pytest.mark.parametrize("encoding", ["RAW", "RRE", "HEXTILE", "ZRLE", "TIGHT"])
def test_the_pixels_of_raw(encoding: str, form: PixelFormat) -> None:
    with (
        xvnc.Desktop(320, 200) as desktop,
        xvnc.viewer(desktop, [Encoding[encoding], Encoding.COPY_RECT], form) as viewer,
        xvnc.viewer(desktop, [Encoding.RAW], form) as beside,
    ):
        for number in range(7):
            desktop.show(KINDS[number % 3](200, 150, number), 10 * number, 5 * number)
            if number % 3 == 2:
                desktop.scroll(0, 0, 30, 20, 200, 150)
            seen = viewer.update(incremental=number > 0)
            np.testing.assert_array_equal(seen, beside.update(incremental=False))
        assert viewer.encodings[Encoding[encoding]] >= 4
        assert viewer.encodings[Encoding.COPY_RECT] >= 1


def test_jpeg_is_close_to_raw() -> None:
    with (
        xvnc.Desktop(320, 200) as desktop,
        xvnc.viewer(desktop, [Encoding.TIGHT, quality_level(9)]) as viewer,
        xvnc.viewer(desktop, [Encoding.RAW]) as beside,
    ):
        for number in range(4):
            desktop.show(xvnc.photo(300, 190, number))
            seen = viewer.update(incremental=number > 0).astype(int)
            away = np.abs(seen - beside.update(incremental=False))
            assert away.mean() < 4


@pytest.fixture(scope="module")
def viewer_in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`viewer.c`, built from what is installed."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("viewer")
    shutil.copy(Path(__file__).with_name("viewer.c"), folder)
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{rlwire.get_include()}", "viewer.c", "-lz", "-o", "viewer"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if "zlib.h" in done.stderr:
        pytest.skip("zlib.h (zlib1g-dev) is missing")
    assert done.returncode == 0, done.stderr
    return folder / "viewer"


@pytest.mark.parametrize("encoding", ["RAW", "RRE", "HEXTILE", "ZRLE", "TIGHT"])
def test_a_viewer_in_c(encoding: str, viewer_in_c: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.ppm"
    with (
        xvnc.Desktop(320, 200) as desktop,
        xvnc.viewer(desktop, [Encoding.RAW]) as beside,
        subprocess.Popen(
            [viewer_in_c, desktop.path, str(int(Encoding[encoding])), "5", picture],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            for number in range(5):
                desktop.show(KINDS[number % 3](200, 150, number), 10 * number, 5 * number)
                program.stdin.write(b"\n")
                program.stdin.flush()
                assert program.stdout.read(1) == b"."
            assert program.wait(30) == 0
        finally:
            program.kill()
        expected = beside.update(incremental=False)
    head, _, pixels = picture.read_bytes().partition(b"\n")
    assert head == b"P6 320 200 255"
    np.testing.assert_array_equal(np.frombuffer(pixels, np.uint8).reshape(200, 320, 3), expected)

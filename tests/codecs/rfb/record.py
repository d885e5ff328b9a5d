"""Makes the recordings of TigerVNC's Xvnc anew: `python tests/codecs/rfb/record.py`.

Each shows the same few pictures to a client that lists one encoding, and beside it what a second
client saw in Raw after each update.
"""

import lzma
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from rlwire.codecs.rfb.messages import Encoding, level_encoding  # noqa: E402
from tests.reference import xvnc  # noqa: E402

FOLDER = HERE / "recordings"
SIZE = 120, 88
ENCODINGS = {
    "raw": [Encoding.RAW], "rre": [Encoding.RRE], "hextile": [Encoding.HEXTILE],
    "zrle": [Encoding.ZRLE], "tight": [Encoding.TIGHT],
    "jpeg": [Encoding.TIGHT, level_encoding(Encoding.QUALITY_0, 8)],
}  # fmt: skip


def steps(desktop, number):
    """What is shown before each update."""
    if number == 3:
        desktop.scroll(0, 0, 9, 14, 90, 60)
    elif number == 2:  # noise, which nothing compresses: small, and in four tiles of ZRLE
        desktop.show(xvnc.photo(40, 30, number), 48, 50)
    else:
        kind = xvnc.text if number == 1 else xvnc.game
        desktop.show(kind(90, 66, number), 4 * number, 3 * number)


def record(encodings):
    captures = []
    with (
        xvnc.Desktop(*SIZE) as desktop,
        xvnc.viewer(desktop, [*encodings, Encoding.COPY_RECT]) as viewer,
        xvnc.viewer(desktop, [Encoding.RAW]) as beside,
    ):
        for number in range(5):
            steps(desktop, number)
            viewer.update(incremental=number > 0)
            captures.append(beside.update(incremental=False).copy())
        return bytes(viewer.recorded), np.stack(captures)


def main():
    FOLDER.mkdir(exist_ok=True)
    seen = []
    for name, encodings in ENCODINGS.items():
        recorded, captures = record(encodings)
        seen.append(captures)
        (FOLDER / f"rgbx-{name}.rfb.xz").write_bytes(lzma.compress(recorded, preset=9))
    for captures in seen:
        np.testing.assert_array_equal(captures, seen[0])
    (FOLDER / "rgbx.pixels.xz").write_bytes(lzma.compress(seen[0].tobytes(), preset=9))


if __name__ == "__main__":
    main()

"""TigerVNC's Xvnc behind the recording proxy: what was recorded shows what the viewer saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwire.adapters.rfb.client import RfbClient
from rlwire.adapters.universe.recording import RecordingProxy
from rlwire.adapters.universe.replay import Recording
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.protocols import URL
from tests.reference import xvnc

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

SIZE = 320, 240


@pytest.mark.parametrize("encoding", [Encoding.TIGHT, Encoding.ZRLE, Encoding.HEXTILE])
def test_the_same_pixels(encoding: Encoding, tmp_path: Path) -> None:
    seen = []
    with xvnc.Desktop(*SIZE) as desktop:
        remote = URL("universe", unix=str(tmp_path / "nobody"), pixels=desktop.path)
        here = URL("universe", unix=str(tmp_path / "r"), pixels=str(tmp_path / "v"))
        with (
            RecordingProxy(remote, here, tmp_path / "recordings") as proxy,
            RfbClient(f"unix:{tmp_path / 'v'}", encodings=[encoding]) as viewer,
        ):
            for number in range(5):
                picture = xvnc.game(*SIZE, number)
                desktop.show(picture)
                while not np.array_equal(viewer.snapshot(), picture):
                    viewer.update(xvnc.TIMEOUT)
                seen.append(picture)
            viewer.close()
            assert proxy.statistics()["pixels"].open <= 1
    frames = [moment.what for moment in Recording(tmp_path / "recordings" / "1").frames()]
    recorded = {frame.tobytes() for frame in frames}
    assert all(picture.tobytes() in recorded for picture in seen)
    np.testing.assert_array_equal(frames[-1], seen[-1])

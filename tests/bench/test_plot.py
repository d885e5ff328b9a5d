"""`rlwire.bench.plot` writes an image; whether it is a good one is for eyes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from rlwire.bench import plot
from rlwire.bench.report import Run
from rlwire.bench.runner import Result
from rlwire.bench.stats import Spread
from rlwire.errors import MissingExtra


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra 'bench'")
    times = Spread(60.0, 90.0, 1000)
    result = Result(
        "rlx", "pong", "Pong-v5 210x160x3 uint8", 100_900, 40, times, times, times, times, 1
    )
    machine = {"system": "Linux", "processor": "one", "cores": 2}
    plot.save(Run({"rlwire": "0"}, machine, "none", 1.0, [result]), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        assert image.format == "PNG"
        assert image.width > 800
        colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert colours is not None
    assert (31, 111, 178) in {colour for _count, colour in colours}  # a bar was drawn


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rlwire\[bench\]'"):
        plot.require()

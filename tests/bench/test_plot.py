"""`rlwire.bench.plot` writes an image; whether it is a good one is for eyes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlwire.bench import plot
from rlwire.bench.report import Run
from rlwire.bench.runner import Result
from rlwire.bench.stats import Ratio, Spread
from rlwire.errors import MissingExtra


def test_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra 'bench'")
    from matplotlib.figure import Figure

    drawn: list[str] = []

    def save(figure: Figure, *arguments: Any, **options: Any) -> None:
        drawn.extend(text.get_text() for axes in figure.axes for text in axes.texts)
        savefig(figure, *arguments, **options)

    savefig = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", save)
    times = Spread(60.0, 90.0, 1000, 58.0, 64.0)
    sizes = (100_900, 40)
    ratio = Ratio(1.2, 1.1, 1.3, 30)
    result = Result(
        "rlx",
        "pong",
        "Pong-v5 210x160x3 uint8",
        *sizes,
        times,
        times,
        times,
        times,
        ratio,
        ratio,
        1,
    )
    machine = {"system": "Linux", "processor": "one", "cores": 2}
    plot.save(Run({"rlwire": "0"}, machine, "none", 1.0, [result]), tmp_path / "x.png")
    assert {" 60.0 us (p99 90.0)", "   1.20x (1.10 - 1.30)"} <= set(drawn)
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

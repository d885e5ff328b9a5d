"""Draws the README's picture: the page of `rlwire demo` beside rows of benchmarks.

`python benchmarks/chart.py FOLDER PAGE.png OUT.png`, after ``rlwire bench --rivals --json
FOLDER/run.json`` for the rows of a payload, ``python benchmarks/bench_NAME.py > FOLDER/NAME`` for
each NAME below, and ``pytest benchmarks --benchmark-json=FOLDER/codecs.json`` for groups, whose
names have a colon.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

# The work; its payload, benchmark or group; rlwire's row; the rival.
ROWS = [
    ("dm_env_rpc: CartPole", "cartpole", "dm_env_rpc", "grpcio"),
    ("dm_env_rpc: Pong's frames", "pong", "dm_env_rpc", "grpcio"),
    ("RLX: CartPole", "cartpole", "rlx", "pipe"),
    ("RLX: Pong's frames", "pong", "rlx", "pipe"),
    ("make_vec: 16 CartPoles", "make_vec", "rlwire", "AsyncVectorEnv"),
    ("MessagePack: an episode", "msgpack: encode episode", "rlwire", "msgpack-numpy"),
]
RIVALS = {"grpcio": "its own package", "pipe": "pickle in a pipe"}


def times(text: str, ours: str, rival: str) -> tuple[float, float]:
    """Return the times of rlwire and the rival, which is in rlwire's row or one of its own."""
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    own = next(row for row in rows if ours in row)
    other = own if rival in own else next(row for row in rows if rival in row)
    mine, its = (
        float(row[row.index(name) + 1].replace(",", ""))
        for row, name in ((own, ours), (other, rival))
    )
    return (its, mine) if "steps/s" in text else (mine, its)


def group_times(text: str, group: str, ours: str, rival: str) -> tuple[float, float]:
    found = [each for each in json.loads(text)["benchmarks"] if each["group"] == group]
    medians = {each["params"]["rival"]: each["stats"]["median"] for each in found}
    return medians[ours], medians[rival]


def step_times(text: str, payload: str, ours: str, rival: str) -> tuple[float, float]:
    found = {
        row["protocol"]: row["round_trip"]["p50"]
        for row in json.loads(text)["rows"]
        if row["payload"] == payload
    }
    return found[ours], found[rival]


def main(folder: str, page: str, out: str) -> None:
    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    picture, chart = figure.subplots(1, 2, width_ratios=(1, 1.45))
    picture.imshow(Image.open(page))
    picture.set_axis_off()
    for at, (_, name, ours, rival) in enumerate(ROWS):
        read, file = times, name
        if ":" in name:
            read, file = group_times, "codecs.json"
        elif name in ("cartpole", "pong"):
            read, file = step_times, "run.json"
        text = (Path(folder) / file).read_text("utf-8")
        found = (ours, rival) if read is times else (name, ours, rival)
        mine, other = read(text, *found)
        most = max(mine, other)
        ratio = f"{other / mine:.1f} times faster"
        if mine > other:
            ratio = f"{mine / other:.2f} times its time"
        for y, time, colour, text in (
            (at - 0.19, other, "#c3ccd5", RIVALS.get(rival, rival)),
            (at + 0.19, mine, "#1f6fb2", ratio),
        ):
            chart.barh(y, time / most, 0.36, color=colour)
            chart.text(time / most, y, f" {text}", va="center", fontsize=9)
    chart.set_yticks(range(len(ROWS)), [row[0] for row in ROWS])
    chart.set_ylim(len(ROWS) - 0.4, -0.6)
    chart.set_xlim(0, 1.3)
    chart.set_xticks([])
    chart.tick_params(length=0)
    chart.set_title(
        "Time of rlwire (blue) and of a rival (grey), linear; shorter is better", fontsize=10
    )
    chart.spines[:].set_visible(False)
    figure.savefig(out, dpi=110)
    Image.open(out).convert("RGB").quantize(96).save(out, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

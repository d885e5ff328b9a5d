"""RFB's rows: honest displays are measured, those that lie are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch, Unfit
from rlwire.bench.providers import rfb
from rlwire.bench.runner import measure

LIARS = """
from rlwire.bench.providers.rfb import RecordedDisplay

class Flips(RecordedDisplay):
    def frame(self, number):
        frame = super().frame(number).copy()
        frame[0, 1, 2] ^= 1
        return frame

class Others(RecordedDisplay):
    def frame(self, number):
        return super().frame((number + 1) % 3)
"""


def pictures(count: int = 3, shape: tuple[int, ...] = (21, 16, 3), dtype: str = "u1") -> Payload:
    random = np.random.default_rng(1)
    frames = random.integers(0, 200, (count, *shape)).astype(dtype)
    return Payload("made-up", "made up 21x16x3 uint8", [Step(each, 0.0, False) for each in frames])


@pytest.mark.parametrize("row", [rfb.RawRow, rfb.HextileRow, rfb.ZrleRow, rfb.TightRow])
def test_all_pixels_come(row: type[rfb.RawRow]) -> None:
    result = measure(row(pictures(), Cores()), 0.02, Cores(), lambda done: None, stages=True)
    *sessions, left = [(stage.end, stage.name, stage.p50) for stage in result.stages]
    assert [each[:2] for each in sessions] == [("client", "session"), ("server", "session")]
    assert all(each[2] > 0 for each in sessions)
    assert left[:2] == ("both", "rest")
    assert (result.protocol, result.reply_bytes) == (row.protocol, 21 * 16 * 3)
    assert (result.encode, result.decode) == (None, None)
    assert result.checked > 0


@pytest.mark.parametrize("liar", ["Flips", "Others"])
def test_liars_are_found_out(liar: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rfb_liars.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)
    with rfb.RawRow(pictures(), Cores(), f"rfb_liars:{liar}") as row:
        row.exchange(1)
        with pytest.raises(Mismatch, match="of the state differs"):
            row.check(1)


def test_it_goes_over_what_the_command_says() -> None:
    with rfb.RawRow(pictures(), Cores(over="unix")) as row:
        assert str(row._client.address).startswith("unix:")
        row.exchange(1)
        row.check(1)


def test_a_server_that_dies_says_so() -> None:
    with rfb.RawRow(pictures(), Cores()) as row:
        row._server.stop()
        with pytest.raises(BenchError):
            row.exchange(0)


def test_what_is_no_picture_is_left_out() -> None:
    for payload in (pictures(shape=(84, 84, 4)), pictures(dtype="f4"), pictures(shape=(4,))):
        with pytest.raises(Unfit, match="pictures"):
            rfb.RawRow(payload, Cores())
    with pytest.raises(Unfit, match="all the same"):
        rfb.RawRow(pictures(1), Cores())
    steps = pictures().steps
    again = Payload("made-up", "made up", [steps[0], steps[0], steps[1], steps[2], steps[2]])
    assert len(rfb.RawRow(again, Cores()).messages) == 3

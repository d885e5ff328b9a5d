"""The probe counts what a class's calls take, once, and leaves the class as it was."""

from __future__ import annotations

import time

import pytest

from rlwire.bench.probe import Probe


class Inherited:
    def send(self, event: object) -> list[object]:
        time.sleep(0.002)
        return [event]


class Session(Inherited):
    data_offset = 3  # not a call

    def receive(self, message: bytes) -> list[object]:
        if not message:
            raise ValueError("nothing")
        return self.send(message)


def test_what_calls_take_is_counted_once() -> None:
    before = dict(vars(Session))
    with Probe(f"{__name__}:Session") as probe:
        begin = time.perf_counter_ns()
        assert Session().receive(b"x") == [b"x"]
        took = time.perf_counter_ns() - begin
        spent = probe.spent
        assert 2_000_000 <= spent <= took
        with pytest.raises(ValueError, match="nothing"):
            Session().receive(b"")
        assert Session().send(1) == [1]  # after an error too
        assert probe.spent >= spent + 2_000_000
    assert dict(vars(Session)) == before
    spent = probe.spent
    Session().send(1)
    assert probe.spent == spent

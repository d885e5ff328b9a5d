"""Checkpoints: kept, forgotten, whole whatever happens, and refused where they are not ours."""

import logging
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.errors import EncodeError
from rlwire.relaax import checkpoints as module
from rlwire.relaax.checkpoints import CheckpointDamaged, CheckpointMismatch, Checkpoints
from tests.programs import running
from tests.raising import raised

STATE = {
    "weights": [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(0.5)],
    "step": 7,
    "names": {1: "one", "two": b"2", "none": None},
}


def test_saved_state_is_restored(tmp_path, same):
    checkpoints = Checkpoints(tmp_path / "deep" / "down")
    assert checkpoints.restore("pg") is None
    name = checkpoints.save(7, STATE, algorithm="pg", version=2)
    checkpoints.save(12, {"step": 12}, algorithm="pg", version=2)
    os.remove(tmp_path / "deep" / "down" / "checkpoint-000000000012.msgpack")
    step, state = Checkpoints(tmp_path / "deep" / "down").restore("pg", 2)
    assert step == 7
    assert same(state, STATE)
    state["weights"][0][0, 0] = 3.0  # it is the caller's to write to
    assert os.listdir(tmp_path / "deep" / "down") == [name]


def test_checkpoint_is_due_by_steps_or_seconds(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    checkpoints = Checkpoints(tmp_path, every_steps=10, every_seconds=60.0)
    assert [checkpoints.due(step) for step in (3, 4, 12, 13)] == [False, False, False, True]
    checkpoints.save(13, {}, algorithm="pg")
    assert checkpoints.saved(13)
    assert not checkpoints.due(13)
    now[0] += 61.0
    assert not checkpoints.due(13)  # nothing was learned since
    assert checkpoints.due(14)
    again = Checkpoints(tmp_path, every_steps=10)
    again.restore("pg")
    assert [again.due(step) for step in (13, 22, 23)] == [False, False, True]
    assert not any(map(Checkpoints(tmp_path).due, range(0, 1000, 100)))


def test_checkpoint_of_another_algorithm_or_version_is_rejected(tmp_path):
    Checkpoints(tmp_path).save(1, {}, algorithm="pg", version=1)
    for algorithm, version in (("dqn", 1), ("pg", 2)):
        with pytest.raises(CheckpointMismatch, match=r"of algorithm pg, version 1, not "):
            Checkpoints(tmp_path).restore(algorithm, version)


def test_truncated_checkpoint_is_skipped_at_every_length(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"a": 1}, algorithm="pg")
    last = tmp_path / checkpoints.save(2, {"a": np.ones(3)}, algorithm="pg")
    whole = last.read_bytes()
    for length in range(len(whole)):
        last.write_bytes(whole[:length])
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert Checkpoints(tmp_path).restore("pg") == (1, {"a": 1})
        assert last.name in caplog.text
    last.write_bytes(whole + b"x")
    assert Checkpoints(tmp_path).restore("pg")[0] == 1
    last.write_bytes(whole)
    assert Checkpoints(tmp_path).restore("pg")[0] == 2


HEAD = {"algorithm": "pg", "version": 1, "step": 2, "state": {}}


DAMAGED = [
    *(None, [], [HEAD], "pg", 7, *({**HEAD, name: "2"} for name in ("step", "version", "state"))),
    *({**HEAD, "state": {"a": msgpack.ExtType(kind, b"")}} for kind in (1, 2)),
]
DEEP = [b"\x91" * 100_000, b"\x81\xa1a" * 100_000]


@pytest.mark.each("data", [*DEEP, *map(msgpack.encode, DAMAGED)], ids=lambda data: str(data[:99]))
def test_damaged_checkpoint_is_skipped(tmp_path, data):
    Checkpoints(tmp_path).save(1, {"a": 1}, algorithm="pg")
    (tmp_path / "checkpoint-000000000002.msgpack").write_bytes(data)
    assert Checkpoints(tmp_path).restore("pg") == (1, {"a": 1})


def test_restore_fails_when_every_checkpoint_is_damaged(tmp_path):
    (tmp_path / Checkpoints(tmp_path).save(1, {}, algorithm="pg")).write_bytes(b"")
    assert "1" in str(raised(CheckpointDamaged, Checkpoints(tmp_path).restore, "pg"))


def test_unencodable_state_leaves_no_file(tmp_path):
    caught = raised(EncodeError, Checkpoints(tmp_path).save, 1, {"a": [object()]}, algorithm="pg")
    assert "object" in str(caught)
    assert os.listdir(tmp_path) == []


def test_full_disk_leaves_older_checkpoints(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {}, algorithm="pg")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    raised(OSError, checkpoints.save, 2, {}, algorithm="pg")
    assert os.listdir(tmp_path) == ["checkpoint-000000000001.msgpack"]


WRITER = """
import sys
import numpy as np
from rlwire.relaax.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1], keep=3)
print("ready", flush=True)
step = int(sys.argv[2])
while True:
    step += 1
    checkpoints.save(step, {"n": step, "w": np.full(200_000, step, np.float64)}, algorithm="pg")
    print(step, flush=True)
"""


def test_killed_writer_leaves_a_complete_checkpoint(tmp_path):
    chance = random.Random(18)
    output = 0
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(output)]
        with running(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            for _ in range(chance.randrange(1, 6)):
                output = int(writer.stdout.readline())
            for _ in range(chance.randrange(20_000)):  # a moment, anywhere in the next one
                pass
            writer.kill()
            rest = writer.communicate()[0].split()
        output = int(rest[-1]) if rest and rest[-1].isdigit() else output
        step, state = Checkpoints(tmp_path).restore("pg")
        assert step >= output
        assert state["n"] == step
        assert (state["w"] == step).all()
        output = step
    left = [name for name in os.listdir(tmp_path) if name.endswith(".writing")]
    Checkpoints(tmp_path).save(output + 1, {}, algorithm="pg")
    assert not [name for name in os.listdir(tmp_path) if name in left]


@pytest.mark.training
def test_tensors_and_optimizer_state_are_restored(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "mean": np.arange(4.0),
        "n": 3, "tied": [model[0].weight, model[0].weight],
        "half": torch.ones(2, dtype=torch.bfloat16), "none": torch.zeros(0, 3),
    }  # fmt: skip
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"n": 1}, algorithm="pg")
    name = checkpoints.save(3, state, algorithm="pg")
    assert name.endswith(".msgpack")
    _, back = Checkpoints(tmp_path).restore("pg")
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    other.load_state_dict(back["model"])
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(back["optimizer"])
    moment = optimizer.state[model[0].weight]["exp_avg"]
    assert torch.equal(again.state[other[0].weight]["exp_avg"], moment)
    assert (back["mean"] == np.arange(4.0)).all()
    assert back["n"] == 3
    assert back["half"].dtype == torch.bfloat16
    assert back["none"].shape == (0, 3)
    whole = (tmp_path / name).read_bytes()
    for length in [0, 7, 8, 20, *range(100, len(whole), 97), len(whole) - 1]:
        (tmp_path / name).write_bytes(whole[:length])
        assert Checkpoints(tmp_path).restore("pg") == (1, {"n": 1})

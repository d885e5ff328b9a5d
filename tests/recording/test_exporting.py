"""`rlwire export FILE minari:NAME`: the datasets are equal to the episodes that were played."""

import numpy as np
import pytest
from gymnasium import spaces

from rlwire.cli import main
from rlwire.codecs.rlx import encode
from rlwire.recording import exporting
from rlwire.recording.messages import Packet, RecordedConnection
from tests.conftest import _same
from tests.recording.test_dissecting import Walk, captured
from tests.recording.test_inspecting import packets

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")


@pytest.fixture
def export(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def run(source, *options, to="wire/walk-v0", status=0):
        monkeypatch.setattr(exporting, "packets", lambda path: iter(source))
        assert main(["export", "file", f"minari:{to}", *options]) == status
        return None if status else minari.load_dataset(to)

    return run


@pytest.mark.parametrize("label", ["rlx", "dm-env-rpc", "universe", "rllink"])
def test_dataset_has_the_episodes_that_were_played(label, export):
    dataset, episodes = export(packets(label)), captured(label)[1]
    for found, (first, *steps) in zip(dataset, episodes, strict=True):
        actions, observations, *others = zip(*steps, strict=True)
        assert _same(found.observations, np.array([first, *observations]))
        assert _same(found.actions, np.array(actions))
        columns = found.rewards, found.terminations, found.truncations
        assert _same([*columns], [np.array(each) for each in others])
    if label != "rllink":  # which sends no spaces
        assert dataset.observation_space == Walk.observation_space
        assert dataset.action_space == Walk.action_space


def recorded_steps(states, actions):
    """An episode of RLX that ends without a terminal, from a client that sends no spaces."""
    sent = []
    for number, (state, action) in enumerate(zip(states, [*actions, actions[0]], strict=True)):
        reward = number / 4 if number else None
        sent.append({"command": "update", "reward": reward, "state": state})
        sent.append({"response": "action", "data": action})
    connection = RecordedConnection(2, "rlx", "server", "")
    return [Packet(connection, "state" in x, 1, 1, encode(x, framed=True)) for x in sent]


image = np.random.default_rng(1).integers(0, 256, (40, 40, 3), np.uint8)
images = [image, image[::-1].copy(), image]
pixels = spaces.Box(0, 255, image.shape, np.uint8)
floats = spaces.Box(-np.inf, np.inf, (2,), np.float64)
lists = [[np.float32([number]), np.int16([number, 3])] for number in range(3)]
parts = [spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Box(-(2**15), 2**15 - 1, (2,), "i2")]
INFERRED = {
    "an image that JPEG changes": (images, [2, 0], pixels, spaces.Discrete(3)),
    "whole numbers too": ([[0, 1], [0.5, 1], [2, 3]], [[1.0, 0.5], [1, 0]], floats, floats),
    "a list of arrays": (lists, [-1, 1], spaces.Tuple(parts), spaces.Discrete(3, start=-1)),
}


@pytest.mark.parametrize("name", INFERRED)
def test_spaces_of_the_values(name, export, caplog):
    states, actions, observation_space, action_space = INFERRED[name]
    caplog.set_level("INFO")
    dataset = export(recorded_steps(states, actions))
    assert dataset.observation_space == observation_space
    assert dataset.action_space == action_space
    (episode,) = dataset
    columns = zip(*states, strict=True) if name == "a list of arrays" else [states]
    found = episode.observations
    found = [*found] if isinstance(found, tuple) else [found]
    assert _same(found, [np.array(column) for column in columns])
    assert _same(episode.actions, np.array(actions))
    assert episode.rewards.tolist() == [0.25, 0.5]
    assert not episode.terminations.any()
    assert episode.truncations.tolist() == [False, True]
    assert caplog.text.count("inferred") == 2
    assert "1 of them unfinished" in caplog.text


def test_recordings_without_usable_episodes_are_not_exported(export, capsys):
    def fails(facts, source, *options, **to):
        export(source, *options, status=1, **to)
        (line,) = capsys.readouterr().err.splitlines()[-1:]
        assert line.startswith("rlwire: ")
        assert all(fact in line for fact in facts), line

    simple = recorded_steps([[1.0], [2.0], [3.0]], [1, 1])
    both = [*simple, *packets("dm-env-rpc")]
    fails(["connection 2", "--connection"], both)
    fails(["no episode"], both, "--connection", "3")
    assert export(packets("openpi"), to="wire/policy-v0").total_steps == 2
    fails(
        ["no episode"], recorded_steps([None, [1.0]], [1])
    )  # whose first observation is not known
    fails(["observation"], recorded_steps([[1.0], [2.0, 3.0], [1.0]], [1, 1]))
    fails(["action"], recorded_steps([[1.0], [2.0], [3.0]], [1, "up"]))
    fails(["minari:NAME"], simple, to="")
    assert export(both, "--connection", "2").total_steps == 2
    fails(["walk-v0"], simple)

"""An application whose algorithm is RLlib's."""

from __future__ import annotations

import pytest

from rlwire.applications import new
from tests.applications.test_running import running
from tests.reference.events import read_events

pytestmark = pytest.mark.ray

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("gymnasium")
pytest.importorskip("honcho")
pytest.importorskip("ruamel.yaml")
pytest.importorskip("tensorboardX")


@pytest.mark.timeout(300)
def test_an_application_learns_with_rllib(tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    folder = new(tmp_path / "demo", "gym", "rllib:PPO")
    config = folder / "app.yaml"
    text = config.read_text().replace("localhost:7001", f"unix:{tmp_path}/rlx")
    text = text.replace("max_episodes: 1000", "max_episodes: 40")
    config.write_text(
        text + "  train_batch_size_per_learner: 200\n  num_epochs: 2\n  iterations: 1000\n"
    )
    with running(folder, "all") as process:
        said, _ = process.communicate(timeout=280)
    assert process.returncode == 0, said
    assert "episode 39:" in said
    assert "iteration 1: " in said
    assert list((folder / "logs" / "checkpoints").iterdir()), said
    assert {"episode_reward", "episode_return_mean"} <= set(
        read_events(folder / "logs" / "metrics")
    )

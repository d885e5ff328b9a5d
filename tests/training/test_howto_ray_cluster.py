"""docs/howto/rllib.md: its program for a cluster, on one of one machine."""

import contextlib
import os
import re
from pathlib import Path

import pytest

from tests.programs import python

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "rllib.md").read_text("utf-8")
_FIRST, PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture
def new_cluster(cluster):
    """Told of no runners: those that other tests killed are in the directory for ever."""
    ray = pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")
    with contextlib.suppress(ValueError):  # there is none
        ray.kill(ray.get_actor("rlwire.runners", namespace="rlwire"))
    return cluster


def test_environments_find_runners_by_name(new_cluster, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, "utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": new_cluster}
    done = python(script, cwd=tmp_path, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    steps = [int(found) for found in re.findall(r"^steps: (\d+) of 2 runners$", done.stdout, re.M)]
    assert len(steps) == 3, done.stdout
    assert steps == sorted(set(steps))
    assert steps[-1] >= 6000

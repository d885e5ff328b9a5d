"""docs/howto/train.md as written, over each protocol: PPO learns CartPole, in minutes."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.programs import python

pytestmark = pytest.mark.training
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "train.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
TRAINER_CALLS = re.findall(r"^\| `(\S+)` \|", PAGE, re.MULTILINE)
ENVIRONMENT_CALLS = re.findall(r"`(\S+://\S+)`", PAGE[PAGE.index("The URLs are") :])[:2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("block", "url"), [(0, url) for url in TRAINER_CALLS] + [(1, url) for url in ENVIRONMENT_CALLS]
)
def test_howto_trainer_learns_cartpole_over_each_protocol(block, url, tmp_path):
    pytest.importorskip("stable_baselines3")
    for script, code in zip(("train.py", "callers.py"), BLOCKS, strict=True):
        code, changed = re.subn(r'^URL = ".*"$', f'URL = "{url}"', code, flags=re.MULTILINE)
        assert changed == 1
        (tmp_path / script).write_text(code, "utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = python(("train.py", "callers.py")[block], cwd=tmp_path, timeout=800, env=environment)
    assert done.returncode == 0, done.stderr
    assert "steps: True" in done.stdout, done.stdout + done.stderr

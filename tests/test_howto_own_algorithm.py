"""docs/howto/own_algorithm.md as it stands there: the folder, the commands, what they come to."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rlwire
from tests.relaax.kept import steps

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "own_algorithm.md").read_text("utf-8")
SERVER, AGENT = re.findall(r"```python\n(.*?)```", PAGE, re.S)
_, COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.S)


def test_the_folder_learns(tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "parameter_server.py").write_text(SERVER)
    (tmp_path / "search" / "agent.py").write_text(AGENT)
    serve, play = COMMANDS.splitlines()[0], COMMANDS.splitlines()[2]
    words = serve.removesuffix(" &").replace("localhost:7001", "localhost:0").split()
    assert words[:2] == ["rlwire", "serve"]
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            url = ""
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"serving (rlx://\S+),", line):
                    url = found[1]
                    break
            rest = threading.Thread(target=process.stderr.read)
            rest.start()
            assert "rlwire.play('gym:CartPole-v1', 'rlx://localhost:7001'" in play
            totals = []

            def call(seed):
                while max(totals, default=0.0) < 150.0 and len(totals) < 1000:
                    totals.extend(rlwire.play("gym:CartPole-v1", url, episodes=5, seed=seed))

            threads = [threading.Thread(target=call, args=[seed]) for seed in (1, 2, 3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert max(totals) >= 150.0
            # Without exploring, the best policy plays again and again; some episodes fall early.
            exploited = rlwire.play("gym:CartPole-v1", url, episodes=5, exploit=True, seed=1)
            assert sum(exploited) / 5 > 40.0
        finally:
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
            process.wait(20)
        rest.join()
    assert steps(tmp_path / "kept") == [len(totals)]

"""Times a client that receives 100 KB a step, with and without `record=`.

Observations are 84x84x4 float32 over dm_env_rpc. A plain client and a recording one take turns, as
fast as they can, and at 500 steps a second. The file is in the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import tempfile
from statistics import median
from time import perf_counter, sleep
from typing import Any

import gymnasium
import numpy as np
from bench_make import RPC, start_server
from pairs import TINY, print_head, print_table

import rlwire
from rlwire.recording.recorder import Recorder

STEPS = 20 if TINY else 4000


class Frames(gymnasium.Env):
    """Stacked frames, of which a tenth is noise."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (84, 84, 4), np.float32)
    action_space = gymnasium.spaces.Discrete(4)
    state = np.zeros((84, 84, 4), np.float32)
    state[:8] = np.random.default_rng(1).random((8, 84, 4))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.state, {}

    def step(self, action: Any) -> Any:
        return self.state, 1.0, False, False, {}


def main() -> None:
    """Print the table."""
    print_head("Recording a client's connection, 112,896 bytes a step.", "mcap")
    rows = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        url = start_server(stack, Frames, RPC, workers="asyncio")
        record = f"{folder}/run.mcap"
        clients = [rlwire.make(url), rlwire.make(url, record=record)]
        for client in clients:
            stack.callback(client.close)
            client.reset()
        (recorder,) = Recorder._all.values()
        for what, steps, pause in (("at full speed", STEPS, 0.0), ("500 Hz", STEPS // 4, 0.002)):
            dropped, times = recorder.dropped, ([], [])  # type: tuple[list[float], list[float]]
            for _ in range(steps):
                for client, taken in zip(clients, times, strict=True):
                    begin = perf_counter()
                    client.step(1)
                    taken.append(perf_counter() - begin)
                sleep(pause) if pause else None
            plain, recorded = (median(taken) * 1e6 for taken in times)
            lost = f"{(recorder.dropped - dropped) / (2 * steps):.0%}"
            cells = (
                f"{plain:.0f}",
                f"{recorded:.0f}",
                f"{recorded / plain:.2f}",
                "at most 1.3x",
                lost,
            )
            rows.append((what, *cells))
    print_table(("steps", "plain us", "recorded us", "ratio", "target", "dropped"), rows)


if __name__ == "__main__":
    main()

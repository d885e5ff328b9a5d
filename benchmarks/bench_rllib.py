"""How many steps a second does PPO learn from, if its environments call over RLX?

16 CartPoles in two processes call two runners of Ray's; the rival are RLlib's own two runners, of
8 vectorised CartPoles each. Both algorithms live in one Ray and train in turn, an iteration each,
which counts as a whole: sampling, learning, new weights. `python benchmarks/bench_rllib.py` prints
the table: microseconds for each step that was learnt from. Needs the extra ``rllib``; with
`RLWIRE_BENCH_TINY=1` it trains one iteration with two environments.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from pairs import TINY, Line, print_head, print_lines

import rlwire
from rlwire.adapters.relaax import AgentProxyException

if __name__ == "__main__" and importlib.util.find_spec("ray") is None:
    print("bench_rllib.py is left out: it needs Ray's RLlib, the extra 'rllib'")
    raise SystemExit
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # no clusters: at 127.0.0.1
ray: Any = pytest.importorskip("ray")

RUNNERS = 1 if TINY else 2
EACH = 2 if TINY else 8
STEPS = 100 if TINY else 2000
ITERATIONS = 1 if TINY else 5
SECONDS = 60.0  # after which no further iteration begins


def call(url: str, count: int) -> None:
    """Run in a process of its own: so many environments call a runner."""

    def play() -> None:
        with contextlib.suppress(AgentProxyException, OSError):  # the runner is gone
            rlwire.play("gym:CartPole-v1", url, episodes=10**9)

    for _ in range(count - 1):
        threading.Thread(target=play, daemon=True).start()
    play()


@contextlib.contextmanager
def callers(urls: list[str]) -> Iterator[None]:
    """Have environments call each URL."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=call, args=(url, EACH), daemon=True) for url in urls]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measure() -> tuple[float, float]:
    """Microseconds a step, ours and RLlib's."""
    from ray.rllib.algorithms.ppo import PPOConfig

    from rlwire.adapters.rllib.serving import RLlibServer

    settings = {
        "train_batch_size_per_learner": STEPS,
        "minibatch_size": min(STEPS, 128),
        "num_epochs": 1 if TINY else 4,
    }
    ray.init(
        address="local", num_cpus=2 * RUNNERS + 2, include_dashboard=False, log_to_driver=False,
        object_store_memory=200_000_000,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.callback(ray.shutdown)
        ours = RLlibServer(
            "PPO", "rlx://localhost:0", like="CartPole-v1", runners=RUNNERS, config=settings
        ).config.build_algo()
        stack.callback(ours.stop)
        theirs = (
            PPOConfig()
            .environment("CartPole-v1")
            .env_runners(num_env_runners=RUNNERS, num_envs_per_env_runner=EACH)
            .training(**settings)
            .build_algo()
        )
        stack.callback(theirs.stop)
        urls = ours.env_runner_group.foreach_env_runner(
            lambda runner: runner.url, local_env_runner=False
        )
        stack.enter_context(callers(urls))
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        until = time.perf_counter() + SECONDS
        for number in range(ITERATIONS + 1):
            if number > 1 and time.perf_counter() > until:
                break
            for name, algorithm in (("ours", ours), ("theirs", theirs)):
                begun = time.perf_counter()
                steps = algorithm.train()["env_runners"]["num_env_steps_sampled"]
                if number:  # the first one waits for callers
                    times[name].append((time.perf_counter() - begun) / steps)
        return 1e6 * median(times["ours"]), 1e6 * median(times["theirs"])


def main() -> None:
    """Print the table."""
    logging.disable()
    print_head(f"A step of PPO's with {RUNNERS * EACH} CartPoles", "ray", "torch")
    ours, theirs = measure()
    what, rival = "from environments that call", "RLlib's own runners"
    print_lines([Line(what, ours, rival, theirs, 0.5, faster=True)])


if __name__ == "__main__":
    main()

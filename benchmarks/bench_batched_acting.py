"""What does one call of a policy for all connections save against one call for each?

64 environments behind one RLX server, which runs in a process of its own, on an event loop and in
threads; the policy is PyTorch's, two layers of 64 on the CPU. An agent that learns draws its
action and wants its logarithm; one that exploits takes the likeliest, so a call costs it less.
`python benchmarks/bench_batched_acting.py` prints the table: microseconds of a step of one
of them, the servers' rounds in turn. Needs PyTorch (the extra ``torch``).
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Literal

import numpy as np
import pytest
from bench_rlx_server import Clients, connected
from pairs import TINY, Line, print_head, print_lines

from rlwire.adapters.batching import Batched
from rlwire.adapters.relaax import RLXServer
from rlwire.bench.processes import ServerProcess

if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print("bench_batched_acting.py is left out: it needs PyTorch, the extra 'torch'")
    raise SystemExit
torch = pytest.importorskip("torch")

ENVIRONMENTS = 4 if TINY else 64
ROUNDS = 3 if TINY else 400
Workers = Literal["threads", "asyncio"]


class Policy:
    """Chooses one of two actions by two layers of 64; always the second, so that it is known."""

    def __init__(self, draws: bool) -> None:
        self._draws = draws
        torch.set_num_threads(1)
        torch.manual_seed(1)
        layers = torch.nn
        last = layers.Linear(64, 2)
        with torch.no_grad():
            last.bias[:] = torch.tensor([-100.0, 100.0])
        self._network = layers.Sequential(
            layers.Linear(4, 64), layers.Tanh(), layers.Linear(64, 64), layers.Tanh(), last
        )

    def __call__(self, observations: Any) -> Any:
        with torch.inference_mode():
            found = self._network(torch.as_tensor(observations, dtype=torch.float32))
            if not self._draws:
                return found.argmax(1).numpy()
            distribution = torch.distributions.Categorical(logits=found, validate_args=False)
            actions = distribution.sample()
            self.logs = distribution.log_prob(actions)
            return actions.numpy()


class Single:
    """An agent that calls the policy for its own connection."""

    def __init__(self, parameter_server: Any) -> None:
        self.policy = parameter_server

    def init(self, exploit: bool = False) -> bool:
        """Nothing to get ready."""
        return True

    def reset(self) -> bool:
        """Nothing to forget."""
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        """The action."""
        return int(self.policy(np.asarray(state)[None])[0])


def serve(report: Callable[[Any], None], draws: bool, workers: Workers, batched: bool) -> None:
    """Run in the server's process."""
    policy = Policy(draws)
    agent: Any = Batched(policy) if batched else Single
    server = RLXServer(agent, "127.0.0.1:0", workers=workers, parameter_server=policy)
    server.start()
    report(str(server.address))
    server.serve_forever()


def measure(draws: bool) -> dict[tuple[Workers, bool], float]:
    """Microseconds of one environment's step with each server."""
    ways: list[tuple[Workers, bool]] = [
        (workers, batched) for workers in ("asyncio", "threads") for batched in (True, False)
    ]
    with contextlib.ExitStack() as stack:
        crowds: dict[Any, Clients] = {}
        for way in ways:
            server = stack.enter_context(ServerProcess("rlx", serve, draws, *way))
            crowds[way] = stack.enter_context(connected(server.address, ENVIRONMENTS))
        times: dict[Any, list[float]] = {way: [] for way in ways}
        for number in range(ROUNDS):
            for way in ways:
                begun = time.perf_counter()
                crowds[way].step()
                if number >= ROUNDS // 10:
                    times[way].append(time.perf_counter() - begun)
    return {way: 1e6 * median(found) / ENVIRONMENTS for way, found in times.items()}


@pytest.mark.parametrize("draws", [True, False])
def test_acting(draws: bool) -> None:
    """All ways answer."""
    assert all(measure(draws).values())


def main() -> None:
    """Print the table."""
    print_head(f"A step of one of {ENVIRONMENTS} environments behind one policy", "torch")
    lines = []
    for draws in (True, False):
        found = measure(draws)
        what = "drawn" if draws else "likeliest"
        for workers, rival in (("asyncio", "asyncio"), ("asyncio", "threads"), ("threads",) * 2):
            target = 4.0 if draws and workers == rival == "asyncio" else None
            lines.append(
                Line(
                    f"{what}, batched over connections, {workers}",
                    found[workers, True],
                    f"a call for each, {rival}",
                    found[rival, False],
                    target,
                    faster=True,
                )
            )
    print_lines(lines)


if __name__ == "__main__":
    main()

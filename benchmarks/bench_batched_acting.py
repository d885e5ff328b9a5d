"""What does one call of a policy for all connections save against one call for each?

64 environments behind RLX servers in one process, on an event loop and in threads, of which one
is busy at a time; the policy is PyTorch's, two layers of 64 on the CPU. An agent that learns draws
its action and wants its logarithm; one that exploits takes the likeliest, so a call costs it less.
`python benchmarks/bench_batched_acting.py` prints the table: microseconds of a step of one
of them, the servers' rounds in turn. A round is a step that is not timed and five that are: after
another's round everything is cold, which is no part of steps that go on and on. Its last rows are
the floor: a bare loop around epoll that looks at nothing, and calls the policy for all that wait.
Needs PyTorch (the extra ``torch``).
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
from bench_rlx_server import Clients, connected, serve_epoll
from pairs import TINY, Line, print_head, print_lines

from rlwire.adapters.batching import Batched
from rlwire.adapters.relaax import RLXServer
from rlwire.bench.processes import ServerProcess

if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print("bench_batched_acting.py is left out: it needs PyTorch, the extra 'torch'")
    raise SystemExit
torch = pytest.importorskip("torch")

ENVIRONMENTS = 4 if TINY else 64
ROUNDS = 3
STEPS = 1 if TINY else 5  # of each in its turn, after one that is not timed
SECONDS = 0.0 if TINY else 8.0  # after that many rounds at least
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


WAYS: list[tuple[Workers, bool]] = [
    (workers, batched) for workers in ("asyncio", "threads") for batched in (True, False)
]


def serve(report: Callable[[Any], None]) -> None:
    """Run in the servers' process: one for each way and policy."""
    addresses = {}
    for draws in (True, False):
        for workers, batched in WAYS:
            policy = Policy(draws)
            agent: Any = Batched(policy) if batched else Single
            server = RLXServer(agent, "127.0.0.1:0", workers=workers, parameter_server=policy)
            addresses[draws, workers, batched] = str(server.start().address)
    report(addresses)
    server.serve_forever()


def serve_floor(report: Callable[[Any], None], draws: bool) -> None:
    """Run in another's: the least that Python can do for them."""
    policy = Policy(draws)
    serve_epoll(report, lambda count: policy(np.zeros((count, 4))))


def measure(draws: bool, servers: ServerProcess) -> dict[Any, float]:
    """Microseconds of one environment's step with each server, and of the floor."""
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(ServerProcess("epoll", serve_floor, draws))
        crowds: dict[Any, Clients] = {
            way: stack.enter_context(connected(servers.address[(draws, *way)], ENVIRONMENTS))
            for way in WAYS
        }
        crowds["floor"] = stack.enter_context(connected(bare.address, ENVIRONMENTS))
        times: dict[Any, list[float]] = {way: [] for way in crowds}
        until = time.perf_counter() + SECONDS
        while len(times["floor"]) < ROUNDS or time.perf_counter() < until:
            for way, each in crowds.items():
                each.step()
                begun = time.perf_counter()
                for _ in range(STEPS):
                    each.step()
                times[way].append((time.perf_counter() - begun) / STEPS)
    return {way: 1e6 * median(found) / ENVIRONMENTS for way, found in times.items()}


def lines() -> list[Line]:
    """Compare."""
    found = []
    with ServerProcess("rlx", serve) as servers:
        for draws in (True, False):
            took = measure(draws, servers)
            what = "drawn" if draws else "likeliest"
            for workers, rival in (
                ("asyncio", "asyncio"),
                ("asyncio", "threads"),
                ("threads",) * 2,
            ):
                target = 4.0 if draws and workers == rival == "asyncio" else None
                ours, theirs = took[workers, True], took[rival, False]
                name = f"{what}, batched over connections, {workers}"
                other = f"a call for each, {rival}"
                found.append(Line(name, ours, other, theirs, target, faster=True))
            name, theirs = f"{what}, bare epoll and the policy", took["asyncio", False]
            found.append(Line(name, took["floor"], "a call for each, asyncio", theirs, faster=True))
    return found


def test_acting() -> None:
    """All ways answer."""
    assert all(line.ours > 0 < line.theirs for line in lines())


def main() -> None:
    """Print the table."""
    print_head(f"A step of one of {ENVIRONMENTS} environments behind one policy", "torch")
    print_lines(lines())


if __name__ == "__main__":
    main()

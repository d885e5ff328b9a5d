"""How much longer is an exchange of RLX if a trainer's environment answers it, not an agent?

A caller sends CartPole's observations by `AgentProxy.update`, in turns to two processes: an
`RLXServer` whose agent returns at once, and a loop over `rlwire.listen(url).step`. Every 200th
update ends an episode. `python benchmarks/bench_listen.py` prints the ratio of the medians.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter_ns
from typing import Any

import gymnasium
import pytest
from pairs import TINY, Line, print_head, print_lines, run_benchmark

import rlwire
from rlwire.adapters.relaax import AgentProxy, RLXServer
from rlwire.bench.processes import ServerProcess, allowed_cores, pin

SECONDS = 0.05 if TINY else 6.0
BLOCK = 20 if TINY else 400
EPISODE = 200


class Agent:
    """Returns an action at once."""

    def __init__(self, parameter_server: Any) -> None:
        pass

    def init(self, exploit: bool) -> bool:
        return True

    def reset(self) -> bool:
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        return 1


def serve_agents(report: Callable[[Any], None]) -> None:
    """Run in a process: RLX's own exchange."""
    server = RLXServer(Agent, "127.0.0.1:0").start()
    report(str(server.address))
    server.serve_forever()


def train(report: Callable[[Any], None]) -> None:
    """Run in a process: a trainer's loop."""
    with contextlib.closing(rlwire.listen("rlx://127.0.0.1:0", like="CartPole-v1")) as env:
        report(env.callers.url.removeprefix("rlx://"))
        while True:
            env.reset()
            over = False
            while not over:
                _, _, terminated, truncated, _ = env.step(1)
                over = terminated or truncated


class Caller:
    """Calls with observations that were made before."""

    def __init__(self, address: str) -> None:
        env = gymnasium.make("CartPole-v1")
        self._states = [env.observation_space.sample() for _ in range(64)]
        env.close()
        self._number = 0
        self._proxy = AgentProxy(address)
        self._proxy.connect()
        self._proxy.init()
        self._update = self._proxy.update
        self.exchange()

    def exchange(self) -> int:
        """One update; returns its nanoseconds."""
        number, self._number = self._number % EPISODE, self._number + 1
        reward = 1.0 if number else None
        begun = perf_counter_ns()
        self._update(reward, self._states[number % 64], number == EPISODE - 1)
        return perf_counter_ns() - begun

    def close(self) -> None:
        """Leave."""
        self._proxy.disconnect()


@contextlib.contextmanager
def caller_of(serve: Callable[..., None], cores: list[int] | None = None) -> Iterator[Caller]:
    """A caller of what runs in another process."""
    with (
        ServerProcess(serve.__name__, serve, cores=cores) as server,
        contextlib.closing(Caller(server.address)) as caller,
    ):
        yield caller


@pytest.mark.benchmark(group="listen")
@pytest.mark.parametrize("serve", [train, serve_agents])
def test_exchange(benchmark: Any, serve: Callable[..., None]) -> None:
    """Each by itself."""
    with caller_of(serve) as caller:
        run_benchmark(benchmark, caller.exchange)


def lines() -> Iterator[Line]:
    """The ratio of medians on one core, and on two where there are."""
    allowed = allowed_cores()
    for where, core in (("one core", 0), ("two cores", 1)):
        if core >= len(allowed):
            print(f"{where}: left out, this process may choose among {len(allowed)} cores")
            continue
        pin(allowed[:1])
        try:
            with (
                caller_of(train, [allowed[core]]) as trained,
                caller_of(serve_agents, [allowed[core]]) as answered,
            ):
                times: tuple[list[int], list[int]] = ([], [])
                deadline = perf_counter_ns() + SECONDS * 1e9
                while perf_counter_ns() < deadline:
                    for caller, kept in ((trained, times[0]), (answered, times[1])):
                        block = [caller.exchange() for _ in range(BLOCK)]
                        kept.extend(block[BLOCK // 10 :])  # the first ones warm the caches up
        finally:
            pin(allowed)
        ours, theirs = (median(each) / 1e3 for each in times)
        yield Line(f"listen(url).step, CartPole, {where}", ours, "RLX's exchange", theirs, 1.3)


if __name__ == "__main__":
    print_head("How much longer is an exchange that a trainer's environment answers?", "gymnasium")
    print_lines(list(lines()))

"""What do environments that are somewhere else cost over their protocol's own client, and many?

CartPole-v1 over dm_env_rpc, servers in processes of their own (``workers="asyncio"``). `python
benchmarks/bench_make.py` prints two tables: a step of `rlwire.make` next to one of the protocol's
client, in turns; and a step of `rlwire.make_vec` over 64 endpoints of two servers next to 64 times
a step of one of them, in turns. Medians of the turns.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pairs import TINY, print_head, print_table

import rlwire
from rlwire.codecs.dm_env_rpc import EnvironmentStateType

TURNS = 1 if TINY else 7
SECONDS = 0.01 if TINY else 0.7
MANY = 4 if TINY else 64
NAMES = ("observation", "reward", "discount")


def serve(connection: Any, make: Any = "gym:CartPole-v1") -> None:
    """Serve until the other end closes the pipe."""
    with rlwire.serve(make, "dm-env-rpc://127.0.0.1:0", workers="asyncio") as server:
        connection.send(str(server.url))
        with contextlib.suppress(EOFError):
            connection.recv()


@contextlib.contextmanager
def servers(count: int) -> Iterator[list[str]]:
    """Start servers in processes, and yield their URLs."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for _ in range(count):
            here, there = context.Pipe()
            processes.append(context.Process(target=serve, args=(there,)))
            processes[-1].start()
            there.close()
            pipes.append(here)
        yield [pipe.recv() for pipe in pipes]
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join()


def of_environment(env: Any) -> Callable[[], None]:
    """A step, and a reset where one is due."""
    env.reset(seed=1)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(1)
        if terminated or truncated:
            env.reset()

    return step


def of_client(client: Any) -> Callable[[], None]:
    """The same by the protocol's own client."""
    client.join_world()
    client.step()

    def step() -> None:
        result = client.step({"action": 1}, NAMES)
        if result.state != EnvironmentStateType.RUNNING:
            client.step({}, NAMES)

    return step


def of_vector(envs: Any) -> Callable[[], None]:
    """A step of all of them."""
    envs.reset(seed=1)
    actions = np.ones(envs.num_envs, np.int64)
    return lambda: envs.step(actions)


def turn(step: Callable[[], None]) -> float:
    """Microseconds a step over some time."""
    begin, steps = perf_counter(), 0
    while (now := perf_counter()) - begin < SECONDS:
        step()
        steps += 1
    return (now - begin) / steps * 1e6


def in_turns(one: Callable[[], None], other: Callable[[], None]) -> tuple[float, float, float]:
    """The medians of both, and of the ratios of each turn."""
    pairs = [(turn(one), turn(other)) for _ in range(TURNS)]
    ones, others = zip(*pairs, strict=True)
    return median(ones), median(others), median(mine / yours for mine, yours in pairs)


def alone(urls: list[str]) -> tuple[float, float, float]:
    """`make` and the client."""
    with rlwire.make(urls[0]) as env, rlwire.connect(urls[0]) as client:
        return in_turns(of_environment(env), of_client(client))


def together(urls: list[str]) -> tuple[float, float, float]:
    """`make_vec` and as many times `make`."""
    many = [urls[place % len(urls)] for place in range(MANY)]
    with rlwire.make_vec(many) as envs, rlwire.make(urls[0]) as env:
        all_of_them, one, ratio = in_turns(of_vector(envs), of_environment(env))
    return all_of_them, MANY * one, ratio / MANY


if __name__ == "__main__":
    print_head("Steps of environments that are somewhere else, CartPole-v1 over dm_env_rpc.")
    rows = []
    with servers(2) as urls:
        for name, against, measure, most in (
            ("make(url).step", "the client's step", alone, 1.3),
            (f"make_vec of {MANY} in 2 processes", f"{MANY} times one step", together, 0.5),
        ):
            ours, theirs, ratio = measure(urls)
            met = "yes" if ratio <= most else "no"
            times = f"{ours:,.0f}", f"{theirs:,.0f}"
            rows.append((name, times[0], against, times[1], f"{ratio:.2f}x", f"{most:g}x", met))
    print_table(("work", "us", "against", "us", "ratio", "at most", "met"), rows)

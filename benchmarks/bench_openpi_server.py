"""What does an observation cost a robot that asks a policy server, with either end rlwire's?

An observation is two cameras of 224x224x3, eight numbers and a sentence (301 KB), the answer
50 x 14 numbers; the policy answers at once. Ends that are openpi's are openpi-client's own
`WebsocketClientPolicy`, and a server written as openpi's is, on websockets and the same codec. They
are measured as they are, and after ``rlwire.install("openpi_client")``. Without openpi-client
(`pip install --no-deps openpi-client dm-tree`) only rlwire's own ends are measured.

`python benchmarks/bench_openpi_server.py` prints the ratios, on one core and on two, and then those
of rlwire's two ends to a raw blocking exchange of the same bytes, for an observation of four
numbers and for one of 100 KB (with ``raw`` only these); `pytest benchmarks/bench_openpi_server.py`
times each pair, not pinned.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
from pairs import TINY, print_head, print_table, run_benchmark

import rlwire
from rlwire.adapters.openpi import PolicyClient, PolicyServer
from rlwire.bench.payloads import record
from rlwire.bench.processes import allowed_cores, pin
from rlwire.bench.provider import Cores
from rlwire.bench.providers.openpi import OpenpiRow
from rlwire.bench.runner import measure

SECONDS = 0.1 if TINY else 12.0
BLOCK = 5 if TINY else 40
RANDOM = np.random.default_rng(7)
ACTION = {"actions": RANDOM.random((50, 14))}
OBSERVATION = {
    "observation/image": RANDOM.integers(0, 256, (224, 224, 3), np.uint8),
    "observation/wrist_image": RANDOM.integers(0, 256, (224, 224, 3), np.uint8),
    "observation/state": RANDOM.random(8, np.float32),
    "prompt": "fold the towel",
}

# Server, client, and which of them has rlwire's codec installed in openpi-client.
PAIRS: dict[str, tuple[str, str]] = {
    "openpi's server, openpi's client": ("theirs", "theirs"),
    "openpi's server and client, both with rlwire.install": ("installed", "installed"),
    "rlwire's server, openpi's client": ("ours", "theirs"),
    "rlwire's server, openpi's client with rlwire.install": ("ours", "installed"),
    "openpi's server, rlwire's client": ("theirs", "ours"),
    "rlwire's server and client": ("ours", "ours"),
    "rlwire's server and client, threads=0": ("ours, 0", "ours"),
    "rlwire's server and client, workers='threads'": ("ours, threads", "ours"),
}
if find_spec("openpi_client") is None:
    PAIRS = {name: pair for name, pair in PAIRS.items() if not {"theirs", "installed"} & {*pair}}
BASE = next(iter(PAIRS))


def infer(observation: dict[str, Any]) -> dict[str, Any]:
    """Look at what came, and answer."""
    assert observation["observation/image"].shape == (224, 224, 3)
    return dict(ACTION)


def serve(kind: str) -> None:
    """Serve until killed; prints the port."""
    if kind.startswith("ours"):
        options: dict[str, Any] = {
            "ours": {}, "ours, 0": {"threads": 0}, "ours, threads": {"workers": "threads"}
        }[kind]  # fmt: skip
        server = PolicyServer(infer, "127.0.0.1:0", **options).start()
        print(server.address.port, flush=True)
        threading.Event().wait()
    if kind == "installed":
        rlwire.install("openpi_client")
    asyncio.run(serve_theirs())


async def serve_theirs() -> None:
    """As openpi's server does it: receive, infer, answer."""
    from openpi_client import msgpack_numpy
    from websockets.asyncio.server import serve as listen
    from websockets.exceptions import ConnectionClosed

    async def talk(peer: Any) -> None:
        packer = msgpack_numpy.Packer()
        await peer.send(packer.pack({}))
        with suppress(ConnectionClosed):
            while True:
                observation = msgpack_numpy.unpackb(await peer.recv())
                begun = perf_counter_ns()
                action = infer(observation)
                action["server_timing"] = {"infer_ms": (perf_counter_ns() - begun) / 1e6}
                await peer.send(packer.pack(action))

    async with listen(talk, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


def start(kind: str, cores: list[int] | None, stack: ExitStack) -> int:
    """Start a server and return its port."""
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", kind, json.dumps(cores)], stdout=subprocess.PIPE
    )

    def end() -> None:
        process.kill()
        process.communicate()

    stack.callback(end)
    assert process.stdout is not None
    return int(process.stdout.readline())


def ask(name: str, cores: list[int] | None, stack: ExitStack) -> Callable[[], Any]:
    """A connected client of a pair: one exchange."""
    server, client = PAIRS[name]
    port = start(server, cores, stack)
    if client == "ours":
        policy: Any = stack.enter_context(PolicyClient(f"127.0.0.1:{port}"))
        return lambda: policy.infer(OBSERVATION)
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    warnings.simplefilter("ignore", DeprecationWarning)  # websockets dislikes how it connects
    if client == "installed":
        rlwire.install("openpi_client")
        stack.callback(rlwire.uninstall, "openpi_client")
    policy = WebsocketClientPolicy("127.0.0.1", port)
    stack.callback(policy._ws.close)
    return lambda: policy.infer(OBSERVATION)


def block_of(name: str, cores: list[int] | None) -> list[float]:
    """Microseconds of each exchange of a block, in a process of its own."""
    with ExitStack() as stack:
        exchange = ask(name, cores, stack)
        answer = exchange()
        assert answer["actions"].tobytes() == ACTION["actions"].tobytes()
        times = []
        for _ in range(BLOCK):
            begun = perf_counter_ns()
            exchange()
            times.append((perf_counter_ns() - begun) / 1e3)
        return times[BLOCK // 10 :]


@pytest.mark.benchmark(group="openpi, an observation")
@pytest.mark.parametrize("name", PAIRS)
def test_exchange(benchmark: Any, name: str) -> None:
    """One exchange."""
    with ExitStack() as stack:
        run_benchmark(benchmark, ask(name, None, stack))


def settings() -> Iterator[tuple[str, list[int], list[int]]]:
    """A name, the client's cores, the server's."""
    allowed = allowed_cores()
    yield "one core", allowed[:1], allowed[:1]
    if len(allowed) > 1:
        yield "two cores", allowed[:1], allowed[1:2]


def print_raw() -> None:
    """Print rlwire's exchanges and raw ones, whose blocks take turns."""
    rows = []
    for where, client, server in settings():
        pin(client)
        cores = Cores(client, server)
        for name in ("cartpole", "pong"):
            result = measure(OpenpiRow(record(name), cores), SECONDS, cores, lambda _: None)
            times = result.round_trip.p50, result.echo.p50, result.overhead.p50
            size = f"{result.request_bytes:,} bytes"
            rows.append((where, size, *(f"{time:.1f}" for time in times[:2]), f"{times[2]:.2f}x"))
    print_table(("setting", "request", "openpi, us", "raw exchange, us", "ratio"), rows)


def main() -> None:
    """Print the table: blocks of all pairs take turns."""
    print_head("An observation to a policy and its action back.", "websockets", "openpi-client")
    rows = []
    for where, client, server in settings():
        taken: dict[str, list[float]] = {name: [] for name in PAIRS}
        deadline = perf_counter_ns() + SECONDS * 1e9
        while perf_counter_ns() < deadline or not taken[BASE]:
            for name in PAIRS:
                done = subprocess.run(
                    [sys.executable, __file__, "measure", name, json.dumps([client, server])],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                taken[name] += json.loads(done.stdout)
        base = median(taken[BASE])
        for name, times in taken.items():
            rows.append((where, name, f"{median(times):,.0f}", f"{base / median(times):.2f}x"))
    print_table(("setting", "who", "us", "times as fast as the first"), rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        if (own := json.loads(sys.argv[3])) is not None:
            pin(own)
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["measure"]:
        client_cores, server_cores = json.loads(sys.argv[3])
        pin(client_cores)
        print(json.dumps(block_of(sys.argv[2], server_cores)))
    else:
        if sys.argv[1:2] != ["raw"]:
            main()
        print_raw()

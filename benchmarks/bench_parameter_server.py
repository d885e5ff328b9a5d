"""What does an agent's call of an op cost, with 1 MB of weights each way?

The parameter server is in a process of its own, over shared memory. RELAAX's bridge is re-stated
here as it was: gRPC, a message for each value and each piece of 1 MiB of an array, in both
directions, each pickled (the original's were protobuf's), one call at a time. Ray's rival is a
plain actor's method that takes and returns the same arrays; another has as many threads as ours,
whose ops may wait for each other, and what Ray takes to hand a call to one of them is in both.
Blocks of 15 calls take turns.

`python benchmarks/bench_parameter_server.py` prints the table: medians. Ray is no part of the
benchmarks' packages; without it its row is left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from pairs import TINY, Line, print_head, print_lines

from rlwire.adapters.relaax import Metrics, load_algorithm, open_parameter_server
from rlwire.bench.processes import ServerProcess

ROUNDS, BLOCK = (1, 2) if TINY else (20, 15)
SIDE = 8 if TINY else 256
PIECE = 1024 * 1024
RAY = importlib.util.find_spec("ray") is not None

ALGORITHM = """
from rlwire.adapters.relaax import ParameterServer as Base, Session

Agent = object


class Model:
    def op_swap(self, weights):
        before, self.weights = getattr(self, "weights", weights), weights
        return before


class ParameterServer(Base):
    def init_session(self):
        self.session = Session(Model())

    def n_step(self):
        return 0
"""


class Nowhere(Metrics):
    """Keeps nothing."""

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Take one number."""


def layers() -> list[np.ndarray[Any, Any]]:
    """Weights of 1 MB, in four layers."""
    random = np.random.default_rng(0)
    return [random.random((SIDE, SIDE), np.float32) for _ in range(4)]


# ---- the original's bridge -----------------------------------------------------------------------


def pieces(value: Any, key: Any = None) -> Iterator[tuple[Any, ...]]:
    """A value as the bridge's messages."""
    if isinstance(value, (list, tuple, dict)):
        yield "open", type(value).__name__, key
        items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
        for name, each in items:
            yield from pieces(each, name)
        yield "close", key
    elif isinstance(value, np.ndarray):
        data = value.tobytes()
        for start in range(0, max(len(data), 1), PIECE):
            last = start + PIECE >= len(data)
            what = (str(value.dtype), value.shape) if last else None
            yield "array", data[start : start + PIECE], what, key
    else:
        yield "value", value, key


def whole(messages: Iterator[tuple[Any, ...]], first: tuple[Any, ...]) -> tuple[Any, Any]:
    """The value that begins with a message, and its key."""
    if first[0] == "value":
        return first[1], first[2]
    if first[0] == "array":
        data = [first[1]]
        while first[2] is None:
            first = next(messages)
            data.append(first[1])
        dtype, shape = first[2]
        buffer = data[0] if len(data) == 1 else b"".join(data)
        return np.ndarray(shape, np.dtype(dtype), buffer), first[3]
    items = []
    while (message := next(messages))[0] != "close":
        items.append(whole(messages, message))
    if first[1] == "dict":
        return {key: value for value, key in items}, message[1]
    return [value for value, _ in items], message[1]


def read(messages: Iterable[tuple[Any, ...]]) -> Any:
    """The value that messages are."""
    rest = iter(messages)
    return whole(rest, next(rest))[0]


def serve_bridge(report: Callable[[Any], None]) -> None:
    """Run in the process of the original's parameter server."""
    import grpc

    kept: list[Any] = []

    def op_swap(weights: Any) -> Any:
        before = kept.pop() if kept else weights
        kept.append(weights)
        return before

    def run(request: Iterator[Any], context: Any) -> Iterator[Any]:
        names, args, kwargs = read(request)
        assert names == ["op_swap"]
        return pieces(op_swap(*args, **kwargs))

    handler = grpc.stream_stream_rpc_method_handler(run, pickle.loads, pickle.dumps)
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("Bridge", {"Run": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    report(port)
    server.wait_for_termination()


def bridge(stack: contextlib.ExitStack) -> Callable[[Any], Any]:
    """A call over the original's bridge."""
    import grpc

    port = stack.enter_context(ServerProcess("bridge", serve_bridge)).address
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
    stub = channel.stream_stream("/Bridge/Run", pickle.dumps, pickle.loads)
    return lambda weights: read(stub(pieces([["op_swap"], [weights], {}])))


# ---- ours and Ray's ------------------------------------------------------------------------------


def at_home(stack: contextlib.ExitStack, home: Any) -> Callable[[Any], Any]:
    """A call of rlwire's."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "swapping.py").write_text(ALGORITHM)
    algorithm = load_algorithm(folder / "swapping.py")
    handle = open_parameter_server(algorithm, home=home, metrics=Nowhere())
    stack.callback(handle.close)
    call: Callable[[Any], Any] = handle.session.op_swap
    return call


def plain_actor(**options: Any) -> Callable[[Any], Any]:
    """A call of a plain actor of Ray's."""
    import ray

    class Plain:
        def op_swap(self, weights: Any) -> Any:
            before, self.weights = getattr(self, "weights", weights), weights
            return before

    actor = ray.remote(Plain).options(num_cpus=0, **options).remote()
    return lambda weights: ray.get(actor.op_swap.remote(weights))


@contextlib.contextmanager
def ray_running() -> Iterator[None]:
    """Ray, on this machine alone."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # no clusters: at 127.0.0.1
    import ray

    options = {"num_cpus": 1, "object_store_memory": 200_000_000, "include_dashboard": False}
    ray.init(address="local", logging_level=logging.ERROR, **options)
    try:
        yield
    finally:
        ray.shutdown()


def measure(*calls: Callable[[Any], Any]) -> list[float]:
    """Microseconds of a call, of each kind."""
    weights = layers()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, taken in zip(calls, times, strict=True):
            found = call(weights)
            assert all(map(np.array_equal, found, weights))
            for _ in range(BLOCK):
                begin = time.perf_counter()
                call(weights)
                taken.append(1e6 * (time.perf_counter() - begin))
    return [median(taken) for taken in times]


def main() -> None:
    """Print the table."""
    logging.disable()
    print_head("An agent's call of an op with 1 MB of weights each way", "grpcio", "ray")
    with contextlib.ExitStack() as stack:
        ours, theirs = measure(at_home(stack, "process"), bridge(stack))
    lines = [Line("process, 1 MB each way", ours, "the bridge", theirs, 20.0, True)]
    if RAY:
        with contextlib.ExitStack() as stack:
            stack.enter_context(ray_running())
            threads = plain_actor(max_concurrency=64)
            ours, theirs, also = measure(at_home(stack, "ray"), plain_actor(), threads)
        lines.append(Line("Ray, 1 MB each way", ours, "an actor", theirs, 1.1))
        lines.append(Line("Ray, 1 MB each way", ours, "an actor with threads", also))
    print_lines(lines)


@pytest.mark.parametrize("home", ["in a process", "RELAAX's bridge"])
def test_call(benchmark: Any, home: str) -> None:
    """Time one of them by itself."""
    weights = layers()
    with contextlib.ExitStack() as stack:
        call = bridge(stack) if home == "RELAAX's bridge" else at_home(stack, "process")
        benchmark(call, weights)


if __name__ == "__main__":
    main()

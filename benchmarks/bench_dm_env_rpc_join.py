"""How long is it from nothing to a joined world, and from there to the end?

An agent connects, joins the world without a name, and closes. Ours has a connection for each
stream; grpcio may begin a stream on a channel that is open already, so the reference is timed on a
new channel and on an open one. The servers are those of bench_dm_env_rpc_steps.py, each a process.

`pytest benchmarks/bench_dm_env_rpc_join.py` times each; `python
benchmarks/bench_dm_env_rpc_join.py` prints the ratios.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2
from pairs import TINY, Line, print_head, print_lines, run_benchmark
from rounds import Exchange, start, take_turns

from rlwire.adapters.dm_env_rpc import Client

SECONDS = 0.05 if TINY else 6.0
BLOCK = 10 if TINY else 20
STEPS = str(Path(__file__).with_name("bench_dm_env_rpc_steps.py"))
# Channels of one process share connections otherwise.
ALONE = [("grpc.use_local_subchannel_pool", 1)]


def join_ours(port: int, stack: ExitStack) -> Exchange:
    def join() -> Any:
        with Client(("127.0.0.1", port)) as client:
            return client.join_world()

    return join


def _join_reference(channel: Any) -> Any:
    with connection.Connection(channel) as link:
        return link.send(dm_env_rpc_pb2.JoinWorldRequest()).specs


def join_reference(port: int, stack: ExitStack) -> Exchange:
    def join() -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{port}", ALONE) as channel:
            return _join_reference(channel)

    return join


def join_on_a_channel(port: int, stack: ExitStack) -> Exchange:
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", ALONE))
    return lambda: _join_reference(channel)


RIVALS = {
    "ours": ("ours", join_ours),
    "dm_env_rpc": ("dm_env_rpc", join_reference),
    "dm_env_rpc, open channel": ("dm_env_rpc", join_on_a_channel),
}


def ask(name: str, stack: ExitStack) -> Exchange:
    """Start a rival's server in a process and return what joins and leaves."""
    server, make = RIVALS[name]
    return make(start(stack, STEPS, "serve", server, "4"), stack)


@pytest.mark.benchmark(group="dm_env_rpc join")
@pytest.mark.parametrize("name", RIVALS)
def test_join(benchmark: Any, name: str) -> None:
    """From nothing to a joined world, and the end of it."""
    with ExitStack() as stack:
        join = ask(name, stack)
        assert len(join().observations) == 2
        run_benchmark(benchmark, join)


def main() -> None:
    """Print the table."""
    print_head("Connecting, joining a world, closing.", "dm-env-rpc", "grpcio")
    with ExitStack() as stack:
        times = take_turns({name: ask(name, stack) for name in RIVALS}, SECONDS, BLOCK)
    print_lines(
        [
            Line("connect, join, close", times["ours"], name, times[name], target)
            for name, target in (("dm_env_rpc", 1.0), ("dm_env_rpc, open channel", None))
        ]
    )


if __name__ == "__main__":
    main()

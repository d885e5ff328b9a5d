"""Times a step of dm_env_rpc over loopback, with rlwire and with the reference.

Each server is a process and sends the same observations: four floats, or an Atari stack as float32,
and a reward. The reference is dm_env_rpc's `Connection`, `SpecManager` and a servicer of its
generated gRPC code. The echo sends raw bytes of the same sizes over grpcio's public interface.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import grpc
import numpy as np
from dm_env_rpc.v1 import (
    connection,
    dm_env_rpc_pb2,
    dm_env_rpc_pb2_grpc,
    spec_manager,
    tensor_utils,
)
from grpc_echo import (
    OPTIONS,
    Connected,
    OnLoop,
    ask_echo,
    ask_echo_asyncio,
    serve_echo,
    serve_echo_asyncio,
)
from pairs import TINY, Line, print_head, print_lines
from rounds import Exchange, World, start, take_turns

import rlwire
from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    EnvironmentStateType,
    JoinWorldResponse,
    SpecManager,
    encode_response,
    encode_step_request,
    encode_step_response,
    make_spec,
)
from rlwire.dm_env_rpc import AsyncClient, Client, Server

SIDE = 8 if TINY else 84
SECONDS = 0.05 if TINY else 15.0
BLOCK = 10 if TINY else 100
COUNT = 8  # different observations
METHOD = "/dm_env_rpc.v1.Environment/Process"
RUNNING = EnvironmentStateType.RUNNING
NAMES = ("observation", "reward")

# The shape of the observation, and how many times faster than the reference a step should be.
SHAPES: dict[str, tuple[tuple[int, ...], float, float]] = {
    "4 floats": ((4,), 15.0, 2.0),
    f"{SIDE}x{SIDE}x4 float32": ((SIDE, SIDE, 4), 40.0, 6.0),
}


def observations(shape: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the observations, which are sent in turn."""
    random = np.random.default_rng(7)
    return [
        {"observation": random.random(shape, np.float32), "reward": np.float32(number)}
        for number in range(COUNT)
    ]


def specs(shape: tuple[int, ...]) -> ActionObservationSpecs:
    return ActionObservationSpecs(
        {1: make_spec("action", (), np.int32, 0, 3)},
        {1: make_spec("observation", shape, np.float32), 2: make_spec("reward", (), np.float32)},
    )


def serve_ours(shape: tuple[int, ...], workers: Literal["threads", "asyncio"] = "threads") -> None:
    server = Server(
        lambda settings: World(specs(shape), observations(shape)), "127.0.0.1:0", workers=workers
    )
    print(server.start().address.port, flush=True)
    server.wait()


class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):  # type: ignore[misc]
    """The same world for the reference."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.specs = reference_specs(shape)
        self._shown = itertools.cycle(observations(shape))

    def Process(self, requests: Any, context: Any) -> Iterator[Any]:
        actions = spec_manager.SpecManager(self.specs.actions)
        shown = spec_manager.SpecManager(self.specs.observations)
        for request in requests:
            response = dm_env_rpc_pb2.EnvironmentResponse()
            if request.WhichOneof("payload") == "join_world":
                response.join_world.specs.CopyFrom(self.specs)
            else:
                actions.unpack(request.step.actions)
                packed = shown.pack(next(self._shown))
                response.step.state = dm_env_rpc_pb2.EnvironmentStateType.RUNNING
                for uid in request.step.requested_observations:
                    response.step.observations[uid].CopyFrom(packed[uid])
            yield response


def reference_specs(shape: tuple[int, ...]) -> Any:
    joined = encode_response(JoinWorldResponse(specs(shape)))
    return dm_env_rpc_pb2.EnvironmentResponse.FromString(joined).join_world.specs


def serve_reference(shape: tuple[int, ...]) -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Servicer(shape), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def serve_drop_in(shape: tuple[int, ...]) -> None:
    rlwire.install("dm_env_rpc")
    serve_reference(shape)


def reply_of(shape: tuple[int, ...]) -> bytes:
    manager = SpecManager(specs(shape).observations)
    return encode_step_response(manager, RUNNING, observations(shape)[0], None)


def request_of() -> bytes:
    return encode_step_request(SpecManager(specs((4,)).actions), {"action": np.int32(2)}, [1, 2])


def ask_ours(port: int, stack: ExitStack) -> Exchange:
    client = stack.enter_context(Client(("127.0.0.1", port)))
    client.connect()
    client.join_world()
    step, action = client.step, {"action": np.int32(2)}
    client.step(action, NAMES)
    return lambda: step(action, NAMES).observations["observation"]


def ask_ours_asyncio(port: int, stack: ExitStack) -> OnLoop:
    async def connect() -> Connected:
        client = AsyncClient(("127.0.0.1", port))
        await client.connect()
        await client.join_world()
        action = {"action": np.int32(2)}
        await client.step(action, NAMES)

        async def step() -> Any:
            return (await client.step(action, NAMES)).observations["observation"]

        return step, client.close

    return OnLoop(stack, connect())


def ask_reference(port: int, stack: ExitStack) -> Exchange:
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS))
    link = stack.enter_context(connection.Connection(channel))
    joined = link.send(dm_env_rpc_pb2.JoinWorldRequest()).specs
    actions = spec_manager.SpecManager(joined.actions)
    shown = spec_manager.SpecManager(joined.observations)
    action, uids = {"action": np.int32(2)}, [1, 2]

    def exchange() -> Any:
        request = dm_env_rpc_pb2.StepRequest(
            actions=actions.pack(action), requested_observations=uids
        )
        return shown.unpack(link.send(request).observations)["observation"]

    return exchange


def ask_drop_in(port: int, stack: ExitStack) -> Exchange:
    rlwire.install("dm_env_rpc")
    exchange = ask_reference(port, stack)
    ours = tensor_utils.pack_tensor, tensor_utils.unpack_tensor
    rlwire.uninstall("dm_env_rpc")
    own = tensor_utils.pack_tensor, tensor_utils.unpack_tensor

    def with_ours() -> Any:
        tensor_utils.pack_tensor, tensor_utils.unpack_tensor = ours
        try:
            return exchange()
        finally:
            tensor_utils.pack_tensor, tensor_utils.unpack_tensor = own

    return with_ours


RIVALS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "ours": (serve_ours, ask_ours),
    "ours, asyncio": (partial(serve_ours, workers="asyncio"), ask_ours_asyncio),
    "dm_env_rpc": (serve_reference, ask_reference),
    "dm_env_rpc with rlwire.install": (serve_drop_in, ask_drop_in),
    # The lower bound of programs that use the package: their server is grpcio's too.
    "our client at the package's server": (serve_drop_in, ask_ours),
    "echo": (
        lambda shape: serve_echo(reply_of(shape)),
        lambda port, stack: ask_echo(port, stack, METHOD, request_of()),
    ),
    "echo, asyncio": (
        lambda shape: serve_echo_asyncio(reply_of(shape)),
        lambda port, stack: ask_echo_asyncio(port, stack, METHOD, request_of()),
    ),
}


def ask(name: str, shape: tuple[int, ...], stack: ExitStack) -> Any:
    """Start a rival's server in a process, and return a function that makes one step."""
    port = start(stack, __file__, "serve", name, ",".join(map(str, shape)))
    return RIVALS[name][1](port, stack)


def measure(shape: tuple[int, ...]) -> dict[str, float]:
    """Return the median microseconds of a step of each rival. Rivals take turns."""
    with ExitStack() as stack:
        asking = {name: ask(name, shape, stack) for name in RIVALS}
        return take_turns(asking, SECONDS, BLOCK)


def lines() -> Iterator[Line]:
    for what, (shape, target, drop_in) in SHAPES.items():
        times = measure(shape)
        reference = times["dm_env_rpc"]
        for name, kind in (("ours", "echo"), ("ours, asyncio", "echo, asyncio")):
            yield Line(f"{what}: {name}", times[name], "dm_env_rpc", reference, target, faster=True)
            yield Line(f"{what}: {name}", times[name], kind, times[kind], 0.75)
        name = "dm_env_rpc with rlwire.install"
        yield Line(f"{what}: {name}", times[name], "dm_env_rpc", reference, drop_in, faster=True)
        name = "our client at the package's server"
        yield Line(f"{what}: {name}", times[name], "dm_env_rpc", reference, faster=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        RIVALS[sys.argv[2]][0](tuple(int(size) for size in sys.argv[3].split(",")))
    else:
        print_head(
            "A step over loopback; an echo is raw bytes of the same sizes on grpcio's public API.",
            "dm-env-rpc",
            "grpcio",
        )
        print_lines(list(lines()))

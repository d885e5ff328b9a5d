"""Rows of other libraries that carry steps between two processes."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from rlwire.bench.payloads import BenchStep
from rlwire.bench.processes import BenchError, pin
from rlwire.bench.raw import Relay, Sizes, mean_size
from rlwire.bench.rows import Exchange, Row
from rlwire.serving.workers import sigint_blocked
from rlwire.urls import parse_url


class Rival(Row):
    """A row of another library, used as its own documentation does.

    It pickles into a pipe, where a relay cannot count bytes.
    """

    request: ClassVar[Any] = 1

    def reply(self, step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal

    def sizes(self) -> Sizes:
        replies = [ForkingPickler.dumps(self.reply(step)) for step in self.payload.steps]
        return Sizes(len(ForkingPickler.dumps(self.request)) + 4, mean_size(replies) + 4)

    @contextlib.contextmanager
    def opened(self, relay: Relay | None = None) -> Iterator[Exchange]:
        ours, theirs = multiprocessing.Pipe()
        with self.process(_serve_pipe, theirs, self.payload.steps) as server, ours:
            theirs.close()

            def ask(number: int) -> Any:
                ours.send(number)
                return ours.recv()

            yield Exchange(ask, lambda reply: reply[:2], server.cpu_time)


def _serve_pipe(
    report: Callable[[str], None], pipe: Connection, steps: Sequence[BenchStep]
) -> None:
    report("a pipe")
    while True:
        pipe.send(tuple(steps[pipe.recv()]))


class _Original(Row):
    """dm_env_rpc's own package over grpcio, at both ends."""

    @contextlib.contextmanager
    def opened(self, relay: Relay | None = None) -> Iterator[Exchange]:
        import grpc
        from dm_env_rpc.v1 import connection, dm_env_rpc_pb2, spec_manager

        options = [("grpc.max_receive_message_length", -1)]
        with self.process(_serve_original, self.payload.steps) as server:
            url = relay.to(server.address) if relay else server.address
            with (
                grpc.insecure_channel(str(parse_url(url).address), options) as channel,
                connection.Connection(channel) as link,
            ):
                specs = link.send(dm_env_rpc_pb2.JoinWorldRequest()).specs
                actions = spec_manager.SpecManager(specs.actions)
                observed = spec_manager.SpecManager(specs.observations)

                def ask(number: int) -> Any:
                    packed = actions.pack({"action": np.int64(number)})
                    request = dm_env_rpc_pb2.StepRequest(
                        actions=packed, requested_observations=[1, 2]
                    )
                    return observed.unpack(link.send(request).observations)

                yield Exchange(
                    ask, lambda seen: (seen["observation"], seen["reward"]), server.cpu_time
                )


def _serve_original(report: Callable[[str], None], steps: Sequence[BenchStep]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from dm_env_rpc.v1 import dm_env_rpc_pb2 as messages
    from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_utils

    specs, state = messages.ActionObservationSpecs(), steps[0].state
    for spec, name, dtype, shape in (
        (specs.actions[1], "action", np.int64, ()),
        (specs.observations[1], "observation", state.dtype, state.shape),
        (specs.observations[2], "reward", np.float64, ()),
    ):
        kind = tensor_utils.np_type_to_data_type(np.dtype(dtype))
        spec.MergeFrom(messages.TensorSpec(name=name, dtype=kind, shape=shape))

    class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
        def Process(self, requests: Any, context: Any) -> Iterator[Any]:
            for request in requests:
                response = messages.EnvironmentResponse()
                if request.WhichOneof("payload") == "join_world":
                    response.join_world.specs.CopyFrom(specs)
                else:
                    step = steps[tensor_utils.unpack_tensor(request.step.actions[1])]
                    response.step.state = messages.EnvironmentStateType.RUNNING
                    for uid, value in ((1, step.state), (2, np.float64(step.reward))):
                        tensor = tensor_utils.pack_tensor(value)
                        response.step.observations[uid].CopyFrom(tensor)
                yield response

    server = grpc.server(ThreadPoolExecutor(2))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Servicer(), server)
    report(f"dm-env-rpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    server.wait_for_termination()


class _Vector(Rival):
    """Gymnasium's `AsyncVectorEnv`, with observations in shared memory, or `SubprocVecEnv`."""

    request: ClassVar = ("step", np.int64(1))

    def reply(self, step: BenchStep) -> Any:
        if self.name == "AsyncVec":
            return (None, step.reward, step.terminal, False, {}), True
        return step.state, step.reward, step.terminal, {"TimeLimit.truncated": False}, {}

    @contextlib.contextmanager
    def opened(self, relay: Relay | None = None) -> Iterator[Exchange]:
        with sigint_blocked():  # which the process inherits
            make = functools.partial(_pinned, self.makes, self.cores.server)
            envs = resolve_name(_NEEDS[self.name])([make], **{_STARTS[self.name]: "spawn"})
        try:
            envs.reset()
            yield Exchange(
                lambda number: envs.step(np.array([number])),
                lambda outcome: (outcome[0][0], outcome[1][0]),
            )
        except EOFError as error:
            raise BenchError(f"{self.name}: the environment's process has ended") from error
        finally:
            for process in envs.processes:
                process.terminate()
                process.join()
            envs.closed = True  # else it waits for replies


def _pinned(make: Callable[[], Any], cores: list[int] | None) -> Any:
    if multiprocessing.parent_process() is not None:  # AsyncVectorEnv makes one in the client, too
        pin(cores)
    return make()


_NEEDS = {
    "AsyncVec": "gymnasium.vector:AsyncVectorEnv",
    "SubprocVec": "stable_baselines3.common.vec_env:SubprocVecEnv",
    "grpcio": "dm_env_rpc.v1.connection",
}
_STARTS = {"AsyncVec": "context", "SubprocVec": "start_method"}


def missing(name: str) -> str:
    """Return why a rival cannot be measured; "" if it is installed."""
    try:
        if name in _NEEDS:
            resolve_name(_NEEDS[name])
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        return f"{error}: pip install {package.replace('_', '-')}"
    return ""


RIVALS: dict[str, type[Row]] = {
    "pipe": Rival,
    "AsyncVec": _Vector,
    "SubprocVec": _Vector,
    "grpcio": _Original,
}
"""Other libraries between an agent and an environment in another process, by name."""

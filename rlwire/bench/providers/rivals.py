"""What else carries steps between two processes, as rows of the bench, where it is installed.

A pipe of `multiprocessing` with pickle, msgpack-numpy over ZeroMQ, the vector environments of
Gymnasium and Stable-Baselines3 with one environment, RLMesh, and the original dm_env_rpc over
grpcio. Each shows recorded steps, which its client asks for by number, and tells which one it was
asked for last; each is used as its own documents have it.

Not here: rlwire's protocols.
"""

from __future__ import annotations

import functools
import importlib
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError, ServerProcess, deaf, die_with_parent, pin
from rlwire.bench.provider import (
    ANSWER_SECONDS,
    Absent,
    Cores,
    Row,
    array_difference,
    value_difference,
)

__all__ = [
    "AsyncVectorRow",
    "OriginalDmEnvRpcRow",
    "PipeRow",
    "RLMeshRow",
    "Shown",
    "SubprocVecRow",
    "ZeromqRow",
]

_TELL = -1  # the number that asks what the last other one was

Answer = tuple[Any, float, bool]
"""An observation, a reward, whether the episode is over."""


class Shown:
    """Recorded steps by number."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._told = _TELL

    def answer(self, number: int) -> Answer:
        """Return a step; of `_TELL`, the number before as its reward."""
        if number == _TELL:
            return self._steps[0].state, float(self._told), False
        self._told = number
        step = self._steps[number]
        return step.state, step.reward, step.terminal


class _RivalRow(Row):
    """One payload, shown by `Shown` in another process.

    A subclass has `_ask`, and `_begin`, which prepares `_server` and what is encoded and decoded.
    """

    asks = False
    needs: ClassVar[dict[str, str]] = {}
    """Modules to import, and the package to install for each."""
    says_terminal = True

    @classmethod
    def require(cls) -> None:
        """Raise `Absent` if a module cannot be imported."""
        for module, package in cls.needs.items():
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise Absent(f"{error}: pip install {package}") from None

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        self._steps = payload.arrays()
        self.messages = [self._said(step) for step in self._steps]
        self._begin(cores, peer or f"{__name__}:{Shown.__name__}")

    @staticmethod
    def _said(step: Step) -> Any:
        """What the other end encodes."""
        return step.state, step.reward, step.terminal

    def _begin(self, cores: Cores, peer: str) -> None:
        raise NotImplementedError

    def _ask(self, number: int) -> Answer:
        raise NotImplementedError

    def _sizes(self, write: Callable[[Any], bytes], ask: Any, around: int = 0) -> None:
        """Take the bytes of a request and of the largest reply, with `around` for their frames."""
        self.received = [write(message) for message in self.messages]
        self.requests = [write(ask) + bytes(around)] * len(self._steps)
        self.reply_bytes = max(map(len, self.received)) + around
        self.encode = write
        self.encode_other = lambda: write(ask)

    def _exchange(self, number: int) -> str:
        self._seen = self._ask(number)
        return ""

    def _difference(self, number: int) -> str:
        step, (state, reward, terminal) = self._steps[number], self._seen
        difference = array_difference(step.state, np.asarray(state))
        if not difference:
            difference = value_difference("reward", float(step.reward), float(reward))
        if not difference and self.says_terminal:
            difference = value_difference("terminal", step.terminal, bool(terminal))
        told = int(self._ask(_TELL)[1])
        if not difference and told != number:
            difference = f"the other end was asked for step {number} and heard {told}"
        return difference


def _shown(peer: str, steps: list[Step]) -> Any:
    return resolve_name(peer)(steps)


# --- a pipe


def _serve_pipe(report: Callable[[str], None], pipe: Any, peer: str, steps: list[Step]) -> None:
    shown = _shown(peer, steps)
    report("a pipe")
    while True:
        pipe.send(shown.answer(pipe.recv()))


class PipeRow(_RivalRow):
    """`multiprocessing.Pipe`, which pickles."""

    protocol = "pipe"

    def _begin(self, cores: Cores, peer: str) -> None:
        self._sizes(lambda value: bytes(ForkingPickler.dumps(value)), 1, around=4)
        self.decode = pickle.loads
        asked = self.encode(1)
        self.decode_other = lambda: pickle.loads(asked)
        self._client: Connection
        self._client, theirs = Pipe()
        self._server = ServerProcess(
            "pipe", _serve_pipe, theirs, peer, self._steps, cores=cores.server
        )

    def _connect(self) -> None:
        """It is."""

    def _ask(self, number: int) -> Answer:
        self._client.send(number)
        if not self._client.poll(ANSWER_SECONDS):
            raise BenchError(self._server.epitaph() or "the pipe gave no answer")
        try:
            answer: Answer = self._client.recv()
        except EOFError as error:
            raise self._failed(error) from error
        return answer


# --- ZeroMQ


def _packing() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import msgpack
    import msgpack_numpy

    return (
        functools.partial(msgpack.packb, default=msgpack_numpy.encode),
        functools.partial(msgpack.unpackb, object_hook=msgpack_numpy.decode),
    )


def _serve_zeromq(report: Callable[[str], None], peer: str, steps: list[Step]) -> None:
    import zmq

    pack, unpack = _packing()
    shown = _shown(peer, steps)
    with zmq.Context() as context, context.socket(zmq.REP) as there:
        report(f"tcp://127.0.0.1:{there.bind_to_random_port('tcp://127.0.0.1')}")
        while True:
            there.send(pack(shown.answer(unpack(there.recv()))))


class ZeromqRow(_RivalRow):
    """ZeroMQ's REQ and REP over TCP, with msgpack-numpy."""

    protocol = "zeromq"
    needs: ClassVar = {
        "zmq": "pyzmq",
        "msgpack": "msgpack",
        "msgpack_numpy": "msgpack-numpy",
    }

    def _begin(self, cores: Cores, peer: str) -> None:
        pack, self.decode = _packing()
        # The empty frame of REQ, and a frame's head of up to nine bytes.
        self._sizes(pack, 1, around=11)
        asked = pack(1)
        self.decode_other = lambda: self.decode(asked)
        self._server = ServerProcess("zeromq", _serve_zeromq, peer, self._steps, cores=cores.server)

    def _connect(self) -> None:
        import zmq

        self._context = zmq.Context()
        self._client = self._context.socket(zmq.REQ)
        self._client.setsockopt(zmq.RCVTIMEO, int(ANSWER_SECONDS * 1000))
        self._client.setsockopt(zmq.LINGER, 0)
        self._client.connect(self._server.address)

    def _disconnect(self) -> None:
        self._client.close()
        self._context.term()

    def _ask(self, number: int) -> Answer:
        import zmq

        try:
            self._client.send(self.encode(number))
            answer: Answer = self.decode(self._client.recv())
        except zmq.ZMQError as error:
            raise self._failed(error) from error
        return answer


# --- vector environments, which have a process for each environment


class _Workers:
    """The processes of a vector environment, in the place of a `ServerProcess`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.envs: Any = None

    def __enter__(self) -> _Workers:
        with deaf():
            self.envs = self._make()
        return self

    @property
    def pid(self) -> int:
        """The process number of the first."""
        return int(self.envs.processes[0].pid)

    def epitaph(self) -> str | None:
        """How the first ended, if it has."""
        process = self.envs.processes[0]
        process.join(ANSWER_SECONDS / 50)  # its pipe ends a moment before it does
        code = process.exitcode
        return None if code is None else f"the environment's process ended with exit code {code}"

    def stop(self) -> None:
        """End them."""
        if self.envs is not None:
            envs, self.envs = self.envs, None
            for process in envs.processes:
                process.terminate()
                process.join()
            envs.closed = True  # it would wait for their answers


def _recorded(peer: str, steps: list[Step], cores: list[int] | None) -> Any:
    """Make the environment in a process of its own."""
    pin(cores)
    die_with_parent()
    return _environment(peer, steps)


def _environment(peer: str, steps: list[Step]) -> Any:
    """Make an environment of Gymnasium whose action is the number of the step to show."""
    import gymnasium

    shown = _shown(peer, steps)
    first = steps[0].state
    whole = first.dtype.kind in "biu"
    least = np.iinfo(first.dtype).min if first.dtype.kind in "iu" else 0 if whole else -np.inf
    most = np.iinfo(first.dtype).max if first.dtype.kind in "iu" else 1 if whole else np.inf

    class Recorded(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(least, most, first.shape, first.dtype)
        action_space = gymnasium.spaces.Discrete(len(steps) + 1, start=_TELL)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
            return first, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            state, reward, _terminal = shown.answer(int(action))
            return state, reward, False, False, {}  # without a reset in between

    return Recorded()


class _VectorRow(_RivalRow):
    """One environment in a process of its own, which pickles what it says."""

    says_terminal = False
    _server: Any

    def _begin(self, cores: Cores, peer: str) -> None:
        self._sizes(lambda value: bytes(ForkingPickler.dumps(value)), ("step", np.int64(1)), 4)
        self.decode = pickle.loads
        asked = self.encode(("step", np.int64(1)))
        self.decode_other = lambda: pickle.loads(asked)
        make = functools.partial(_recorded, peer, self._steps, cores.server)
        self._server = _Workers(functools.partial(self._vector, make))

    @staticmethod
    def _vector(make: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def _connect(self) -> None:
        self._server.envs.reset()

    def _ask(self, number: int) -> Answer:
        try:
            states, rewards, *_ = self._server.envs.step(np.array([number]))
        except EOFError as error:
            raise self._failed(error) from error
        return states[0], float(rewards[0]), False


class AsyncVectorRow(_VectorRow):
    """Gymnasium's `AsyncVectorEnv`: observations go through shared memory."""

    protocol = "AsyncVec"
    needs: ClassVar = {"gymnasium": "gymnasium"}

    @staticmethod
    def _said(step: Step) -> Any:
        return (None, step.reward, step.terminal, False, {}), True

    @staticmethod
    def _vector(make: Callable[[], Any]) -> Any:
        from gymnasium.vector import AsyncVectorEnv

        return AsyncVectorEnv([make], context="spawn")


class SubprocVecRow(_VectorRow):
    """Stable-Baselines3's `SubprocVecEnv`."""

    protocol = "SubprocVec"
    needs: ClassVar = {"stable_baselines3": "stable-baselines3"}

    @staticmethod
    def _said(step: Step) -> Any:
        return step.state, step.reward, step.terminal, {"TimeLimit.truncated": False}, {}

    @staticmethod
    def _vector(make: Callable[[], Any]) -> Any:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        return SubprocVecEnv([make], start_method="spawn")


# --- RLMesh


def _serve_rlmesh(report: Callable[[str], None], peer: str, steps: list[Step]) -> None:
    import rlmesh

    # Which edition of its conventions is meant has to be said, or it warns.
    options = rlmesh.ServeOptions(workflow_edition=rlmesh.current_workflow_edition())
    server = rlmesh.EnvServer(_environment(peer, steps), "tcp://127.0.0.1:0", options=options)
    server.start()
    report(server.address)
    server.wait()


class RLMeshRow(_RivalRow):
    """RLMesh's `EnvServer` and its client for NumPy; its codec cannot be called by itself."""

    protocol = "rlmesh"
    needs: ClassVar = {"rlmesh": "rlmesh", "gymnasium": "gymnasium"}
    says_terminal = False
    has_codec = False

    def _begin(self, cores: Cores, peer: str) -> None:
        asked, first = np.int64(1), self._steps[0].state
        self.requests = [asked.tobytes()] * len(self._steps)
        self.reply_bytes = first.nbytes
        self._server = ServerProcess("rlmesh", _serve_rlmesh, peer, self._steps, cores=cores.server)

    def _connect(self) -> None:
        import rlmesh.numpy

        self._client = rlmesh.numpy.RemoteEnv(
            self._server.address,
            connect_timeout_seconds=ANSWER_SECONDS,
            request_timeout_seconds=ANSWER_SECONDS,
            workflow_edition=rlmesh.current_workflow_edition(),
        )
        self._client.reset()

    def _ask(self, number: int) -> Answer:
        import rlmesh

        try:
            state, reward, *_ = self._client.step(number)
        except rlmesh.RLMeshException as error:
            raise self._failed(error) from error
        return state, reward, False


# --- the original of dm_env_rpc

_NAMES = ("observation", "reward", "terminal")


def _original_specs(step: Step) -> Any:
    from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

    specs = dm_env_rpc_pb2.ActionObservationSpecs()
    number = tensor_utils.np_type_to_data_type
    specs.actions[1].CopyFrom(
        dm_env_rpc_pb2.TensorSpec(name="number", dtype=number(np.dtype(np.int64)))
    )
    values = (step.state, np.float64(0), np.bool_(False))
    for uid, (name, value) in enumerate(zip(_NAMES, values, strict=True), 1):
        specs.observations[uid].CopyFrom(
            dm_env_rpc_pb2.TensorSpec(name=name, shape=value.shape, dtype=number(value.dtype))
        )
    return specs


def _serve_original(report: Callable[[str], None], peer: str, steps: list[Step]) -> None:
    import grpc
    from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, spec_manager

    class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
        def Process(self, requests: Any, context: Any) -> Any:
            specs = _original_specs(steps[0])
            actions = spec_manager.SpecManager(specs.actions)
            observations = spec_manager.SpecManager(specs.observations)
            shown = _shown(peer, steps)
            for request in requests:
                response = dm_env_rpc_pb2.EnvironmentResponse()
                if request.WhichOneof("payload") == "join_world":
                    response.join_world.specs.CopyFrom(specs)
                else:
                    number = int(actions.unpack(request.step.actions)["number"])
                    state, reward, terminal = shown.answer(number)
                    values = (state, np.float64(reward), np.bool_(terminal))
                    packed = observations.pack(dict(zip(_NAMES, values, strict=True)))
                    response.step.state = dm_env_rpc_pb2.EnvironmentStateType.RUNNING
                    for uid in request.step.requested_observations:
                        response.step.observations[uid].CopyFrom(packed[uid])
                yield response

    server = grpc.server(ThreadPoolExecutor(1))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    report(f"127.0.0.1:{port}")
    server.wait_for_termination()


class OriginalDmEnvRpcRow(_RivalRow):
    """The original dm_env_rpc: its `Connection` and `SpecManager`, and grpcio."""

    protocol = "dm_env_rpc.v1"
    needs: ClassVar = {"dm_env_rpc.v1": "dm-env-rpc", "grpc": "grpcio"}

    def _begin(self, cores: Cores, peer: str) -> None:
        from dm_env_rpc.v1 import dm_env_rpc_pb2, spec_manager

        specs = _original_specs(self._steps[0])
        self._actions = actions = spec_manager.SpecManager(specs.actions)
        self._observations = observations = spec_manager.SpecManager(specs.observations)

        def write(message: Answer) -> bytes:
            state, reward, terminal = message
            values = (state, np.float64(reward), np.bool_(terminal))
            packed = observations.pack(dict(zip(_NAMES, values, strict=True)))
            response = dm_env_rpc_pb2.EnvironmentResponse()
            response.step.state = dm_env_rpc_pb2.EnvironmentStateType.RUNNING
            for uid, value in packed.items():
                response.step.observations[uid].CopyFrom(value)
            data: bytes = response.SerializeToString()
            return data

        def ask() -> bytes:
            data: bytes = dm_env_rpc_pb2.EnvironmentRequest(
                step=self._request(1)
            ).SerializeToString()
            return data

        self.encode = write
        self.decode = lambda data: observations.unpack(
            dm_env_rpc_pb2.EnvironmentResponse.FromString(data).step.observations
        )
        self.received = [write(message) for message in self.messages]
        asked = ask()
        self.encode_other = ask
        self.decode_other = lambda: actions.unpack(
            dm_env_rpc_pb2.EnvironmentRequest.FromString(asked).step.actions
        )
        around = 5 + 9  # gRPC's prefix, and a frame's head
        self.requests = [asked + bytes(around)] * len(self._steps)
        self.reply_bytes = max(map(len, self.received)) + around
        self._server = ServerProcess(
            self.protocol, _serve_original, peer, self._steps, cores=cores.server
        )

    def _request(self, number: int) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        return dm_env_rpc_pb2.StepRequest(
            requested_observations=[1, 2, 3],
            actions=self._actions.pack({"number": np.int64(number)}),
        )

    def _connect(self) -> None:
        import grpc
        from dm_env_rpc.v1 import connection, dm_env_rpc_pb2

        channel = grpc.insecure_channel(self._server.address)
        grpc.channel_ready_future(channel).result(ANSWER_SECONDS)
        self._client = connection.Connection(channel)
        self._client.send(dm_env_rpc_pb2.JoinWorldRequest())

    def _ask(self, number: int) -> Answer:
        response = self._client.send(self._request(number))
        seen = self._observations.unpack(response.observations)
        return seen["observation"], float(seen["reward"]), bool(seen["terminal"])

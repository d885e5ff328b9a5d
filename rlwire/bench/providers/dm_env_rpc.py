"""dm_env_rpc in the bench: `DmEnvRpcServer` in its own process, `Client.step` timed.

An agent asks for one recorded observation after another, by a number in its action: a small request
and a large response, where RLX has it the other way round.

Not here: other servers of dm_env_rpc, and comparisons with them (``benchmarks/`` in the source
tree).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlwire.adapters.dm_env_rpc import Client, DmEnvRpcServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.provider import ANSWER_SECONDS, Cores, Row, array_difference, value_difference
from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    EnvironmentStateType,
    Settings,
    SpecManager,
    StepResult,
    data_type,
    decode_step_request,
    decode_step_response,
    encode_step_request,
    encode_step_response,
    make_spec,
)
from rlwire.codecs.http2.headers import Headers
from rlwire.transports.sockets import Timeouts

__all__ = ["DmEnvRpcRow", "RecordedWorld"]

_RUNNING = EnvironmentStateType.RUNNING
_SEEN = ("observation", "reward", "discount")
_LAST = -1.0  # the action that asks what the last other one was


class RecordedWorld:
    """Shows recorded steps, made before; the action is the number of the one to show.

    The observation ``told`` is the number that the agent asked for last.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._shown: list[dict[str, Any]] = [
            {
                "observation": step.state,
                "reward": np.float64(step.reward),
                "discount": np.float64(not step.terminal),
            }
            for step in steps
        ]
        self.specs = _specs(steps)
        self._told = _LAST

    def join(self, settings: Settings) -> RecordedWorld:
        """One agent: the world is its environment too."""
        return self

    def reset(self, settings: Settings) -> None:
        """Nothing to forget."""

    def begin(self) -> StepResult:
        """Show the first step."""
        return StepResult(_RUNNING, self.show(0))

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Show a step."""
        number = float(actions["number"])
        if number != _LAST:
            self._told = number
        return StepResult(_RUNNING, self.show(max(0, int(number))))

    def show(self, number: int) -> dict[str, Any]:
        """The observations of a step."""
        return {**self._shown[number], "told": self._told}

    def close(self) -> None:
        """Nothing to free."""


def _specs(steps: Sequence[Step]) -> ActionObservationSpecs:
    state = np.asarray(steps[0].state)
    return ActionObservationSpecs(
        # A double: as many bytes for every number.
        {1: make_spec("number", (), np.float64)},
        {
            1: make_spec("observation", state.shape, data_type(state.dtype)),
            2: make_spec("reward", (), np.float64),
            3: make_spec("discount", (), np.float64),
            4: make_spec("told", (), np.float64),
        },
    )


def _server(place: str, world: type[RecordedWorld], steps: list[Step]) -> DmEnvRpcServer:
    return DmEnvRpcServer(lambda settings: world(steps), place)


class DmEnvRpcRow(Row):
    """One payload over dm_env_rpc, shown by a `RecordedWorld`; lists go as arrays."""

    protocol = "dm_env_rpc"
    sessions = ("rlwire.sessions.grpc.client:Client", "rlwire.sessions.grpc.server:Server")
    asks = False
    _result: StepResult | None = None
    _step: Callable[..., StepResult]

    @classmethod
    def require(cls) -> None:
        """Raise `MissingExtra` without hpack."""
        Headers()

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        self._steps = payload.arrays()
        shown = RecordedWorld(self._steps)
        actions, observations = (
            SpecManager(specs) for specs in (shown.specs.actions, shown.specs.observations)
        )
        uids = [uid for uid, spec in shown.specs.observations.items() if spec.name in _SEEN]
        self._actions = [{"number": np.float64(number)} for number in range(len(self._steps))]
        asked = [encode_step_request(actions, action, uids) for action in self._actions]
        self.encode_other = lambda: encode_step_request(actions, self._actions[0], uids)
        self.decode_other = lambda: decode_step_request(actions, asked[0])
        self.requests = [_on_the_wire(request) for request in asked]
        self.messages = [shown.show(number) for number in range(len(self._steps))]
        self.encode = lambda seen: encode_step_response(observations, _RUNNING, seen, uids)
        self.decode = lambda response: decode_step_response(observations, response, copy=None)
        self.received = [self.encode(message) for message in self.messages]
        self.reply_bytes = len(_on_the_wire(self.received[0]))
        self._serve(cores, _server, peer or RecordedWorld, self._steps)

    def _connect(self) -> None:
        self._client = Client(
            self._server.address,
            timeouts=Timeouts(read=ANSWER_SECONDS, idle=ANSWER_SECONDS),
            copy=None,
        )
        self._client.connect()
        self._client.join_world()
        self._client.step()
        self._step = self._client.step

    def _exchange(self, number: int) -> str:
        self._result = self._step(self._actions[number], _SEEN)
        return ""

    def _difference(self, number: int) -> str:
        difference = _difference(self._steps[number], self._result)
        if not difference:
            told = self._step({"number": np.float64(_LAST)}, ("told",)).observations["told"]
            if told != number:
                difference = f"the server was asked for step {number} and heard {told:g}"
        return difference


def _on_the_wire(message: bytes) -> bytes:
    """A message with what gRPC and HTTP/2 put around it: a prefix, and a frame's head."""
    data = b"\0" + len(message).to_bytes(4, "big") + message
    return len(data).to_bytes(3, "big") + b"\0\0\0\0\0\1" + data


def _difference(step: Step, result: StepResult | None) -> str:
    """What differs between a recorded step and the one that was shown; "" for nothing."""
    if result is None or result.state != _RUNNING or result.observations.keys() != set(_SEEN):
        return f"a running step with {', '.join(_SEEN)} was expected, not {result!r:.200}"
    shown = result.observations["observation"]
    return (
        array_difference(step.state, np.asarray(shown) if isinstance(shown, np.generic) else shown)
        or value_difference("reward", np.float64(step.reward), result.observations["reward"])
        or value_difference(
            "discount", np.float64(not step.terminal), result.observations["discount"]
        )
    )

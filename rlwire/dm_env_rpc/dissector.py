"""The dissector of dm_env_rpc."""

from __future__ import annotations

import contextlib
from typing import Any

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import EnvironmentStateType
from rlwire.codecs.msgpack import Decoder
from rlwire.dm_env_rpc.spaces import INFO, TRUNCATED
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from rlwire.recording.dissecting import FAULTS, GrpcDissector, Remembered, plain
from rlwire.recording.messages import Dissected, EnvStep
from rlwire.sessions.dm_env_rpc.session import without_spec
from rlwire.sessions.dm_env_rpc.states import REQUESTS

_NAMES = {kind: name for name, kinds in REQUESTS.items() for kind in kinds}
_NAMES[codec.Status] = "error"
_ENDS = {"join_world", "reset", "reset_world", "leave_world"}  # the next step begins a sequence


class DmEnvRpcDissector(GrpcDissector):
    """Dissects dm_env_rpc; actions and observations have their names after a join.

    A value has one entry, the name of the message in the request or response: ``{"step": {...}}``.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._calls = Remembered(lambda number: _Call(str(number), self.limits))
        super().__init__(limits)

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        call: _Call = self._calls[layer]
        return call.message(message, from_client)

    def side(self, from_client: bool, begun: bool) -> Any:
        for call in self._calls.values():
            call.counts = [max(call.counts)] * 2
        return super().side(from_client, begun)


class _Call:
    """One call: an agent's requests, and the responses in their order."""

    _running = False  # whether the next request to step has actions
    _begun = False  # whether the next step's response is a result
    _managers: tuple[codec.SpecManager, codec.SpecManager] | None = None

    def __init__(self, name: str, limits: Limits) -> None:
        self._name, self._limits = name, limits
        self.counts = [0, 0]  # of responses and of requests

    def message(self, message: bytes, from_client: bool) -> Dissected:
        self.counts[from_client] += 1
        pair = self._name, self.counts[from_client]
        found = self._step(message, from_client) or self._other(message, from_client)
        return found.paired(pair, from_client)

    def _step(self, message: bytes, from_client: bool) -> Dissected | None:
        """Return a step by name; None for another message, and for one that does not fit."""
        if self._managers is None:
            return None
        actions, observations = self._managers
        with contextlib.suppress(ValueError):
            if from_client and (request := codec.decode_step_request(actions, message)) is not None:
                taken, requested = request
                value: Any = {"actions": taken, "requested_observations": requested}
                with contextlib.suppress(DecodeError):
                    value["requested_observations"] = list(observations.names_of(requested))
                steps = [EnvStep(self._name, has_action=True)] if self._running else []
                self._running = True
                return Dissected("StepRequest", {"step": value}, steps=steps)
            if not from_client and (done := codec.decode_step_response(observations, message)):
                state, seen = done
                value = {(INFO.strip() if key.startswith(INFO) else key): seen[key] for key in seen}
                value = {"state": plain(state), "observations": value}
                return Dissected("StepResponse", {"step": value}, steps=[self._result(state, seen)])
        return None

    def _other(self, message: bytes, from_client: bool) -> Dissected:
        limits = without_spec(self._limits, len(message)) if from_client else self._limits
        decode: Any = codec.decode_request if from_client else codec.decode_response
        read: Any = decode(message, limits=limits)
        if read is None:
            raise DecodeError("the message has no payload")
        name = _NAMES[type(read)]
        if isinstance(read, codec.AnyMessage):
            requests, responses = codec.decode_property_request, codec.decode_property_response
            read = (requests if from_client else responses)(read, limits=limits) or read
        found = Dissected(type(read).__name__, {name: plain(read)})
        if from_client:
            self._running = name not in _ENDS and (self._running or name == "step")
        elif name in _ENDS:
            self._begun = False
        if isinstance(read, (codec.JoinWorldResponse, codec.ResetResponse)):
            self._learn(read.specs)
        return found

    def _learn(self, specs: codec.ActionObservationSpecs) -> None:
        self._managers = None
        with contextlib.suppress(*FAULTS):
            self._managers = (
                codec.SpecManager(specs.actions, limits=self._limits),
                codec.SpecManager(specs.observations, limits=self._limits),
            )

    def _info(self, seen: dict[str, Any]) -> dict[str, Any]:
        name = next((name for name in seen if name.startswith(INFO)), None)
        info = None
        with contextlib.suppress(*FAULTS):
            info = None if name is None else Decoder(limits=self._limits).decode(seen[name])
        return info if isinstance(info, dict) else {}

    def _result(self, state: EnvironmentStateType, seen: dict[str, Any]) -> EnvStep:
        step = EnvStep(self._name, not self._begun, has_observation=True)
        running = state == EnvironmentStateType.RUNNING
        if self._begun:
            step.terminated = state == EnvironmentStateType.TERMINATED
            step.truncated = not (step.terminated or running)
            step.truncated |= self._info(seen).get(TRUNCATED) is True
            step.reward = seen.get("reward", 0.0)
        self._begun = running
        self._running = self._running and running
        return step

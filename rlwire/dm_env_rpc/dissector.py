"""The dissector of dm_env_rpc."""

from __future__ import annotations

import contextlib
from typing import Any

from rlwire.codecs import dm_env_rpc as codec
from rlwire.dm_env_rpc.environment import _Signal, _structure, space_of_specs
from rlwire.dm_env_rpc.spaces import INFO, spaces_in
from rlwire.errors import DecodeError, RlwireError
from rlwire.limits import Limits
from rlwire.recording.dissecting import GrpcDissector, plain, remembered
from rlwire.recording.messages import UNKNOWN, Dissected, Step
from rlwire.sessions.dm_env_rpc.session import without_spec
from rlwire.sessions.dm_env_rpc.states import REQUESTS

_NAMES = {kind: name for name, kinds in REQUESTS.items() for kind in kinds}
_NAMES |= {codec.AnyMessage: "extension", codec.Status: "error"}
_RUNNING = codec.EnvironmentStateType.RUNNING


class DmEnvRpcDissector(GrpcDissector):
    """Dissects dm_env_rpc; actions and observations have their names after a join.

    A value has one entry, the name of the message in the request or response: ``{"step": {...}}``.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._calls: dict[int, _Call] = {}
        super().__init__(limits)

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        call = remembered(self._calls, layer, lambda: _Call(str(layer), self.limits))
        return call.request(message) if from_client else call.response(message)

    def ended(self, stream: int) -> None:
        self._calls.pop(stream, None)

    def lost(self, from_client: bool) -> None:
        super().lost(from_client)
        for call in self._calls.values():
            call.asked = call.answered = max(call.asked, call.answered)


class _Call:
    """One call: an agent's requests, and the responses in their order."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name, self._limits = name, limits
        self.asked = self.answered = 0
        self._specs: codec.ActionObservationSpecs | None = None
        self._running = False  # whether the next request to step has actions
        self._begun = False  # whether the next step's response is a result
        self._parts: Any = None  # structures of the observation and the action
        self._apart: set[str] = set()  # observations that are signals
        self._reward: str | None = None

    def request(self, message: bytes) -> Dissected:
        self.asked += 1
        asks = self._name, self.asked
        step = self._by_name(message, True)
        if step is not None:
            actions, wanted = step
            with contextlib.suppress(DecodeError):  # some are unknown
                wanted = list(self._observations.names_of(wanted))
            value = {"actions": actions, "requested_observations": wanted}
            found = Dissected("StepRequest", {"step": value}, asks=asks)
            if self._running:
                found.steps = [Step(self._name, action=self._built(1, actions))]
            self._running = True
            return found
        limits = without_spec(self._limits, len(message))
        request: Any = codec.decode_request(message, limits=limits)
        if isinstance(request, codec.AnyMessage):
            request = codec.decode_property_request(request, limits=limits) or request
        self._running = isinstance(request, codec.StepRequest)
        return self._found(request, asks=asks)

    def response(self, message: bytes) -> Dissected:
        self.answered += 1
        answers = self._name, self.answered
        step = self._by_name(message, False)
        if step is not None:
            state, seen = step
            shown = {"rlwire.info" if name.startswith(INFO) else name: seen[name] for name in seen}
            value = {"state": plain(state), "observations": shown}
            found = Dissected("StepResponse", {"step": value}, answers=answers)
            found.steps = [self._result(state, seen)]
            return found
        response: Any = codec.decode_response(message, limits=self._limits)
        if isinstance(response, codec.AnyMessage):
            response = codec.decode_property_response(response, limits=self._limits) or response
        found = self._found(response, answers=answers)
        if not isinstance(response, (codec.StepResponse, codec.Status, codec.AnyMessage)):
            self._begun = False
        if isinstance(response, (codec.JoinWorldResponse, codec.ResetResponse)):
            found.steps = self._learn(response.specs)
        return found

    def _by_name(self, message: bytes, asks: bool) -> Any:
        """Return a step's parts by name; None for another message, or one that does not fit."""
        if self._specs is None:
            return None
        try:
            if asks:
                return codec.decode_step_request(self._actions, message)
            return codec.decode_step_response(self._observations, message)
        except RlwireError:
            return None

    def _found(self, message: Any, **pair: Any) -> Dissected:
        if message is None:
            raise DecodeError("the message has no payload")
        kind = type(message)
        return Dissected(kind.__name__, {_NAMES.get(kind, "extension"): plain(message)}, **pair)

    def _learn(self, specs: codec.ActionObservationSpecs) -> list[Step]:
        if specs == self._specs:
            return []
        self._specs, self._parts, self._reward = None, None, None
        self._actions = codec.SpecManager(specs.actions, limits=self._limits)
        self._observations = codec.SpecManager(specs.observations, limits=self._limits)
        self._specs = specs
        seen, done = dict(self._observations.specs_by_name), self._actions.specs_by_name
        try:
            signals = [_Signal(name, seen) for name in ("reward", "discount")]
            told = next((name for name in seen if name.startswith(INFO)), "")
            self._apart = {told, *signals[0].names, *signals[1].names}
            self._reward = signals[0].alone
            shown = {name: spec for name, spec in seen.items() if name not in self._apart}
            spaces = spaces_in(told, self._limits) if told else None
            if spaces is None:
                spaces = space_of_specs(shown, "observation"), space_of_specs(done, "action")
            self._parts = (
                _structure(spaces[0], shown, "observation", partial=True),
                _structure(spaces[1], done, "action", partial=False),
            )
        except RlwireError:  # no space, such as a variable size
            return []
        return [Step(self._name, observation_space=spaces[0], action_space=spaces[1])]

    def _built(self, which: int, tensors: dict[str, Any]) -> Any:
        try:
            return self._parts[which].build(tensors)
        except (RlwireError, LookupError, TypeError):  # no space, or not all were requested
            return {name: tensors[name] for name in tensors if name not in self._apart} or UNKNOWN

    def _result(self, state: codec.EnvironmentStateType, seen: dict[str, Any]) -> Step:
        step = Step(self._name, not self._begun, observation=self._built(0, seen))
        if self._begun:
            step.terminated = state == codec.EnvironmentStateType.TERMINATED
            step.truncated = not (step.terminated or state == _RUNNING)
            step.reward = 0.0 if self._reward is None else seen.get(self._reward, UNKNOWN)
            step.reward = step.reward if step.reward is UNKNOWN else float(step.reward)
        self._begun = state == _RUNNING
        if state != _RUNNING:
            self._running = False
        return step

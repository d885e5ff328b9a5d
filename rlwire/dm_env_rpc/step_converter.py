"""`StepConverter`: an environment's spaces as specs, its actions and results as tensors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.casting import flag
from rlwire.codecs.dm_env_rpc import EnvironmentStateType, StepResult
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.spaces import TRUNCATED, Structure, info_spec, of_number, structure_of
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.driver import Driven
from rlwire.environments.infos import InfoCodec
from rlwire.errors import EncodeError

logger = logging.getLogger(__name__)

_logged: set[str] = set()  # names of environments whose infos the log has reported as not sent

_, RUNNING, TERMINATED, INTERRUPTED = EnvironmentStateType


class StepConverter:
    """Converts the actions and results of one agent; see `EnvironmentWorlds` for the options.

    Raises EncodeError if a space cannot be carried, or two names are the same.
    """

    def __init__(
        self,
        driven: Driven,
        reward: str = "reward",
        discount: str = "discount",
        infos: bool = True,
        default_actions: Mapping[str, Any] | None = None,
    ) -> None:
        self._name, self._is_dm_env = driven.name, driven.discount_space is not None
        self._infos = infos
        self._observations = structure_of(driven.observation_space, "observation", "observation")
        self._actions = structure_of(driven.action_space, "action", "action")
        self._reward = _signal(driven.reward_space, "reward", reward)
        self._discount = _signal(driven.discount_space, "discount", discount, 0.0, 1.0)
        # Spaces that rlwire.make cannot receive raise here, before a client connects.
        self._info_spec = info_spec(driven)
        specs = list(self._observations.specs)
        self._first_signals: dict[str, Any] = {}  # of a first step
        for signal, value in ((self._reward, 0.0), (self._discount, 1.0)):
            if signal is None:
                continue
            for name in signal.names:
                if name in self._observations.names:
                    raise EncodeError(
                        f"there is an observation {name!r} already; rename the {signal.what}, or "
                        f"omit it: {signal.what}=''"
                    )
            specs += signal.specs
            self._first_signals |= signal.fill(value)
        self._defaults = _defaults(self._actions, default_actions or {})
        self._info_codec: InfoCodec | None = None
        self._extra_uids = (len(specs) + 1,)
        self._specs = codec.ActionObservationSpecs(
            dict(enumerate(self._actions.specs, 1)), dict(enumerate(specs, 1))
        )

    def describe(self, info_codec: InfoCodec | None) -> codec.ActionObservationSpecs:
        """Return the specs; with a codec those for `rlwire.make`, which also receives infos."""
        self._info_codec, specs = info_codec, self._specs
        if info_codec is None:
            return specs
        extra = dict.fromkeys(self._extra_uids, self._info_spec)
        return codec.ActionObservationSpecs(specs.actions, {**specs.observations, **extra})

    def action(self, actions: dict[str, Any]) -> Any:
        """Return the environment's action; StatusError for a client's invalid one."""
        if self._defaults:
            actions = {**self._defaults, **actions}
        if len(actions) < len(self._actions.names):
            missing = [name for name in self._actions.names if name not in actions]
            raise StatusError(
                Code.INVALID_ARGUMENT,
                f"every step must have all actions; missing: {', '.join(map(repr, missing))}",
            )
        try:
            return self._actions.build(actions)
        except EncodeError as error:  # the client's value
            raise StatusError(Code.INVALID_ARGUMENT, str(error)) from None

    def first(self, observation: Any, info: Mapping[str, Any]) -> StepResult:
        """Return the result of a reset."""
        if self._is_dm_env:  # its driver's info is reward and discount
            reward, discount = info.get("reward"), info.get("discount")
            return self._result(RUNNING, observation, reward, discount, None)
        return self._result(RUNNING, observation, None, None, info if self._infos else {})

    def stepped(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> StepResult:
        """Return the result of a step."""
        if not (terminated is False is truncated):
            terminated, truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
        state = TERMINATED if terminated else INTERRUPTED if truncated else RUNNING
        if self._is_dm_env:
            return self._result(state, observation, reward, info.get("discount"), None)
        info = info if self._infos else {}
        if terminated and truncated and self._info_codec is not None:
            info = {**(info if isinstance(info, Mapping) else {}), TRUNCATED: True}
        return self._result(state, observation, reward, 0.0 if terminated else 1.0, info)

    def interrupted(self, observation: Any) -> StepResult:
        """Return the result of a step that another agent has interrupted."""
        return self._result(INTERRUPTED, observation, 0.0, 1.0, None)

    def _result(
        self, state: EnvironmentStateType, observation: Any, reward: Any, discount: Any, info: Any
    ) -> StepResult:
        observations = self._observations.flatten(observation)
        if reward is None or discount is None:
            observations.update(self._first_signals)
        if reward is not None and self._reward is not None:
            self._reward.flatten(reward, observations)
        if discount is not None and self._discount is not None:
            self._discount.flatten(discount, observations)
        if not info or self._info_codec is None:
            if info:
                self._warn_of_info(info)
            return StepResult(state, observations)
        encoded = np.frombuffer(self._info_codec.encode(info), np.uint8)
        observations[self._info_spec.name] = encoded
        return StepResult(state, observations, self._extra_uids)

    def _warn_of_info(self, info: Mapping[str, Any]) -> None:
        """Log that infos are not sent, once for each kind of environment."""
        if self._name not in _logged:
            _logged.add(self._name)
            logger.warning(
                "%s: the info (%s) is sent only to rlwire.make: dm_env_rpc has no field for it; "
                "add the values that other clients need to the observations",
                self._name,
                ", ".join(map(str, info)),
            )


def _signal(
    space: Any, what: str, name: str, low: float | None = None, high: float | None = None
) -> Structure | None:
    if not name:
        return None
    if space is None:
        return of_number(what, name, low, high)
    return structure_of(space, what, "", name)


def _defaults(actions: Structure, defaults: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [name for name in defaults if name not in actions.names]
    if unknown:
        raise EncodeError(
            f"default_actions: there is no action {unknown[0]!r}; the actions are {actions.names}"
        )
    values = {}
    for leaf in actions.leaves:
        if leaf.spec.name in defaults:
            value = np.array(leaf.to_wire(defaults[leaf.spec.name]))
            value.flags.writeable = False  # so that each step's action is a copy
            codec.check_bounds(leaf.spec, value)
            values[leaf.spec.name] = value
    return values

"""`ParallelEnvironment`: remote agents as a PettingZoo environment."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rlwire.environments.endpoint import check_seed
from rlwire.environments.remote import RemoteEnvironment
from rlwire.errors import optional

with optional("pettingzoo", "pettingzoo"):
    from pettingzoo import ParallelEnv


__all__ = ["ParallelEnvironment"]


class ParallelEnvironment(ParallelEnv):
    """A `pettingzoo.ParallelEnv` of remote agents: slots of a PERLERT instance, a world's agents.

    ::

        url = "dm-env-rpc://localhost:9911"  # or perlert://localhost:32322/spread
        env = ParallelEnvironment({key: rlwire.make(url, agent=key) for key in ("a_0", "a_1")})

    A step sends all actions before it waits. `agents` drops an agent whose episode has ended until
    the next reset. An agent whose connection is lost is truncated, with ``info["lost"]``.

    Args:
        environments: an environment by agent name, at least one; `close` closes them.
    """

    def __init__(self, environments: Mapping[str, RemoteEnvironment]) -> None:
        if not environments:
            raise ValueError("expected environments by agent name, got an empty mapping")
        self._environments = dict(environments)
        self.possible_agents = list(environments)
        self.agents: list[str] = []
        first = next(iter(environments.values()))
        self.metadata = {**first.metadata, "name": "rlwire_remote", "is_parallelizable": True}
        self.render_mode = first.render_mode

    def observation_space(self, agent: str) -> Any:
        return self._environments[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self._environments[agent].action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; RlwireError if a server rejects it or cannot be reached."""
        check_seed(seed)
        for endpoint in [each.opened() for each in self._environments.values()]:
            endpoint.begin_reset(seed, options)
        self.agents = []
        found = self._finish(self.possible_agents)
        self.agents = list(self.possible_agents)
        observations = {name: observation for name, (observation, _) in found.items()}
        return observations, {name: info for name, (_, info) in found.items()}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Take a step with all `agents`.

        Raises:
            KeyError, EncodeError: an agent has no action, or an invalid one; no action was sent.
            RlwireError: a server rejected an action; the other agents have acted.
        """
        endpoints = {name: each.opened() for name, each in self._environments.items()}
        # Raises before any action is sent.
        encoded = {name: endpoints[name].encode_step(actions[name]) for name in self.agents}
        asked: list[str] = []
        failed: Exception | None = None
        for name, each in encoded.items():
            try:
                endpoints[name].send_step(each)
            except Exception as error:
                failed = failed or error
            else:
                asked.append(name)
        found = self._finish(asked, failed)
        self.agents = [name for name in self.agents if not (found[name][2] or found[name][3])]
        observations, rewards, terminations, truncations, infos = (
            {name: outcome[part] for name, outcome in found.items()} for part in range(5)
        )
        return observations, rewards, terminations, truncations, infos

    def _finish(self, names: list[str], failed: Exception | None = None) -> dict[str, Any]:
        """Wait for all, then raise the first error."""
        found = {}
        for name in names:
            try:
                found[name] = self._environments[name].endpoint.finish()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return found

    def close(self) -> None:
        with contextlib.ExitStack() as undo:  # closes all, whatever one of them raises
            for environment in self._environments.values():
                undo.callback(environment.close)

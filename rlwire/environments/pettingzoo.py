"""`ParallelEnvironment`: remote agents as one of PettingZoo's environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlwire.environments.remote import RemoteEnvironment
from rlwire.errors import optional

with optional("pettingzoo", "pettingzoo"):
    from pettingzoo import ParallelEnv


__all__ = ["ParallelEnvironment"]


class ParallelEnvironment(ParallelEnv):
    """Remote agents as a `pettingzoo.ParallelEnv`: slots of a PERLERT instance, agents of a world.

    ::

        url = "dm-env-rpc://localhost:9911"  # or perlert://localhost:32322/spread
        env = ParallelEnvironment({key: rlwire.make(url, agent=key) for key in ("a_0", "a_1")})

    A step sends all actions before it waits. An agent whose episode is over leaves `agents` until
    the next reset. A lost agent is truncated, with ``info["lost"]``.

    Args:
        environments: one for each agent's name, closed with this; ValueError if there are none.
    """

    def __init__(self, environments: Mapping[str, RemoteEnvironment]) -> None:
        if not environments:
            raise ValueError("environments must have at least one agent")
        self._endpoints = {name: each.endpoint for name, each in environments.items()}
        self.possible_agents = list(environments)
        self.agents: list[str] = []
        first = next(iter(environments.values()))
        self.metadata = {**first.metadata, "name": "rlwire_remote", "is_parallelizable": True}
        self.render_mode = first.render_mode

    def observation_space(self, agent: str) -> Any:
        return self._endpoints[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self._endpoints[agent].action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; RlwireError if an environment refuses or cannot be reached."""
        for endpoint in self._endpoints.values():
            endpoint.begin_reset(seed, options)
        self.agents = []
        found = self._finish(self.possible_agents)
        self.agents = list(self.possible_agents)
        observations = {name: observation for name, (observation, _) in found.items()}
        return observations, {name: info for name, (_, info) in found.items()}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Let all agents in `agents` act.

        Raises:
            KeyError: an agent has no action.
            RlwireError: an environment refuses; the other agents have acted.
        """
        acting = list(self.agents)
        given = [actions[name] for name in acting]  # before sending any
        asked: list[str] = []
        failed: Exception | None = None
        for name, action in zip(acting, given, strict=True):
            try:
                self._endpoints[name].begin_step(action)
            except Exception as error:
                failed = failed or error
            else:
                asked.append(name)
        found = self._finish(asked, failed)
        self.agents = [name for name in acting if not (found[name][2] or found[name][3])]
        observations, rewards, terminations, truncations, infos = (
            {name: outcome[part] for name, outcome in found.items()} for part in range(5)
        )
        return observations, rewards, terminations, truncations, infos

    def _finish(self, names: list[str], failed: Exception | None = None) -> dict[str, Any]:
        """Wait for all, then raise the first error."""
        found = {}
        for name in names:
            try:
                found[name] = self._endpoints[name].finish()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return found

    def close(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()

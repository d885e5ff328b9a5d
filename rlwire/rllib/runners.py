"""`Runner`: what RLlib's runners over rlwire share.

What is distributed is Ray's: it places runners, starts them again, and learns. Here is one runner's
state, its weights and what it tells of episodes. Source: `ray.rllib.env.env_runner.EnvRunner` and
RLlib's own runners of Ray 2.60.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rlwire.errors import optional
from rlwire.registry import parse_url
from rlwire.rllib.directory import register

with optional("ray", "rllib"):
    import ray
    import ray.util
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils import metrics as names
from ray.rllib.utils.checkpoints import Checkpointable

__all__ = ["Runner"]

logger = logging.getLogger(__name__)

_MOST_BEGUN = 100_000  # episodes of which pieces have come, but not the last
_ANY = ("", "0.0.0.0", "::")  # hosts that stand for all of a machine's


def spaces_of(config: AlgorithmConfig) -> dict[str, Any]:
    """Return the spaces that a config names: of what is sampled, and of its module."""
    if config.is_multi_agent:
        raise ValueError("the config has policies for several agents: environments here have one")
    whole = (config.observation_space, config.action_space)
    return {INPUT_ENV_SPACES: whole, DEFAULT_MODULE_ID: whole}


class Runner(EnvRunner, Checkpointable):
    """A runner of RLlib's new API stack that has no environments of its own: it has a server.

    The one in the algorithm's own process listens only where it is the only one. Where several
    algorithms share a cluster, each has a ``name`` in its `env_config`, by which its runners are
    found.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.

    Attributes:
        server: what listens; None where nothing does.
        module: RLlib's, with the newest weights.
    """

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        self.worker_index = options.get("worker_index") or 0
        self.server: Any = None
        self._number = 0
        self._forget: Callable[[], None] = lambda: None
        self._begun: dict[str, _Total] = {}
        self._done: list[_Total] = []
        self.make_module()

    @property
    def listens(self) -> bool:
        """Whether it is one of those that have a server."""
        return bool(self.worker_index) or not self.config.num_env_runners

    @property
    def url(self) -> str:
        """Where callers of other machines find it; "" if it does not listen."""
        if self.server is None:
            return ""
        where = parse_url(self.server.url)
        if where.host in _ANY:
            where = where.replace(host=ray.util.get_node_ip_address())
        return str(where)

    def started(self) -> None:
        """Tell the cluster where it listens."""
        self._forget = register(
            str(self.config.env_config.get("name", "")), self.worker_index, self.url
        )
        nodes = ray.nodes() if ray.is_initialized() else []
        if sum(node["Alive"] for node in nodes) > 1 and parse_url(self.url).address.loopback:
            logger.warning(
                "%s can be reached from its own node alone, and the cluster has others: have it "
                "listen at the host 0.0.0.0, with a secret or TLS", self.url,
            )  # fmt: skip

    def assert_healthy(self) -> None:
        """Raise AssertionError if it does not listen."""
        assert self.server is None or self.server.url

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces that the config names; as `spaces_of`."""
        return spaces_of(self.config)

    def make_module(self) -> None:
        """Make RLlib's module, as the config has it."""
        spec = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what makes another one like it."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the module."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Return the steps so far, the weights and their number, and what else it is made of."""
        state: dict[str, Any] = {
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime
        }
        wanted, unwanted = _listed(components), _listed(not_components)
        for name, part in self.get_checkpointable_components():
            if (components is None or name in wanted) and name not in unwanted:
                state[name] = part.get_state()
                if name == COMPONENT_RL_MODULE:
                    state[names.WEIGHTS_SEQ_NO] = self._number
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take new weights, and what else there is."""
        for name, part in self.get_checkpointable_components():
            if name != COMPONENT_RL_MODULE and name in state:
                part.set_state(state[name])
        if names.NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[names.NUM_ENV_STEPS_SAMPLED_LIFETIME]
        if COMPONENT_RL_MODULE in state:
            number = state.get(names.WEIGHTS_SEQ_NO, 0)
            # Without a number, weights are to be taken in any case.
            if number == 0 or number > self._number:
                weights = state[COMPONENT_RL_MODULE]
                if isinstance(weights, ray.ObjectRef):
                    weights = ray.get(weights)
                if DEFAULT_MODULE_ID in weights:
                    weights = weights[DEFAULT_MODULE_ID]
                self.module.set_state(weights)
            self._number = max(self._number, number)

    def stop(self) -> None:
        """Stop listening."""
        if self.server is not None:
            self._forget()
            self.server.stop()

    def sampled(self, episodes: list[Any]) -> list[Any]:
        """Return episodes, and parts of some, that were sampled; take note of what is in them.

        One that has ended without a further step counts, and is not returned.
        """
        steps = done = 0
        for episode in episodes:
            total = self._begun.pop(episode.id_, None) or _Total()
            steps += len(episode)
            total.steps += len(episode)
            total.seconds += episode.get_duration_s()
            total.reward += episode.get_return()
            if episode.is_done:
                done += 1
                self._done.append(total)
            else:
                self._begun[episode.id_] = total
        while len(self._begun) > _MOST_BEGUN:  # whose simulators are gone
            del self._begun[next(iter(self._begun))]
        self._count(steps, done)
        return [episode for episode in episodes if len(episode)]

    def get_metrics(self) -> Any:
        """Return RLlib's metrics of the episodes that ended since the last call."""
        window = self.config.metrics_num_episodes_for_smoothing
        for total in self._done:
            values: list[tuple[Any, float]] = [
                (names.EPISODE_LEN_MEAN, total.steps),
                (names.EPISODE_RETURN_MEAN, total.reward),
                (names.EPISODE_DURATION_SEC_MEAN, total.seconds),
                ((names.EPISODE_AGENT_RETURN_MEAN, DEFAULT_AGENT_ID), total.reward),
                ((names.EPISODE_MODULE_RETURN_MEAN, DEFAULT_MODULE_ID), total.reward),
            ]
            for key, value in values:
                self.metrics.log_value(key, value, window=window)
            for name, value, reduce in (
                (names.EPISODE_LEN_MIN, total.steps, "min"),
                (names.EPISODE_LEN_MAX, total.steps, "max"),
                (names.EPISODE_RETURN_MIN, total.reward, "min"),
                (names.EPISODE_RETURN_MAX, total.reward, "max"),
            ):
                self.metrics.log_value(name, value, reduce=reduce, window=window)
        self._done.clear()
        return self.metrics.reduce()

    def _count(self, steps: int, done: int) -> None:
        self.num_env_steps_sampled_lifetime += steps
        if steps:
            self._log_env_steps(self._metrics_num_env_steps_sampled, steps)
        log = self.metrics.log_value
        log(names.NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log(names.NUM_EPISODES, done, reduce="sum")
        log(names.NUM_EPISODES_LIFETIME, done, reduce="lifetime_sum")
        log(
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME,
            steps,
            reduce="lifetime_sum",
            with_throughput=True,
        )
        agent, module = DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
        log((names.NUM_AGENT_STEPS_SAMPLED, agent), steps, reduce="sum")
        log((names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), steps, reduce="lifetime_sum")
        log((names.NUM_MODULE_STEPS_SAMPLED, module), steps, reduce="sum")
        log((names.NUM_MODULE_STEPS_SAMPLED_LIFETIME, module), steps, reduce="lifetime_sum")


@dataclass
class _Total:
    """What is told of an episode when it has ended."""

    steps: int = 0
    reward: float = 0.0
    seconds: float = 0.0


def _listed(components: Any) -> Collection[str]:
    return [components] if isinstance(components, str) else components or ()

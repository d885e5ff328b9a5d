"""`CallersEnvRunner`: RLlib's runner for environments that call, in any protocol in which they do.

A caller's own thread hears and answers it; what callers say waits for the runner, which has RLlib's
module act for all that wait at once, within RLlib's call of `sample`: between two of them callers
wait, as RLlib's own environments do. Those that want no training are answered at any time.

Not here: what callers say (``called`` of each protocol); RLlib's algorithms and Ray
(`rlwire.rllib.serving`). Source: `ray.rllib.env.single_agent_env_runner` of Ray 2.60.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlwire.environments.called import Caller, Callers, CallersStatistics, Turn
from rlwire.errors import ConnectionClosed, optional
from rlwire.registry import check_server_tls, parse_url
from rlwire.rllib.runners import Runner
from rlwire.rlx.metrics import Metrics
from rlwire.serving.batching import Together

with optional("ray", "rllib"):
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
    DEFAULT_MODULE_ID,
)
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils import metrics as names
from ray.rllib.utils.spaces.space_utils import batch, unbatch

__all__ = ["CallersEnvRunner"]

logger = logging.getLogger(__name__)

_URL = "rlx://localhost:7001"
_PATIENCE = 2.0  # seconds after which RLlib gets what there is, and can do something else
_SERIES = 100  # of callers' metrics


class Player:
    """A caller, and the episode that it is in."""

    __slots__ = ("action", "actions", "episode", "exploit", "extra", "parts", "turn")

    def __init__(self, exploit: bool = False) -> None:
        self.turn: Turn | None = None  # what it said last
        self.exploit = exploit  # it wants the best actions, and no training
        self.episode: Any = None  # RLlib's
        self.parts: list[Any] = []  # of it, that were returned before
        self.action: Any = None  # the module's last, as it is learnt from
        self.extra: dict[str, Any] = {}  # what else the module gave with that
        self.actions: queue.SimpleQueue[Any] = queue.SimpleQueue()  # for the caller's own thread


_OVER: Any = object()  # instead of an action


class Players(Callers):
    """Callers without places: each of them plays, in its own thread.

    `greedy` acts for those that want the best actions, in their threads; `count` is ignored.
    """

    def __init__(
        self,
        greedy: Callable[[list[Player]], list[Any]],
        count: int,
        observation_space: Any,
        action_space: Any,
    ) -> None:
        super().__init__(count, observation_space, action_space)
        self._greedy = Together(greedy)
        self._asking: list[Player] = []
        self._left: list[Player] = []
        self._playing: set[Player] = set()
        self._steps = self._episodes = self._lost = 0

    def attend(self, caller: Caller) -> None:
        """Play with a caller until an error ends it; for the connection's own thread."""
        player = Player()
        with self._changed:
            if self._closed:
                return
            self._attended.add(caller)
        try:
            while True:
                turn = caller.hear()
                if turn.reward is None:
                    player = self._begins(player, bool(turn.info.get("exploit")))
                player.turn = turn
                caller.act(
                    self._greedy.ask(player) if player.exploit else self._ask(player, caller)
                )
        finally:
            with self._changed:
                self._attended.discard(caller)
                self._leaves(player)

    def gather(self, until: float, linger: float) -> list[Player]:
        """Return those that wait for an action; none if `until` nobody does.

        Once there is one, others who play are waited for for `linger` seconds.
        """
        with self._changed:
            while not self._asking:
                left = until - time.monotonic()
                if left <= 0 or self._closed:
                    return []
                self._changed.wait(left)
            soon = time.monotonic() + linger
            while len(self._asking) < len(self._playing):
                left = soon - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            taken, self._asking = self._asking, []
            return taken

    def gone(self) -> list[Player]:
        """Return those that have left since the last call."""
        with self._changed:
            left, self._left = self._left, []
            return left

    def playing(self) -> list[Player]:
        """Return those that are learnt from."""
        with self._changed:
            return list(self._playing)

    def lost(self) -> None:
        """Count an episode in which a caller left."""
        self._lost += 1

    def statistics(self) -> CallersStatistics:
        """Return what callers did so far; from any thread."""
        return CallersStatistics(
            len(self._attended), len(self._asking), self._steps, self._episodes, self._lost
        )

    def close(self) -> None:
        """Close all connections and stop listening. Any thread."""
        with self._changed:
            for player in self._playing:
                player.actions.put(_OVER)
        super().close()

    def _begins(self, player: Player, exploit: bool) -> Player:
        with self._changed:
            self._episodes += 1
            if player.exploit != exploit:
                self._leaves(player)
                player = Player(exploit)
            if not exploit:
                self._playing.add(player)
        return player

    def _leaves(self, player: Player) -> None:
        if player in self._playing:
            self._playing.discard(player)
            self._left.append(player)
            self._changed.notify_all()

    def _ask(self, player: Player, caller: Caller) -> Any:
        with self._changed:
            if self._closed:
                raise ConnectionClosed("nobody acts any more: the server was closed")
            self._steps += 1
            self._asking.append(player)
            self._changed.notify_all()
        while True:
            try:
                action = player.actions.get(timeout=caller.attention)
            except queue.Empty:
                caller.look()
                continue
            if action is _OVER:
                raise ConnectionClosed("nobody acts any more: the server was closed")
            return action


class CallersEnvRunner(Runner):
    """A runner of RLlib's new API stack that environments call.

    ::

        config = PPOConfig().environment(
            observation_space=..., action_space=..., env_config={"url": "rlx://localhost:7001"}
        ).env_runners(env_runner_cls=CallersEnvRunner, num_env_runners=2)

    The `env_config` may have: ``url`` (by default ``"rlx://localhost:7001"``), where the first
    runner listens; and ``server``, options of the protocol's ``listen``.

    An environment that leaves in an episode has truncated it. One that says that it exploits is
    given the likeliest actions of the newest weights, and none of its steps is a sample. What
    environments report, as RLX's can, comes in RLlib's results, under ``reported``.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.
    """

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        self._pipelines: list[tuple[str, Any]] = []
        super().__init__(config=config, **options)
        self._lock = threading.RLock()  # of the module, the pipelines and the metrics
        self._recorded: list[Player] = []  # who waits for an action
        self._to_module: Any = None  # what the module is given for them
        self._shared: dict[str, Any] = {}
        self._took = 0.0
        self._ended = False
        self._insists = False  # that there are samples
        self._rest = 0, 0  # steps for which RLlib asks again, and with which weights
        self._reported = _Reported()
        self._callbacks = [kind() for kind in force_list(self.config.callbacks_class)]
        if self.listens:
            told: Mapping[str, Any] = self.config.env_config
            url = parse_url(told.get("url", _URL))
            if url.port:
                url = url.replace(port=url.port + max(self.worker_index - 1, 0))
            more = dict(told.get("server", {}))
            check_server_tls(url, more.get("tls"))
            if hasattr(url.protocol.options["listener"], "metrics"):
                more.setdefault("metrics", self._reported)
            self.server = url.protocol.part("listen")(
                url,
                1,
                kind=partial(Players, self._greedy),
                observation_space=self.config.observation_space,
                action_space=self.config.action_space,
                **more,
            )
            self.started()

    def make_module(self) -> None:
        """Make RLlib's pipelines, which it finds by these names, and its module."""
        spaces = super().get_spaces()
        self._env_to_module = self.config.build_env_to_module_connector(spaces=spaces)
        self._module_to_env = self.config.build_module_to_env_connector(spaces=spaces)
        self._pipelines = [
            (COMPONENT_ENV_TO_MODULE_CONNECTOR, self._env_to_module),
            (COMPONENT_MODULE_TO_ENV_CONNECTOR, self._module_to_env),
        ]
        super().make_module()

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces that the config names, and what the module is given."""
        seen = self._env_to_module.observation_space
        whole = super().get_spaces()
        return {
            **whole,
            INPUT_ENV_SINGLE_SPACES: whole[INPUT_ENV_SPACES],
            DEFAULT_MODULE_ID: (seen, self.config.action_space),
        }

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the module and the pipelines."""
        return [*super().get_checkpointable_components(), *self._pipelines]

    def get_state(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return the steps so far, the weights and their number, and the pipelines' states."""
        with self._lock:
            return super().get_state(*arguments, **options)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take new weights, and the pipelines' states."""
        with self._lock:
            super().set_state(state)

    def get_metrics(self) -> Any:
        """Return RLlib's metrics since the last call, and what environments reported."""
        with self._lock:
            for name, value in self._reported.take():
                self.metrics.log_value(("reported", name), value, window=100)
            return super().get_metrics()

    def statistics(self) -> CallersStatistics | None:
        """Return what callers did so far; None if it does not listen."""
        return None if self.server is None else self.server.statistics()

    def end(self) -> None:
        """Have `sample` return what there is, and nothing from then on."""
        self._ended = True

    def stop(self) -> None:
        """Stop listening."""
        self._ended = True
        if self.server is not None:
            self.server.close()

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Have callers play, and return their episodes, and parts of some.

        As many steps as RLlib's own runner makes, by the config, or fewer if they do not come
        within 2 seconds: RLlib then asks again, for the rest. Where episodes are wanted, or the
        config's `batch_mode` is ``"complete_episodes"``, only those that have ended are returned.
        """
        if self.server is None:
            if self._ended:  # RLlib has no other left: its iteration is to end
                raise ConnectionClosed("nobody plays any more: the runners were stopped")
            return []
        if self._ended:  # an error would have Ray start it again
            return []
        explore = self.config.explore if explore is None else explore
        whole = num_episodes is not None or (
            num_timesteps is None and self.config.batch_mode == "complete_episodes"
        )
        wanted = num_episodes or num_timesteps
        if wanted is None:
            wanted = self.config.num_envs_per_env_runner
            if not whole:
                wanted *= self.config.get_rollout_fragment_length(self.worker_index)
                rest, number = self._rest
                wanted = rest if rest > 0 and number == self._number else wanted
        patience = _PATIENCE if self.server.playing() else _PATIENCE / 10
        until = time.monotonic() + min(patience, (self.config.sample_timeout_s or 60.0) / 2)
        steps = 0
        done: list[Any] = []
        while (len(done) if whole else steps) < wanted:
            if self._recorded:
                self._act(explore, random_actions)
            players = self.server.gather(until, self._took)
            if self._insists and not (players or steps or self._ended):
                until = time.monotonic() + patience
                continue
            if not players or self._ended:
                break
            with self._lock:
                steps += self._record(players, done, explore)
        self._rest = wanted - steps, self._number
        with self._lock:
            for player in self.server.gone():
                self._truncate(player, done)
            samples = self.sampled([*done, *([] if whole else self._parts())])
            self.metrics.log_value("num_callers", self.server.statistics().callers, window=1)
            self._call("on_sample_end", samples=samples)
        return samples

    def sample_get_state_and_metrics(self) -> Any:
        """Return samples, state and metrics, for algorithms that learn of them as they come.

        They take no empty samples, so it waits for whoever calls.
        """
        self._insists = True
        try:
            return super().sample_get_state_and_metrics()
        finally:
            self._insists = False

    def _record(self, players: list[Player], done: list[Any], explore: bool) -> int:
        """Note what players say; return how many steps they have made."""
        steps = 0
        for player in players:
            turn, episode = player.turn, player.episode
            assert turn is not None
            if turn.reward is None or episode is None or episode.is_done:
                self._truncate(player, done)
                self._begin(player)
            else:
                steps += 1
                self._step(player)
        self._to_module = self._seen(players, explore, self._shared)
        self._recorded = players
        for player in players:
            episode = player.episode
            self._call("on_episode_start" if episode.t == 0 else "on_episode_step", player)
            if episode.is_done:
                self._end(episode, player, done)
        return steps

    def _begin(self, player: Player) -> None:
        turn = player.turn
        assert turn is not None
        player.parts = []
        player.episode = SingleAgentEpisode(
            observation_space=self.config.observation_space,
            action_space=self.config.action_space,
        )
        if not player.exploit:
            self._call("on_episode_created", player)
        player.episode.add_env_reset(observation=turn.observation, infos=turn.info)

    def _step(self, player: Player) -> None:
        turn = player.turn
        assert turn is not None
        player.episode.add_env_step(
            observation=turn.observation,
            action=player.action,
            reward=turn.reward,
            infos=turn.info,
            terminated=turn.terminated,
            truncated=turn.truncated,
            extra_model_outputs=player.extra,
        )

    def _truncate(self, player: Player, done: list[Any]) -> None:
        """End the episode of a player that has left it, if it is in one."""
        episode = player.episode
        if episode is not None and not episode.is_done and episode.is_reset:
            episode.is_truncated = True
            self.server.lost()
            self._end(episode, player, done)

    def _end(self, episode: Any, player: Player, done: list[Any]) -> None:
        self._call("on_episode_end", player)
        done.append(episode.to_numpy() if self.config.episodes_to_numpy else episode)

    def _parts(self) -> list[Any]:
        """Return what there is of episodes that go on, which do so in objects of their own."""
        parts = []
        for player in self.server.playing():
            episode = player.episode
            if episode is None or episode.is_done or not len(episode):
                continue
            player.episode = episode.cut(len_lookback_buffer=self.config.episode_lookback_horizon)
            episode.validate()
            player.parts.append(episode)
            parts.append(episode.to_numpy() if self.config.episodes_to_numpy else episode)
        return parts

    def _seen(self, players: list[Player], explore: bool, shared: dict[str, Any]) -> Any:
        """Return what the module is given for players."""
        return self._env_to_module(
            episodes=[player.episode for player in players],
            batch={},
            explore=explore,
            rl_module=self.module,
            shared_data=shared,
            metrics=self.metrics,
            metrics_prefix_key=(names.ENV_TO_MODULE_CONNECTOR,),
        )

    def _act(self, explore: bool, random: bool) -> None:
        """Give those that wait their actions."""
        begun = time.perf_counter()
        players, self._recorded = self._recorded, []
        with self._lock:
            if random:
                space = self.config.action_space
                given = {Columns.ACTIONS: batch([space.sample() for _ in players])}
            else:
                with self.metrics.log_time(names.RLMODULE_INFERENCE_TIMER):
                    if explore:
                        # How many steps all have made, about, by which RLlib explores.
                        several = self.config.num_env_runners or 1
                        steps = self.num_env_steps_sampled_lifetime // several * several
                        given = self.module.forward_exploration(self._to_module, t=steps)
                    else:
                        given = self.module.forward_inference(self._to_module)
                given = self._chosen(players, given, explore, self._shared)
            actions = self._given(players, given)
        for player, action in zip(players, actions, strict=True):
            player.actions.put(action)
        self._took = time.perf_counter() - begun

    def _chosen(
        self, players: list[Player], given: Any, explore: bool, shared: dict[str, Any]
    ) -> Any:
        """Return actions, and what is learnt with them, of what the module gave."""
        return self._module_to_env(
            rl_module=self.module,
            batch=given,
            episodes=[player.episode for player in players],
            explore=explore,
            shared_data=shared,
            metrics=self.metrics,
            metrics_prefix_key=(names.MODULE_TO_ENV_CONNECTOR,),
        )

    def _given(self, players: list[Player], given: dict[str, Any]) -> list[Any]:
        """Note for each player what it does, and return what it is told, which may be clipped."""
        actions = given.pop(Columns.ACTIONS)
        told = unbatch(given.pop(Columns.ACTIONS_FOR_ENV, actions))
        for place, (player, action) in enumerate(zip(players, unbatch(actions), strict=True)):
            player.action = action
            player.extra = {name: column[place] for name, column in given.items()}
            player.extra[names.WEIGHTS_SEQ_NO] = self._number
        return list(told)

    def _greedy(self, players: list[Player]) -> list[Any]:
        """Return the best actions for players that are not learnt from; in their threads."""
        with self._lock:
            for player in players:
                turn, episode = player.turn, player.episode
                assert turn is not None
                if turn.reward is None or episode is None or episode.is_done:
                    self._begin(player)
                    continue
                self._step(player)
                if not episode.is_done:  # no more of it is kept than the module may look back at
                    player.episode = episode.cut(
                        len_lookback_buffer=max(self.config.episode_lookback_horizon, 1)
                    )
            shared: dict[str, Any] = {}
            seen = self._seen(players, False, shared)
            given = self._chosen(players, self.module.forward_inference(seen), False, shared)
            return self._given(players, given)

    def _call(self, name: str, player: Player | None = None, **more: Any) -> None:
        """Call back RLlib's users."""
        functions = getattr(self.config, f"callbacks_{name}")
        if player is not None:
            episode = player.episode
            more = {"episode": episode, "env": None, "rl_module": self.module, "env_index": 0}
            if name == "on_episode_end":
                more["prev_episode_chunks"] = player.parts
        make_callback(
            name,
            callbacks_objects=self._callbacks,
            callbacks_functions=functions,
            kwargs={"env_runner": self, "metrics_logger": self.metrics, **more},
        )


class _Reported(Metrics):
    """Keeps what environments report for the runner's own thread; histograms are dropped."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, float]] = deque(maxlen=10_000)
        self._names: set[str] = set()

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Keep one number; of names beyond a hundred, none."""
        if len(self._names) < _SERIES:
            self._names.add(name)
        if name in self._names:
            self._kept.append((name, float(y)))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Drop it: RLlib's results have none."""
        logger.debug("a histogram %r is dropped: RLlib's results have none", name)

    def take(self) -> list[tuple[str, float]]:
        """Return what was kept since the last call."""
        return [self._kept.popleft() for _ in range(len(self._kept))]

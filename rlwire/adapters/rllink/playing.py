"""RLlink's part of `rlwire.play`: an environment samples by itself, and sends what it has sampled.

Not here: what a policy is (`policies`), how steps become a batch (`collector`), the conversation
(`client`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from rlwire.adapters.playing import Game, closing
from rlwire.adapters.rllink.client import RLlinkClient
from rlwire.adapters.rllink.collector import EpisodeCollector, MultiAgentCollector
from rlwire.adapters.rllink.policies import Policy, acted, resolve_policy
from rlwire.codecs.rllink import SetState
from rlwire.environments.driver import Driven, drive
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.loading import load
from rlwire.errors import ConnectionClosed, EncodeError, RemoteProtocolError
from rlwire.transports.address import AddressLike

__all__ = ["play"]

_RECONNECTS = 5  # times that a lost trainer is looked for in a row, with the client's waits each


def play(
    environment: Any,
    address: AddressLike,
    *,
    episodes: int = 1,
    seed: int | None = None,
    policy: Any = None,
    steps: int | None = None,
    **options: Any,
) -> list[float]:
    """Play an environment with a trainer's weights, and send it the steps; return each reward.

    Of an environment of PettingZoo the policy is called with the observations of those who act, and
    returns actions, by agent: of a parallel one all at once, else the one whose turn it is.

    A batch has exactly as many steps as the trainer asks for; what is left at the end is sent too.
    When the trainer is lost and comes back, the batch that it had not answered is sampled anew.

    Args:
        environment: an environment, what makes one, its name, or a URL of one that is elsewhere.
        address: the trainer's.
        episodes: how many to play to their ends.
        seed: of the first episode.
        policy: as `rlwire.adapters.rllink.policies` says, or ``"module:policy"``; by default what
            runs the ONNX that the trainer sends.
        steps: in a batch, where the trainer does not say (as Ray's, whose config is a pickle).
        options: of `RLlinkClient`.

    Raises:
        ValueError: neither the trainer nor the caller says how many steps a batch has.
        RemoteProtocolError: an action is none of the environment's.
        PeerError: the trainer says what was wrong.
        ConnectionClosed, OSError: the connection is lost, and cannot be made again.
    """
    act = resolve_policy(load(policy, "'module:policy'") if isinstance(policy, str) else policy)
    totals: list[float] = []
    driven = drive(environment, turns=True)
    with closing(driven), RLlinkClient(address, **options) as client:
        game = (_Together if driven.agents else _Alone)(driven, seed, act)
        weights = _begin(game, client, steps)
        lost = 0
        while len(totals) < episodes:
            game.reset()
            while not game.over:
                game.step(weights)
                last = game.over and len(totals) == episodes - 1
                if game.collector.full or last:
                    try:
                        # Who does not wait for new weights asks for the newest.
                        weights = client.send(game.collector.take()) or client.get_state()
                        lost = 0
                    except (ConnectionClosed, OSError):
                        lost += 1
                        if lost > _RECONNECTS or last:
                            raise
                        weights = _rejoin(game, client, steps)
                        if not game.over:
                            game.collect()
            totals.append(game.total)
    return totals


class _Alone:
    """An environment of one agent, whose steps go into a collector."""

    def __init__(self, driven: Driven, seed: int | None, act: Policy) -> None:
        self._game = Game(driven.one("rllink"), seed)
        self._act = act
        self._observation: Any = None
        self.collector: Any = None

    @property
    def over(self) -> bool:
        return self._game.over

    @property
    def total(self) -> float:
        return self._game.total

    def collector_of(self, steps: int) -> Any:
        return EpisodeCollector(steps)

    def reset(self) -> None:
        self._observation = self._game.reset()
        self.collect()

    def collect(self) -> None:
        """Begin an episode in the collector where the environment stands."""
        self.collector.reset(self._observation)

    def step(self, weights: SetState) -> None:
        action, outputs = acted(self._act(self._observation, weights))
        self._observation, reward = self._game.step(action)
        terminated = self._game.over and not self._game.truncated
        self.collector.step(
            action, self._observation, reward, terminated, self._game.truncated, outputs=outputs
        )


class _Together(_Alone):
    """One of several agents, who act at once or in turns; the total is that of all of them."""

    def __init__(self, driven: Driven, seed: int | None, act: Policy) -> None:
        self._driven, self._seed, self._act = driven, seed, act
        self._fits = {
            agent: fitting(space, f"the action of {agent}")
            for agent, space in driven.action_space.items()
        }
        self._playing: dict[Any, Any] = {}  # observations of those who act next
        self._total = 0.0

    @property
    def over(self) -> bool:
        return not self._playing

    @property
    def total(self) -> float:
        return self._total

    def collector_of(self, steps: int) -> Any:
        return MultiAgentCollector(steps)

    def reset(self) -> None:
        observations, _ = self._driven.reset(self._seed)
        self._seed, self._total = None, 0.0
        self._playing = {agent: plain(one) for agent, one in observations.items()}
        self.collect()

    def collect(self) -> None:
        self.collector.reset(self._playing)

    def step(self, weights: SetState) -> None:
        actions, outputs = acted(self._act(self._playing, weights))
        try:
            fitted = {agent: self._fits[agent](actions[agent]) for agent in self._playing}
        except KeyError as error:
            raise RemoteProtocolError(f"no action of {error} (from the policy)") from None
        except EncodeError as error:
            raise RemoteProtocolError(f"{error} (from the policy)") from error
        steps = self._driven.step(fitted)
        observed = {agent: plain(step[0]) for agent, step in steps.items()}
        rewards = {agent: float(step[1]) for agent, step in steps.items()}
        self.collector.step(
            actions,
            observed,
            rewards,
            {agent: bool(step[2]) for agent, step in steps.items()},
            {agent: bool(step[3] and not step[2]) for agent, step in steps.items()},
            outputs=outputs,
        )
        self._total += sum(rewards.values())
        over = {agent for agent, step in steps.items() if step[2] or step[3]}
        self._playing = {agent: one for agent, one in observed.items() if agent not in over}


def _begin(game: _Alone, client: RLlinkClient, steps: int | None) -> SetState:
    config = client.get_config()
    wanted = config.env_steps_per_sample or steps
    if wanted is None:
        raise ValueError(
            f"{client.address} does not say how many steps a batch has: give steps= (RLlib's "
            "get_rollout_fragment_length())"
        )
    weights = client.get_state()
    if weights is None:
        raise RemoteProtocolError("the trainer has no weights")
    game.collector = game.collector_of(wanted)
    return weights


def _rejoin(game: _Alone, client: RLlinkClient, steps: int | None) -> SetState:
    """Connect again, and begin a batch; who is about to end may take a connection, and drop it."""
    for _ in range(_RECONNECTS - 1):
        with contextlib.suppress(ConnectionClosed):
            client.connect()
            return _begin(game, client, steps)
    client.connect()
    return _begin(game, client, steps)

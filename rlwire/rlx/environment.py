"""`rlwire.listen` and `rlwire.play` over RLX: environments that connect to a trainer.

rlwire's client adds ``spaces`` to `init`, and ``truncated`` and ``terminated`` to the last `update`
of an episode that was truncated; other programs ignore them.
"""

from __future__ import annotations

import copy
import logging
from functools import partial
from typing import Any

import numpy as np

from rlwire.codecs.casting import as_array, flag
from rlwire.environments.callers import ActionRequest, Caller, Callers, total_reward
from rlwire.environments.driver import Game, opened
from rlwire.environments.spaces import describe_both, spaces_of
from rlwire.errors import EncodeError, RemoteProtocolError
from rlwire.rlx.client import AgentProxy, TrainingBase
from rlwire.rlx.hosting import AgentFactory, AgentHandler
from rlwire.rlx.metrics import Metrics, sink_of
from rlwire.rlx.options import RLXListenerOptions
from rlwire.serving.listening import CallerService, Listener
from rlwire.sessions import rlx
from rlwire.transports.connection import Connection
from rlwire.transports.waits import drive
from rlwire.urls import URL

logger = logging.getLogger(__name__)


def listen(
    url: URL,
    num_envs: int,
    *,
    observation_space: Any = None,
    action_space: Any = None,
    **options: Any,
) -> Callers:
    """Listen for RLX environments; without spaces, wait until the first one sends them."""
    chosen = RLXListenerOptions(url, **options)
    session = partial(rlx.RLXServerSession, **chosen.session)
    session()  # raises for invalid options
    callers = Callers(num_envs, observation_space, action_space)
    service = CallerService(callers, session, partial(RLXCaller, sink_of(chosen.metrics)))
    return callers.open(Listener("rlx", service, chosen))


class RLXCaller(Caller):
    """A caller, and the agent of its own handler."""

    def __init__(self, metrics: Metrics, connection: Connection, callers: Callers) -> None:
        super().__init__(connection, callers)
        host = AgentHandler(AgentFactory(lambda _: self, None, metrics), connection.peer)
        self._answer, self._receive, self._send = host.answer, connection.receive, connection.send
        self._message: dict[str, Any] = {}
        self._request: ActionRequest | None = None
        self._exploit: Any = False
        self._begins = True
        self._last: Any = None

    def receive_request(self) -> ActionRequest:
        while True:
            try:
                message = self._receive()
            except RemoteProtocolError as error:
                self.reject(error)
                continue
            self._message, self._request = message, None
            reply = self._answer(message)
            if self._request is not None:
                return self._request
            self.connection.send(reply)

    def send_action(self, action: Any) -> None:
        # RELAAX's README: an action is INT4, DOUBLE or LIST.
        if isinstance(action, (np.ndarray, np.generic)):
            action = as_array(action, "the action").tolist()
        self._send({"response": "action", "data": action})

    def init(self, exploit: Any) -> bool:
        spaces = spaces_of(self._message.get("spaces"))
        if spaces is not None:
            self.described_spaces, self.callers.episode = spaces, spaces.episode
        self._exploit, self._begins = exploit, True
        return True

    def reset(self) -> bool:
        self._begins = True
        return True

    def update(self, reward: Any, state: Any, terminal: Any) -> None:
        if state is not None:
            observation = self.callers.fit(state)
        elif self._last is not None:
            observation = copy.deepcopy(self._last)
        else:
            observation = self.callers.default_observation()
        ends = terminal is not False and flag(terminal, "terminal")
        begins = self._begins or (reward is None and not ends)
        info = {"exploit": self._exploit} if begins else {}
        number = None if begins else total_reward(0.0 if reward is None else reward, info)
        self._begins, self._last = ends, observation
        truncated = ends and self._message.get("truncated") is True
        terminated = ends and self._message.get("terminated", not truncated) is True
        self._request = ActionRequest(observation, number, terminated, truncated, info)


def play(
    environment: Any,
    url: URL,
    *,
    episodes: int = 1,
    seed: int | None = None,
    exploit: bool = False,
    **options: Any,
) -> list[float]:
    """Play an environment with an agent on an RLX server; return the reward of each episode.

    If the connection is lost, the episode is restarted. `options` are `AgentProxy`'s.
    """
    with opened(environment, seed, "RLX") as game:
        playing = _Playing(game, url, max_episodes=episodes, exploit=exploit, **options)
        playing.run()
    return playing.totals


class _PlayingProxy(AgentProxy):
    """`AgentProxy` that adds `spaces`, `truncated` and `terminated`."""

    spaces: dict[str, Any] | None = None

    def init(self, exploit: bool = False) -> Any:
        message = {"command": "init", "exploit": exploit}
        if self.spaces is not None:
            message["spaces"] = self.spaces
        return drive(self._exchange(message))

    def truncate(self, reward: float, state: Any, terminated: bool) -> None:
        update = {"command": "update", "reward": reward, "state": state, "terminal": True}
        drive(self._exchange({**update, "truncated": True, "terminated": terminated}))


class _Playing(TrainingBase):
    proxy = _PlayingProxy
    agent: _PlayingProxy

    def __init__(self, game: Game, url: URL, **options: Any) -> None:
        super().__init__(url, **options)
        self.totals: list[float] = []
        self._game = game
        given = game.environment
        try:
            self.agent.spaces = describe_both(
                given.observation_space, given.action_space, given.environment
            )
        except EncodeError as error:
            logger.debug("spaces not sent: %s", error)

    def episode(self, number: int) -> None:
        game, agent = self._game, self.agent
        action = agent.update(None, game.reset())
        while not game.ended:
            state, reward = game.step(action)
            if game.truncated:
                agent.truncate(reward, state, game.terminated)
            else:
                action = agent.update(reward, state, game.ended)
        # Returns None: a metric would cost a round trip.
        self.totals.append(game.total)

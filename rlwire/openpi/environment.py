"""`rlwire.listen` and `rlwire.play` over openpi: environments that request a policy's actions.

The protocol has no rewards or episodes: `play` adds `reward`, `terminated` and `truncated` to an
observation. An observation that is not a dict is sent as the entry `observation`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlwire.codecs.casting import as_array, flag
from rlwire.environments.callers import ActionRequest, Caller, Callers, total_reward
from rlwire.environments.driver import opened
from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError, RemoteProtocolError, describe, optional, quoted
from rlwire.limits import DEFAULT
from rlwire.openpi.client import Client
from rlwire.openpi.options import OpenPIListenerOptions
from rlwire.serving.listening import CallerService, Listener
from rlwire.sessions.openpi import Failure, OpenPIServerSession
from rlwire.sessions.stack import Stack
from rlwire.sessions.websocket import WebSocketServerSession
from rlwire.transports.connection import Connection
from rlwire.urls import URL

OBSERVATION = "observation"
ABOUT = ("reward", "terminated", "truncated")


def listen(
    url: URL,
    num_envs: int,
    *,
    observation_space: Any = None,
    action_space: Any = None,
    **options: Any,
) -> Callers:
    chosen = OpenPIListenerOptions(url, **options)
    if action_space is None:
        raise ValueError("openpi has no messages for spaces: pass action_space= or like=")
    actions = tree_of(action_space, "the action", "which openpi's actions cannot carry")
    if not actions.is_leaf:
        raise EncodeError(
            f"openpi encodes an action as one array, but the action space is {action_space}; wrap "
            f"the environment so that it is a Box, Discrete, MultiDiscrete, MultiBinary or Text"
        )
    if chosen.horizon is not None:
        with optional("gymnasium", "gym"):
            from gymnasium.vector.utils import batch_space
        action_space = batch_space(action_space, chosen.horizon)
    policy = partial(OpenPIServerSession, arrays=chosen.arrays, limits=chosen.limits or DEFAULT)

    def session() -> Stack:
        return Stack(WebSocketServerSession(**chosen.socket), policy)

    caller = partial(OpenpiCaller, dict(chosen.metadata or {}), chosen.horizon is None)
    callers = Callers(num_envs, observation_space, action_space)
    callers.extra = True  # a robot sends more, such as its prompt
    service = CallerService(callers, session, caller)
    return callers.open(Listener("openpi", service, chosen))


class OpenpiCaller(Caller):
    poll_interval = 5.0  # openpi's own client closes 20 s after an unanswered ping

    def __init__(
        self, metadata: dict[str, Any], single: bool, connection: Connection, callers: Callers
    ) -> None:
        super().__init__(connection, callers)
        self._single = single
        self._begins = True
        connection.send(metadata)

    def receive_request(self) -> ActionRequest:
        while True:
            try:
                given = self.receive()
                break
            except RemoteProtocolError as error:
                self.reject(error)
        inside = getattr(self.callers.observation_space, "spaces", {})
        about = {name: given.pop(name) for name in ABOUT if name in given and name not in inside}
        if OBSERVATION in given and not inside and len(given) == 1:
            given = given[OBSERVATION]
        try:
            observation = self.callers.fit(given)
            info: dict[str, Any] = {}
            reward = total_reward(about.get("reward", 0.0), info)
            terminated, truncated = (flag(about.get(name), name) for name in ABOUT[1:])
        except (ValueError, TypeError) as error:
            # A failure closes the connection, as openpi's own server does.
            self.connection.send(Failure(describe(error)))
            raise RemoteProtocolError(str(error)) from error
        begins, self._begins = self._begins, terminated or truncated
        return ActionRequest(observation, None if begins else reward, terminated, truncated, info)

    def send_action(self, action: Any) -> None:
        actions = as_array(action, "the action")
        self.connection.send({"actions": actions[None] if self._single else actions})


def play(
    environment: Any, url: URL, *, episodes: int = 1, seed: int | None = None, **options: Any
) -> list[float]:
    """Play an environment with a policy on a server; return the sum of rewards of each episode.

    The environment steps through the actions of a chunk, up to the end of the episode.
    """
    totals = []
    with opened(environment, seed, "openpi") as game, Client(url, **options) as policy:
        for _ in range(episodes):
            observation = game.reset()
            about: dict[str, Any] = {}
            while True:
                given = observation if isinstance(observation, dict) else {OBSERVATION: observation}
                answer = policy.infer({**given, **about})
                if game.ended:
                    break
                reward = 0.0
                for action in _chunk(answer):
                    observation, got = game.step(action)
                    reward += got
                    if game.ended:
                        break
                about = {"reward": reward}
                if game.ended:
                    flags = {"terminated": game.terminated, "truncated": game.truncated}
                    about |= {name: True for name, flag in flags.items() if flag}
            totals.append(game.total)
    return totals


class _WrongActions(RemoteProtocolError):
    well_formed = True  # for `naming_protocol`


def _chunk(answer: dict[str, Any]) -> Any:
    actions: Any = answer.get("actions")
    if "actions" not in answer:
        raise _WrongActions(
            f"expected 'actions' in the policy's reply, which has {quoted(list(answer))}"
        )
    rows = isinstance(actions, list) or (isinstance(actions, np.ndarray) and actions.ndim > 0)
    if not rows or len(actions) == 0:
        raise _WrongActions(
            f"the policy's 'actions' must be an array, an action per row, not {quoted(actions)}"
        )
    return actions

"""`RewarderEndpoint` connects to the environment of a rewarder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from rlwire.codecs.rewarder.infos import ERROR as ERROR
from rlwire.codecs.rewarder.infos import SPACES, TERMINATED, TRUNCATED
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.spaces import spaces_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    WouldWait,
    on_error,
)
from rlwire.sessions.rewarder.client import RESET_TIMEOUT
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.urls import Where

logger = logging.getLogger(__name__)

ACTION = "Action"
"""rlwire's name of the event with an action; Universe's document defines none.

Its one value is JSON's number for Discrete, string for Text, object for Dict, array for others.
"""

_LOST = (ConnectionClosed, OSError, PeerError)


class RewarderEndpoint(Endpoint):
    """Connects to the environment of a rewarder, for example of an `EnvironmentRewarder`.

    A step waits for an observation and a reward, and returns the newest and the sum of them.
    """

    def __init__(
        self,
        where: Where,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        env_id: str | None = None,
        step_timeout: float = 10.0,
        reset_timeout: float = RESET_TIMEOUT,
        **options: Any,
    ) -> None:
        self._env_id = env_id
        self._timeout = step_timeout
        self._reset_timeout = reset_timeout
        self._finish: Callable[[], Outcome]
        self._needs_reset = True
        self._watched = False  # whether an event loop takes the steps
        self._ended: Outcome | None = None  # of an episode that ended during the reset
        self._unreported_reward = 0.0
        self._lost: str | None = None
        self._last: Any = None
        self.client = RewarderClient(where, **options)
        self.client.connect()
        with on_error(self.client.close):
            session = self.client.session
            if SPACES in session.about and env_id not in (None, session.env_id):
                self.client.reset(env_id, timeout=reset_timeout)  # describes its spaces
            self._described = session.about.get(SPACES)
            found = spaces_of(self._described)
            self.episode = found.episode if found else {}
            if observation_space is None or action_space is None:
                if found is None:
                    raise TypeError(
                        f"{self.client.url}: the server does not describe its spaces: pass "
                        f"observation_space= and action_space=, or like="
                    )
                observation_space = found[0] if observation_space is None else observation_space
                action_space = found[1] if action_space is None else action_space
            self.client.wants_arrays = True
            self._fit = fitting(observation_space, "the observation", within=False)
            self._fit_action = fitting(action_space, "the action", within=True)
            self._numbers = range(0)  # actions that are sent as they are
            if type(action_space).__module__ == "gymnasium.spaces.discrete":
                self._numbers = range(action_space.start, action_space.start + action_space.n)
        self.observation_space, self.action_space = observation_space, action_space

    @property
    def places(self) -> int:
        return 1  # a rewarder has one active client

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        self._finish = partial(self._reset, seed, options)

    def watch(self, wanted: bool) -> int:
        self._watched = False
        if wanted and (self._needs_reset or self._ended is not None):
            return -1
        file = self.client.watch(wanted)
        self._watched = wanted and file != -1
        return file

    def encode_step(self, action: Any) -> Any:
        if self._needs_reset:
            raise LocalProtocolError(f"{self.client.url}: no episode is running, call reset()")
        if type(action) is int and action in self._numbers:
            return action
        return plain(self._fit_action(action))

    def send_step(self, encoded: Any) -> None:
        self._finish = self._step
        if self._ended is None:
            try:
                self.client.act([(ACTION, encoded)])
            except _LOST as error:  # `finish` reports it
                self._lost = str(error)
                if self._watched:  # its file may be closed: there is nothing to watch
                    raise WouldWait(self._lost) from error

    def step(self, action: Any) -> Outcome:
        if type(action) is not int or self._needs_reset or action not in self._numbers:
            action = self.encode_step(action)
        if self._ended is not None or self._unreported_reward:
            self.send_step(action)
            return self._step()
        try:
            found = self.client.exchange(((ACTION, action),), self._timeout)
        except _LOST as error:
            self._lost = str(error)
            found = None
        if found is None:
            return self._step()
        return self._observation(found[1]), found[0], False, False, {}

    def finish(self) -> Outcome:
        """Reset, or wait for the step's observation and reward."""
        if self._watched and self._lost is None and not self.client.has_arrived():
            raise WouldWait(self.client.url)
        return self._finish()

    def _step(self) -> Outcome:
        outcome, self._ended = self._ended, None
        if outcome is None:
            try:
                if self._lost is not None:
                    raise ConnectionClosed(self._lost)
                outcome = self._gathered(whole=True)
            except _LOST as error:
                if isinstance(error, PeerError) and not self.client.ended:
                    raise  # an action was rejected
                self._lost = str(error)
                logger.warning("%s: lost during an episode: %s", self.client.url, error)
                outcome = self._last, 0.0, False, True, {"lost": self._lost}
        self._needs_reset = outcome[2] or outcome[3]
        return outcome

    def _reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Outcome:
        client = self.client
        lost = client.ended
        if lost:
            client.close()
            client.connect()
        self._lost, self._needs_reset, self._ended, self._unreported_reward = None, True, None, 0.0
        client.reset(self._env_id, seed, options=options, timeout=self._reset_timeout)
        if lost and client.session.about.get(SPACES) != self._described:
            raise RemoteProtocolError(
                f"{client.url}: the server's spaces have changed: make the environment again"
            )
        outcome = self._gathered(whole=False)
        self._needs_reset = False
        if outcome[2] or outcome[3]:  # already over: the first step returns the end
            self._ended = outcome
        else:
            self._unreported_reward = outcome[1]
        return outcome[0], outcome[4]

    def _gathered(self, *, whole: bool) -> Outcome:
        """Merge steps until there is an observation and, if `whole`, a reward."""
        client, left = self.client, self._timeout
        until = monotonic() + left
        reward, self._unreported_reward = self._unreported_reward, 0.0
        seen, count = None, 0
        info: dict[str, Any] = {}
        while seen is None or (whole and not count):
            if left <= 0:
                self._unreported_reward = reward
                what = f"no {'observation' if seen is None else 'reward'} within step_timeout="
                raise DeadlineExceeded(f"{client.url}: {what}{self._timeout:g} s")
            step = client.step(left)
            reward, count = reward + step.reward, count + step.count
            info |= step.info
            if step.observation is not None:
                seen = step.observation
            if step.done:
                return self._observation(seen), reward, *pop_flags(info, step.cut), info
            if seen is None or (whole and not count):
                left = until - monotonic()
        return self._observation(seen), reward, False, False, info

    def _observation(self, seen: Any) -> Any:
        if seen is None:  # the episode ended without one
            return self._last
        try:
            self._last = observation = self._fit(seen)
        except EncodeError as error:
            raise DecodeError(
                f"{self.client.url}: the observation is not in {self.observation_space}: {error}"
            ) from None
        return observation

    def close(self) -> None:
        self.client.close()


def pop_flags(info: dict[str, Any], cut: bool) -> tuple[bool, bool]:
    """Remove the flags of an ended episode from its info; return terminated and truncated."""
    terminated, truncated = (bool(info.pop(name, False)) for name in (TERMINATED, TRUNCATED))
    truncated = truncated or cut
    return terminated or not truncated, truncated

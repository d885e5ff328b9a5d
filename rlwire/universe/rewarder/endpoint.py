"""`RewarderEndpoint`: the environment behind a rewarder as an `Endpoint`, in real time.

Needs Gymnasium (the extra ``gym``). Not here: connections and messages
(`rlwire.universe.rewarder.client`), how values are written
(`rlwire.universe.rewarder.environments`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any

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
    on_error,
)
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.universe.rewarder.environments import ACTION, SPACES

logger = logging.getLogger(__name__)

_LOST = (ConnectionClosed, OSError)


class RewarderEndpoint(Endpoint):
    """The environment behind a rewarder, which an `EnvironmentRewarder` or its like serves.

    The environment does not wait, unless its server is in lockstep: a step says what to do from now
    on, and gives the newest observation and the sum of the rewards that have come since the last
    step; at least one of each. A seed goes to the server, and runs differ nevertheless. ``info`` is
    what came with the rewards; a reset's is the environment's own.

    Args:
        where: as `RewarderClient` takes it.
        observation_space: without it, and the next one, a server of ours tells them.
        action_space: an action is the event ``["Action", value]``.
        env_id: which environment resets ask for; None for the one that runs.
        timeout: seconds that a step waits for the server.
        reset_timeout: seconds that a reset waits; None for `ClientSettings.reset_timeout`.
        options: the `RewarderClient`'s.

    Raises:
        TypeError: the spaces are not given, and the server does not tell them.
        EncodeError: JSON cannot carry a space.
        What `RewarderClient.connect` raises.
    """

    def __init__(
        self,
        where: str,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        env_id: str | None = None,
        timeout: float = 10.0,
        reset_timeout: float | None = None,
        **options: Any,
    ) -> None:
        self._env_id = env_id
        self._timeout = timeout
        self._reset_timeout = reset_timeout
        self._resets: int | None = None  # the seed of the reset that was begun
        self._begun = ""
        self._over = True
        self._early: Outcome | None = None  # the end that came before the first step
        self._owed = 0.0
        self._lost: str | None = None
        self._last: Any = None
        self.client = RewarderClient(where, **options)
        self.client.connect()
        with on_error(self.client.close):
            self._told = self.client.about.get(SPACES)
            if observation_space is None or action_space is None:
                told = self._told_spaces()
                observation_space = told[0] if observation_space is None else observation_space
                action_space = told[1] if action_space is None else action_space
            self._fit = fitting(observation_space, "the observation", within=False)
            self._fit_action = fitting(action_space, "the action", within=True)
        self.observation_space, self.action_space = observation_space, action_space

    def _told_spaces(self) -> tuple[Any, Any]:
        told = spaces_of(self._told)
        if told is None:
            raise TypeError(
                f"{self.client.url} does not tell its spaces: give observation_space= and "
                f"action_space=, or like="
            )
        return told

    @property
    def places(self) -> int:
        """One: a rewarder has one active client."""
        return 1

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begin an episode; the options are not used. All is said and waited for by `finish`."""
        self._begun, self._resets = "reset", seed

    def begin_step(self, action: Any) -> None:
        """Say what to do from now on."""
        if self._over:
            raise LocalProtocolError(f"{self.client.url}: no episode goes on, call reset()")
        value = plain(self._fit_action(action))
        self._begun = "step"
        if self._early is None:
            try:
                self.client.act([(ACTION, value)])
            except (*_LOST, PeerError) as error:  # which says why the server closed it
                self._lost = str(error)

    def finish(self) -> Outcome:
        """Wait for what was begun."""
        if self._begun == "reset":
            return self._reset()
        early, self._early = self._early, None
        if early is None:
            try:
                if self._lost is not None:
                    raise ConnectionClosed(self._lost)
                early = self._gathered(whole=True)
            except (*_LOST, PeerError) as error:
                if isinstance(error, PeerError) and not self.client.ended:
                    raise  # an action was refused
                self._lost = str(error)
                logger.warning("%s: lost within an episode: %s", self.client.url, error)
                early = self._last, 0.0, False, True, {"lost": self._lost}
        self._over = early[2] or early[3]
        return early

    def _reset(self) -> Outcome:
        client = self.client
        if client.ended:
            client.close()
            client.connect()
            if client.about.get(SPACES) != self._told:
                raise RemoteProtocolError(
                    f"{client.url}: the environment has other spaces than before; make it anew"
                )
        self._lost, self._over, self._early, self._owed = None, True, None, 0.0
        client.reset(self._env_id, self._resets, timeout=self._reset_timeout)
        outcome = self._gathered(whole=False)
        self._over = False
        if outcome[2] or outcome[3]:  # over before the first step, which is to tell
            self._early = outcome
        else:
            self._owed = outcome[1]
        return outcome[0], outcome[4]

    def _gathered(self, *, whole: bool) -> Outcome:
        """Return what comes until there is an observation and, if `whole`, a reward as well."""
        client, until = self.client, monotonic() + self._timeout
        reward, self._owed = self._owed, 0.0
        seen, count = None, 0
        info: dict[str, Any] = {}
        while seen is None or (whole and not count):
            left = until - monotonic()
            if left <= 0:
                self._owed = reward
                raise DeadlineExceeded(f"{client.url}: nothing came within {self._timeout:g} s")
            step = client.step(left)
            reward, count = reward + step.reward, count + step.count
            info |= step.info
            if step.observation is not None:
                seen = step.observation
            if step.done:
                cut = bool(info.pop("rlwire.truncated", False)) or step.cut
                return self._observation(seen), reward, not cut, cut, info
        return self._observation(seen), reward, False, False, info

    def _observation(self, seen: Any) -> Any:
        if seen is None:  # an episode's end alone
            return self._last
        try:
            self._last = observation = self._fit(seen)
        except EncodeError as error:
            raise DecodeError(
                f"{self.client.url}: the observation is not in {self.observation_space}: {error}"
            ) from None
        return observation

    def close(self) -> None:
        """Close the connection; again does nothing."""
        self.client.close()

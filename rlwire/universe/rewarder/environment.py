"""An environment over a rewarder, in real time: `RewarderEndpoint` and `EnvironmentRewarder`.

An agent's action is a message of one event, ``["Action", value]``: a number for a Discrete space,
a text for a Text, an object for a Dict, a list for others. The last one stays in force until the
next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any

from rlwire.codecs.rewarder import AgentAction, EnvDescribe, EnvReward, encode
from rlwire.codecs.rewarder.infos import mark_arrays
from rlwire.environments.driver import Driven, drive
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.spaces import describe_both, spaces_of
from rlwire.environments.trees import tree_of
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
from rlwire.serving.serving import Running
from rlwire.sessions.rewarder.client import RESET_TIMEOUT
from rlwire.transports.address import AddressLike
from rlwire.transports.pacing import Pacer
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.universe.rewarder.server import PORT, EnvResetRequest, RewarderServer

logger = logging.getLogger(__name__)

ACTION = "Action"
"""The name of the event that is an action; no part of the document, which has none for it."""

SPACES = "rlwire.spaces"
"""The field of ``v0.env.describe``'s body that has the spaces; no part of the document either."""

_TOLD = 1 << 19  # bytes of them at most: each episode sends them, and slow clients have 1 MiB
_LOOK = 0.25  # seconds between two looks at whether to stop, where nothing else happens
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
        step_timeout: seconds that a step waits for the server.
        reset_timeout: seconds that a reset waits.
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
        step_timeout: float = 10.0,
        reset_timeout: float = RESET_TIMEOUT,
        **options: Any,
    ) -> None:
        self._env_id = env_id
        self._timeout = step_timeout
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


class EnvironmentRewarder(RewarderServer):
    """A `RewarderServer` that plays an environment, as long as somebody looks on.

    Each step pushes the observation and then the reward, with what the environment says in its
    info; ``done`` is its terminated or truncated, and info's ``rlwire.truncated`` tells which. Then
    it begins the next episode by itself.

    Args:
        environment: an environment of Gymnasium or dm_env, which is not closed; a class or function
            that makes one; or a name, such as ``"gym:CartPole-v1"`` or
            ``"my_module:MyEnvironment"``.
        address: where to listen.
        rate: steps a second.
        lockstep: to make one step for each action instead, and no step without.
        seed: for the first episode, if no client asks for another.
        env_id: what it is called; by default the environment's own name. A reset that asks for
            another one is refused.
        options: those of `RewarderServer`, except `on_reset` and `on_action`.

    Raises:
        TypeError: it is no environment, or many in one.
        ValueError: an argument makes no sense; EncodeError if it is a space that JSON cannot carry.
        ImportError, AttributeError: there is no such environment; MissingExtra if it is Gymnasium
            that is not there.
    """

    def __init__(
        self,
        environment: Any,
        address: AddressLike = f"127.0.0.1:{PORT}",
        *,
        rate: float = 60,
        lockstep: bool = False,
        seed: int | None = None,
        env_id: str | None = None,
        **options: Any,
    ) -> None:
        for name in ("on_reset", "on_action"):
            if name in options:
                raise TypeError(f"{name} is the environment's; use RewarderServer")
        self._driven = drive(environment)
        with on_error(self._close_environment):
            driven = self._driven.one("the rewarder")
            cannot = "which the rewarder's JSON cannot carry"
            self._observation_tree = tree_of(driven.observation_space, "the observation", cannot)
            self._action_tree = tree_of(driven.action_space, "the action", cannot)
            self._fit_action = fitting(driven.action_space, "the action", within=True)
            options["about"] = {**_told(driven), **(options.get("about") or {})}
            super().__init__(
                env_id or driven.name, address, rate=rate, env_state="loading", **options
            )
        self._lockstep = lockstep
        self._seed = seed
        self._ending = threading.Event()
        self._player: threading.Thread | None = None
        self._action: Any = None
        self._has_dropped = False

    def _run(self) -> Running:
        self._ending.clear()
        # In the thread that will step it, since some of what draws wants one thread for all.
        begun: Future[None] = Future()
        self._player = threading.Thread(
            target=self._play, args=(begun,), name="rlwire environment", daemon=True
        )
        self._player.start()
        with on_error(self._end_player):
            begun.result()
            return self._listen()

    def _listen(self) -> Running:
        """Listen for clients."""
        return super()._run()

    def _after_stop(self) -> None:
        self._ending.set()
        super()._after_stop()
        self._end_player()

    def _end_player(self) -> None:
        self._ending.set()
        player, self._player = self._player, None
        if player is not None and player is not threading.current_thread():
            player.join(5.0)
            if player.is_alive():
                logger.warning("the environment did not end a step within 5 s, and is left behind")
            else:
                self._close_environment()

    def _close_environment(self) -> None:
        if self._driven.owned:
            self._driven.close()

    def _play(self, begun: Future[None]) -> None:
        try:
            self._begin(None)
            begun.set_result(None)
            pacer = Pacer(self._runtime.status.fps or 60.0, sleep=self._ending.wait)
            while not self._ending.is_set():
                if not self._watched():
                    self._ending.wait(_LOOK if self._lockstep else 1.0 / pacer.rate)
                    pacer.restart()
                    continue
                if self._lockstep:
                    if not self.wait_for_input(_LOOK):
                        continue
                else:
                    self.count("frames_missed", pacer.wait())
                    if self._ending.is_set():
                        return
                request = self.next_reset(0)
                if request is not None:
                    fps = self._answer(request)
                    if fps is not None and not self._lockstep:
                        pacer = Pacer(fps, sleep=self._ending.wait)
                    continue
                for action in self.actions():
                    if self._take_action(action) and self._lockstep:
                        self._step()
                if not self._lockstep:
                    self._step()
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error)
                return
            if self._ending.is_set():
                return
            logger.exception("the environment failed, the server stops")
            self.stop_soon()

    def _answer(self, request: EnvResetRequest) -> float | None:
        """Answer a reset; return the new number of frames a second, if it says one."""
        env_id = self._runtime.status.env_id
        if request.env_id is not None and request.env_id != env_id:
            self.refuse(request, f"No such environment: {request.env_id}")
            return None
        try:
            self._begin(request)
        except Exception as error:  # such as Gymnasium's own for a seed below 0
            self._connections.log.exception("%s: a reset failed", request.peer)
            self.refuse(request, f"{type(error).__name__}: {error}")
            return None
        return request.fps

    def _begin(self, request: EnvResetRequest | None) -> None:
        seed = self._seed if request is None else request.seed
        observation, info = self._driven.reset(seed)
        self._seed = None
        self._action = None
        fps = None if request is None else request.fps
        try:
            info = mark_arrays(info)
            encode(EnvReward(0.0, False, dict(info)))
        except EncodeError as error:
            info = self._sendable(info, error)
        self.begin_episode(request, fps=fps, info=info)
        self._show(observation)

    def _take_action(self, message: AgentAction) -> bool:
        """Take an agent's action; returns whether it is one."""
        for event in reversed(message.action):
            if len(event) == 2 and event[0] == ACTION:
                try:
                    self._action = self._fit_action(event[1])
                except EncodeError as error:
                    self.refuse(message, f"no action: {error}")
                    return False
                return True
        self.refuse(message, f'an action is an event ["{ACTION}", value]')
        return False

    def _watched(self) -> bool:
        """Whether anybody is there to play for."""
        return bool(self.clients)

    def _chosen(self) -> Any:
        """Return the action of a step; None for the one that does nothing."""
        return self._action

    def _show(self, observation: Any) -> None:
        """Show what the environment has come to."""
        tree = self._observation_tree
        self.observation(plain(tree.build(tree.parts(observation))))

    def _step(self) -> None:
        action = self._chosen()
        if action is None:
            action = self._action_tree.nothing()
        observation, reward, terminated, truncated, info = self._driven.step(action)
        self._show(observation)
        if truncated:
            info = {**info, "rlwire.truncated": True}
        done = bool(terminated or truncated)
        reward = float(reward or 0.0)
        try:
            self.reward(reward, done, mark_arrays(info))
        except EncodeError as error:
            self.reward(reward, done, self._sendable(info, error))
        if done:
            self._begin(None)

    def _sendable(self, info: Mapping[str, Any], error: EncodeError) -> Mapping[str, Any]:
        """Return an info without what JSON cannot carry, which a log names once."""
        self.count("infos_dropped")
        if not self._has_dropped:
            self._has_dropped = True
            logger.warning("not all of an info of %s can be sent: %s", self._driven.name, error)
        return mark_arrays(dict(filter(_can_be_sent, info.items())))


def _told(driven: Driven) -> dict[str, Any]:
    """Return what tells a client of ours the spaces."""
    spaces = describe_both(driven.observation_space, driven.action_space)
    if spaces is None:
        return {}
    told = {SPACES: spaces}
    size = len(encode(EnvDescribe(None, None, about=told)))
    if size > _TOLD:
        raise EncodeError(
            f"the description of the spaces has {size} bytes, and the rewarder sends at most "
            f"{_TOLD} with each episode; give the largest Box the same bounds for all elements, or "
            f"serve over dm_env_rpc: observation space {driven.observation_space}, action space "
            f"{driven.action_space}"
        )
    return told


def _can_be_sent(item: tuple[Any, Any]) -> bool:
    try:
        encode(EnvReward(0.0, False, dict(mark_arrays(dict([item])))))
    except EncodeError:
        return False
    return True

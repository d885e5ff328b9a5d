"""`RewarderEndpoint` and `EnvironmentRewarder`: an environment over a rewarder, in real time.

An agent's action is one event, ``["Action", value]``: JSON's number for Discrete, string for Text,
object for Dict, array for other spaces. It is repeated until the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
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
from rlwire.transports.threads import Worker
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.universe.rewarder.server import PORT, EnvResetRequest, RewarderServer

logger = logging.getLogger(__name__)

ACTION = "Action"
"""rlwire's name of the event with an action; Universe's document defines none."""

SPACES = "rlwire.spaces"
"""rlwire's field of ``v0.env.describe``'s body that describes the spaces."""

_MAX_SPACES = 1 << 19  # bytes; sent for each episode, while `backlog` is 1 MiB
_WAKE = 0.25  # seconds between two checks for a stop while no input arrives
_LOST = (ConnectionClosed, OSError)


class RewarderEndpoint(Endpoint):
    """Connects to the environment of a rewarder, for example of an `EnvironmentRewarder`.

    The environment runs in real time, unless its server is in lockstep. A step sends the action,
    waits for an observation and a reward, and returns the newest observation and the sum of the
    rewards since the last step. ``info`` is the rewards'; after a reset it is the environment's.

    Args:
        where: the address, as for `RewarderClient`.
        observation_space: by default the space that an rlwire server describes.
        action_space: by default the space that an rlwire server describes.
        env_id: the environment that resets request; None for the current one.
        step_timeout: seconds that a step waits for the server.
        reset_timeout: seconds that a reset waits for its reply.
        options: of the `RewarderClient`.

    Raises:
        TypeError: a space is missing, and the server does not describe it.
        EncodeError: JSON cannot encode values of a space.
        Others: as `RewarderClient.connect`.
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
        self._seed: int | None = None  # of the pending reset
        self._begun = ""
        self._over = True
        self._early: Outcome | None = None  # of an episode that ended during the reset
        self._owed = 0.0
        self._lost: str | None = None
        self._last: Any = None
        self.client = RewarderClient(where, **options)
        self.client.connect()
        with on_error(self.client.close):
            self._described = self.client.session.about.get(SPACES)
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
            self._fit = fitting(observation_space, "the observation", within=False)
            self._fit_action = fitting(action_space, "the action", within=True)
        self.observation_space, self.action_space = observation_space, action_space

    @property
    def places(self) -> int:
        """One: a rewarder has one active client."""
        return 1

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Store the seed for `finish`; options are ignored."""
        self._begun, self._seed = "reset", seed

    def begin_step(self, action: Any) -> None:
        """Send the action."""
        if self._over:
            raise LocalProtocolError(f"{self.client.url}: no episode is running, call reset()")
        value = plain(self._fit_action(action))
        self._begun = "step"
        if self._early is None:
            try:
                self.client.act([(ACTION, value)])
            except (*_LOST, PeerError) as error:  # `finish` reports it
                self._lost = str(error)

    def finish(self) -> Outcome:
        """Reset, or wait for the step's observation and reward."""
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
                    raise  # an action was rejected
                self._lost = str(error)
                logger.warning("%s: lost during an episode: %s", self.client.url, error)
                early = self._last, 0.0, False, True, {"lost": self._lost}
        self._over = early[2] or early[3]
        return early

    def _reset(self) -> Outcome:
        client = self.client
        if client.ended:
            client.close()
            client.connect()
            if client.session.about.get(SPACES) != self._described:
                raise RemoteProtocolError(
                    f"{client.url}: the server's spaces have changed: make the environment again"
                )
        self._lost, self._over, self._early, self._owed = None, True, None, 0.0
        client.reset(self._env_id, self._seed, timeout=self._reset_timeout)
        outcome = self._gathered(whole=False)
        self._over = False
        if outcome[2] or outcome[3]:  # already over: the first step returns the end
            self._early = outcome
        else:
            self._owed = outcome[1]
        return outcome[0], outcome[4]

    def _gathered(self, *, whole: bool) -> Outcome:
        """Merge steps until there is an observation and, if `whole`, a reward."""
        client, until = self.client, monotonic() + self._timeout
        reward, self._owed = self._owed, 0.0
        seen, count = None, 0
        info: dict[str, Any] = {}
        while seen is None or (whole and not count):
            left = until - monotonic()
            if left <= 0:
                self._owed = reward
                what = f"no {'observation' if seen is None else 'reward'} within step_timeout="
                raise DeadlineExceeded(f"{client.url}: {what}{self._timeout:g} s")
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
        """Close the connection; a second call does nothing."""
        self.client.close()


class EnvironmentRewarder(RewarderServer):
    """A `RewarderServer` that steps an environment while a client is connected.

    Each step pushes the observation, then the reward with the info. ``done`` is terminated or
    truncated; ``info["rlwire.truncated"]`` is set if truncated. Then the next episode starts.

    Args:
        environment: an environment of Gymnasium or dm_env, which is not closed; a class or function
            that makes one; or a name, such as ``"gym:CartPole-v1"`` or
            ``"my_module:MyEnvironment"``.
        address: the listening address.
        rate: steps per second.
        lockstep: whether to step once per action instead.
        seed: of the first episode, unless a client sends one.
        env_id: by default the environment's name. Resets that request another one are rejected.
        options: of `RewarderServer`, except `on_reset` and `on_action`.

    Raises:
        TypeError: not an environment, or a vector of them.
        ValueError: an argument is invalid; EncodeError if JSON cannot encode values of a space.
        ImportError, AttributeError: there is no environment of that name.
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
                raise TypeError(f"EnvironmentRewarder has no option {name}: use RewarderServer")
        self._driven = drive(environment)
        with on_error(self._close_environment):
            driven = self._driven.one("the rewarder")
            cannot = "which the rewarder's JSON cannot carry"
            self._observation_tree = tree_of(driven.observation_space, "the observation", cannot)
            self._action_tree = tree_of(driven.action_space, "the action", cannot)
            self._fit_action = fitting(driven.action_space, "the action", within=True)
            options["about"] = {**_description_of(driven), **(options.get("about") or {})}
            super().__init__(
                env_id or driven.name, address, rate=rate, env_state="loading", **options
            )
        self._lockstep = lockstep
        self._seed = seed
        self._player: Worker | None = None
        self._action: Any = None
        self._has_dropped = False

    def _run(self) -> Running:
        # Reset in the thread that steps: some renderers need a single thread.
        begun: Future[None] = Future()
        self._player = Worker(lambda player: self._play(player, begun), "rlwire environment")
        self._player.start()
        with on_error(self._end_player):
            while not wait([begun], _WAKE).done:  # it may wait for other agents without end
                if self._stopping is not None and self._stopping.signalled:
                    raise KeyboardInterrupt
            begun.result()
            return self._listen()

    def _listen(self) -> Running:
        return super()._run()

    def _after_stop(self) -> None:
        super()._after_stop()
        self._end_player()

    def _end_player(self) -> None:
        player, self._player = self._player, None
        if player is not None and player.stop(5.0):
            self._close_environment()
        elif player is not None:
            logger.warning("%s: a step did not end within 5 s: not closed", self._driven.name)

    def _close_environment(self) -> None:
        if self._driven.owned:
            self._driven.close()

    def _play(self, player: Worker, begun: Future[None]) -> None:
        try:
            self._begin(None)
            begun.set_result(None)
            pacer = Pacer(self._runtime.status.fps or 60.0, sleep=player.sleep)
            while not player.stopping:
                if not self._watched():
                    player.sleep(_WAKE if self._lockstep else 1.0 / pacer.rate)
                    pacer.restart()
                    continue
                if self._lockstep:
                    if not self.wait_for_input(_WAKE):  # at once while the server stops
                        if self._running is None:
                            player.sleep(_WAKE)
                        continue
                else:
                    self.count("frames_missed", pacer.wait())
                    if player.stopping:
                        return
                request = self.next_reset(0)
                if request is not None:
                    fps = self._answer(request)
                    if fps is not None:
                        pacer = Pacer(fps, sleep=player.sleep)
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
            if not player.stopping:
                logger.exception("%s: the environment failed: the server stops", self._driven.name)
                self.stop_soon()

    def _answer(self, request: EnvResetRequest) -> float | None:
        """Reply to a reset; return its frame rate, if it has one."""
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
        """Store an agent's action; return whether it is valid."""
        for event in reversed(message.action):
            if len(event) == 2 and event[0] == ACTION:
                try:
                    self._action = self._fit_action(event[1])
                except EncodeError as error:
                    self.refuse(message, f"invalid action: {error}")
                    return False
                return True
        self.refuse(message, f'invalid action: expected an event ["{ACTION}", value]')
        return False

    def _watched(self) -> bool:
        """Return whether a client is connected."""
        return bool(self.clients)

    def _chosen(self) -> Any:
        """Return the next step's action; None for a no-op."""
        return self._action

    def _show(self, observation: Any) -> None:
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
        """Return an info without entries that JSON cannot encode; log the first error."""
        self.count("infos_dropped")
        if not self._has_dropped:
            self._has_dropped = True
            logger.warning("%s: entries of infos are not sent: %s", self._driven.name, error)
        return mark_arrays(dict(filter(_can_be_sent, info.items())))


def _description_of(driven: Driven) -> dict[str, Any]:
    """Return the description of the spaces, for `RewarderEndpoint`."""
    spaces = describe_both(driven.observation_space, driven.action_space, driven.environment)
    if spaces is None:
        return {}
    described = {SPACES: spaces}
    size = len(encode(EnvDescribe(None, None, extra_body=described)))
    if size > _MAX_SPACES:
        raise EncodeError(
            f"the description of the spaces has {size} bytes, limit is {_MAX_SPACES}; give all "
            f"elements of a Box the same bounds, or serve over dm_env_rpc: observation space "
            f"{driven.observation_space}, action space {driven.action_space}"
        )
    return described


def _can_be_sent(item: tuple[Any, Any]) -> bool:
    try:
        encode(EnvReward(0.0, False, dict(mark_arrays(dict([item])))))
    except EncodeError:
        return False
    return True

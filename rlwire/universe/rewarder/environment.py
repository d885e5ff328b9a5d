"""`RewarderEndpoint` and `EnvironmentRewarder`: an environment over a rewarder, in real time.

An agent's action is one event, ``["Action", value]``: JSON's number for Discrete, string for Text,
object for Dict, array for other spaces. It is repeated until the next one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from queue import SimpleQueue
from time import monotonic
from typing import Any

from rlwire.codecs.rewarder import AgentAction, EnvDescribe, EnvReward, encode
from rlwire.codecs.rewarder.infos import SPACES, mark_arrays
from rlwire.environments.driver import Driven, drive, maker
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.pacing import Pacer
from rlwire.environments.spaces import describe_both, spaces_of
from rlwire.environments.trees import tree_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    describe,
    on_error,
)
from rlwire.serving.serving import Running
from rlwire.serving.threads import Worker
from rlwire.sessions.rewarder.client import RESET_TIMEOUT
from rlwire.sessions.rewarder.rules import Push
from rlwire.transports.address import AddressLike
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.universe.rewarder.server import PORT, EnvResetRequest, RewarderServer, number

logger = logging.getLogger(__name__)

ACTION = "Action"
"""rlwire's name of the event with an action; Universe's document defines none."""

_MAX_SPACES = 1 << 19  # bytes; sent for each episode, while `backlog` is 1 MiB
_WAKE = 0.25  # seconds between two checks for a stop while no input arrives
_LOST = (ConnectionClosed, OSError)
_UNSENDABLE = (EncodeError, LimitExceeded, RecursionError, AttributeError, TypeError)

TERMINATED, TRUNCATED = "rlwire.terminated", "rlwire.truncated"
"""rlwire's entries of a final reward's info, of which the first is set beside the second only."""
ERROR = "rlwire.error"
"""rlwire's entry of a final reward's info with the error of a step."""


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
        self._asked: tuple[int | None, Mapping[str, Any] | None] = None, None  # of the reset
        self._begun = ""
        self._over = True
        self._early: Outcome | None = None  # of an episode that ended during the reset
        self._owed = 0.0
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
            self._fit = fitting(observation_space, "the observation", within=False)
            self._fit_action = fitting(action_space, "the action", within=True)
        self.observation_space, self.action_space = observation_space, action_space

    @property
    def places(self) -> int:
        """One: a rewarder has one active client."""
        return 1

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Store the arguments for `finish`."""
        self._begun, self._asked = "reset", (seed, options)

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
        lost = client.ended
        if lost:
            client.close()
            client.connect()
        self._lost, self._over, self._early, self._owed = None, True, None, 0.0
        seed, options = self._asked
        client.reset(self._env_id, seed, options=options, timeout=self._reset_timeout)
        if lost and client.session.about.get(SPACES) != self._described:
            raise RemoteProtocolError(
                f"{client.url}: the server's spaces have changed: make the environment again"
            )
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
                return self._observation(seen), reward, *pop_flags(info, step.cut), info
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
    truncated; ``info["rlwire.truncated"]`` is set if truncated, and ``info["rlwire.terminated"]``
    if both. Then the next episode starts. If a step fails, its episode ends as truncated, with
    ``info["rlwire.error"]``. The environment is made, stepped and closed in one thread.

    Args:
        environment: an environment of Gymnasium or dm_env, which is not closed; a class or function
            that makes one; or a name, such as ``"gym:CartPole-v1"`` or
            ``"my_module:MyEnvironment"``. A dictionary has several by env_id, or a name of one: a
            reset selects, which makes its environment and closes the last.
        address: the listening address.
        rate: steps per second.
        lockstep: whether to step once per action instead.
        seed: of the first episode, unless a client sends one.
        env_id: by default the environment's name, or the dictionary's first. Resets that request
            an unknown one are rejected.
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
        made, make = maker(environment)
        self._things: Mapping[str, Any] = made if isinstance(made, Mapping) else {}
        if self._things:
            env_id = env_id or next(iter(self._things))
            if env_id not in self._things:
                raise ValueError(f"env_id={env_id!r} is none of {', '.join(self._things)}")
            made, make = self._things[env_id], None
        self._thing = make or made
        self._more = options.pop("about", None) or {}
        self._changes: dict[str, Any] = {}  # to describe with the next episode
        self._lockstep = lockstep
        self._seed = seed
        self._action: Any = None
        self._down = ""  # why no episode is running
        self._has_dropped = False
        self._make()
        with on_error(self._end_player):
            options["about"] = {**self._use(self._driven), **self._more}
            env_id = env_id or self._driven.name
            super().__init__(env_id, address, rate=rate, env_state="loading", **options)

    def _make(self) -> None:
        """Make the environment in the thread that will step and close it, as OpenGL demands."""
        made: Future[None] = Future()
        self._begins: SimpleQueue[Future[None] | None] = SimpleQueue()
        player = Worker(lambda player: self._live(player, made), "rlwire environment")
        self._player: Worker | None = player.start()
        made.result()

    def _use(self, driven: Driven) -> dict[str, Any]:
        """Prepare for an environment's spaces; return their description."""
        driven.one("the rewarder")
        cannot = "which the rewarder's JSON cannot carry"
        tree_of(driven.observation_space, "the observation", cannot)
        self._fit_observation = fitting(driven.observation_space, "the observation", within=False)
        self._action_tree = tree_of(driven.action_space, "the action", cannot)
        self._fit_action = fitting(driven.action_space, "the action", within=True)
        return _description_of(driven)

    def _run(self) -> Running:
        if self._player is None:  # it was stopped
            self._make()
        begun: Future[None] = Future()
        self._begins.put(begun)
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
        self._begins.put(None)
        if player is not None and not player.stop(5.0):
            logger.warning("%s: a step did not end within 5 s: not closed", self._driven.name)

    def _live(self, player: Worker, made: Future[None]) -> None:
        with _reporting(made):
            self._driven = drive(self._thing)
            made.set_result(None)
            try:
                begun = self._begins.get()
                if begun is not None:
                    with _reporting(begun):
                        self._begin(None)
                        begun.set_result(None)
                        self._play(player)
            except BaseException as error:
                if not player.stopping:
                    logger.exception("%s: the server stops", self._driven.name)
                    self.stop_soon(error)
            finally:
                if self._driven.owned:
                    self._driven.close()

    def _play(self, player: Worker) -> None:
        pacer = Pacer(self._runtime.status.fps or 60.0, sleep=player.sleep)
        while not player.stopping:
            if not self._watched():
                player.sleep(_WAKE if self._lockstep else 1.0 / pacer.rate)
                pacer.restart()
                continue
            if self._lockstep or self._down:
                if not self.wait_for_input(_WAKE):  # at once while the server stops
                    if self._running is None:
                        player.sleep(_WAKE)
                    elif self._down:
                        self._begin_next()
                        pacer.restart()
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
            if not (self._lockstep or self._down):
                self._step()

    def _answer(self, request: EnvResetRequest) -> float | None:
        """Reply to a reset; return its frame rate, if it has one."""
        env_id, selected = self._runtime.status.env_id, request.env_id
        if selected not in (None, env_id, *self._things):
            self.refuse(request, f"No such environment: {selected}")
            return None
        self.actions()  # of the former episode
        try:
            if selected is not None and selected != self._changes.get("env_id", env_id):
                self._select(selected)
            self._begin(request)
        except BaseException as error:  # such as Gymnasium's own for a seed below 0
            self._connections.log.exception("%s: a reset failed", request.peer)
            self.refuse(request, describe(error))
            return None
        return request.fps

    def _select(self, env_id: str) -> None:
        """Make another environment; if that fails, the last one stays."""
        before, driven = self._driven, drive(self._things[env_id])
        with on_error(lambda: self._use(before)), on_error(driven.close if driven.owned else bool):
            about = self._use(driven)
        self._driven, self._thing = driven, self._things[env_id]
        self._changes = {"env_id": env_id, "about": {**about, **self._more}}
        if before.owned:
            before.close()

    def _begin_next(self) -> None:
        """Begin an episode without a request; if that fails, the player tries again later."""
        try:
            self._begin(None)
        except BaseException as error:
            self._down = describe(error)
            self._connections.log.exception("%s: the next reset failed", self._driven.name)

    def _begin(self, request: EnvResetRequest | None) -> None:
        seed, options, fps = self._seed, None, None
        if request is not None:
            seed, options, fps = request.seed, request.options, request.fps
        observation, info = self._driven.reset(seed, options)
        self._seed = None
        self._action = None
        shown = self._prepare(observation)
        try:
            info = self._checked(mark_arrays({} if info is None else info))
        except _UNSENDABLE as error:
            info = self._sendable(info, error)
        self.begin_episode(request, fps=fps, info=info, **self._changes)
        self._changes = {}
        self._show(shown)
        self._down = ""

    def _take_action(self, message: AgentAction) -> bool:
        """Store an agent's action; return whether it is valid."""
        if self._down:
            self.refuse(message, f"no episode is running: {self._down}")
            return False
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

    def _prepare(self, observation: Any) -> Any:
        """Return what `_show` pushes for an observation."""
        return plain(self._fit_observation(observation))

    def _show(self, prepared: Any) -> None:
        self.observation(prepared)

    def _step(self) -> None:
        try:
            action = self._chosen()
            if action is None:
                action = self._action_tree.default_value()
            observation, reward, terminated, truncated, info = self._driven.step(action)
            if reward is None or isinstance(reward, bool):  # None is dm_env's
                reward = float(reward or 0.0)
            reward = number(reward)
            self._show(self._prepare(observation))
            done = bool(terminated or truncated)
            flags = {}
            if truncated:
                flags = {TRUNCATED: True, TERMINATED: True} if terminated else {TRUNCATED: True}
            try:
                marked = mark_arrays({} if info is None else info)
                self.reward(reward, done, {**marked, **flags} if flags else marked)
            except _UNSENDABLE as error:
                self.reward(reward, done, {**self._sendable(info, error), **flags})
        except BaseException as error:
            self._connections.log.exception("%s: a step failed", self._driven.name)
            self.count("steps_failed")
            done = True
            self.reward(0.0, done, {TRUNCATED: True, ERROR: describe(error)})
        if done:
            self._begin_next()

    def _sendable(self, info: Any, error: BaseException) -> Mapping[str, Any]:
        """Return an info without entries that cannot be sent; log the first error."""
        self.count("infos_dropped")
        if not self._has_dropped:
            self._has_dropped = True
            logger.warning("%s: entries of infos are not sent: %s", self._driven.name, error)
        kept = {}
        for name, value in info.items() if isinstance(info, Mapping) else ():
            with contextlib.suppress(*_UNSENDABLE):
                self._checked(mark_arrays({name: value}))
                kept[name] = value
        with contextlib.suppress(*_UNSENDABLE):  # too large as a whole
            return self._checked(mark_arrays(kept))
        return {}

    def _checked(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an info that can be sent; otherwise raise one of `_UNSENDABLE`."""
        Push(EnvReward(0.0, False, dict(info), episode_id="0"), 0.0, self._runtime.limits)
        return info


def _description_of(driven: Driven) -> dict[str, Any]:
    """Return the description of the spaces, for `RewarderEndpoint`."""
    spaces = describe_both(driven.observation_space, driven.action_space, driven.environment)
    described = {SPACES: spaces}
    size = len(encode(EnvDescribe(None, None, extra_body=described)))
    if size > _MAX_SPACES:
        raise EncodeError(
            f"the description of the spaces has {size} bytes, limit is {_MAX_SPACES}; give all "
            f"elements of a Box the same bounds, or serve over dm_env_rpc: observation space "
            f"{driven.observation_space}, action space {driven.action_space}"
        )
    return described


def pop_flags(info: dict[str, Any], cut: bool) -> tuple[bool, bool]:
    """Remove the flags of an ended episode from its info; return terminated and truncated."""
    terminated, truncated = (bool(info.pop(name, False)) for name in (TERMINATED, TRUNCATED))
    truncated = truncated or cut
    return terminated or not truncated, truncated


@contextlib.contextmanager
def _reporting(result: Future[None]) -> Iterator[None]:
    """Set an error as the result, unless there is one; sys.exit() must not end the caller."""
    try:
        yield
    except BaseException as error:
        if result.done():
            raise
        if isinstance(error, SystemExit):
            error = RuntimeError(f"the environment called sys.exit({error.code!r})")
        result.set_exception(error)

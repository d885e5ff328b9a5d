"""`EnvironmentRewarder` serves an environment over a rewarder, in real time.

An agent's action is repeated until its next one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import numpy as np

from rlwire._options import given, with_options
from rlwire.codecs.casting import flag, real
from rlwire.codecs.rewarder import AgentAction, EnvDescribe, EnvReward, encode
from rlwire.codecs.rewarder.infos import ERROR, SPACES, TERMINATED, TRUNCATED, mark_arrays
from rlwire.environments.driver import Driven, drive, maker
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.pacing import Pacer
from rlwire.environments.spaces import describe_both
from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError, LimitExceeded, describe, on_error
from rlwire.serving.threads import Worker
from rlwire.sessions.rewarder.rules import Push
from rlwire.universe.options import EnvironmentRewarderOptions, PushOptions
from rlwire.universe.rewarder._loan import Loan
from rlwire.universe.rewarder.environment import ACTION
from rlwire.universe.rewarder.server import EnvResetRequest, RewarderServer

logger = logging.getLogger(__name__)

_MAX_SPACES = 1 << 19  # bytes; sent for each episode, while `backlog` is 1 MiB
_WAKE = 0.25  # seconds between two checks for a stop while no input arrives


class EnvironmentPlayer:
    """Makes, steps and closes an environment in one thread, as OpenGL demands."""

    server: RewarderServer  # receives the steps; set before `begin`
    pushes_observations = True  # each of them, as arrays

    def __init__(self, environment: Any, options: EnvironmentRewarderOptions) -> None:
        env_id = options.name
        made, make = maker(environment)
        self._environments: Mapping[str, Any] = made if isinstance(made, Mapping) else {}
        if self._environments:
            env_id = env_id or next(iter(self._environments))
            if env_id not in self._environments:
                raise ValueError(f"name={env_id!r} is none of {', '.join(self._environments)}")
            made, make = self._environments[env_id], None
        self._environment = make or made
        self._about = options.about or {}
        self._changes: dict[str, Any] = {}  # to describe with the next episode
        self.lockstep = options.lockstep
        self._seed = options.seed
        self._action: Any = None
        self._failure = ""  # why no episode is running
        self._has_dropped = False
        self._start_thread()
        with on_error(self.end):
            self._description = {**self._use(self.driven), **self._about}
        self.env_id = env_id or self.driven.name

    def served(self, options: PushOptions) -> dict[str, Any]:
        """Return the keywords of a `RewarderServer` of this environment."""
        own = {"env_state": "loading", "about": self._description}
        return {**given(options, PushOptions), **own}

    def _start_thread(self) -> None:
        made: Future[None] = Future()
        self._starts: SimpleQueue[Future[None] | None] = SimpleQueue()
        worker = Worker(lambda worker: self._run(worker, made), "rlwire environment")
        self._worker: Worker | None = worker.start()
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

    def begin(self, interrupted: Callable[[], bool]) -> None:
        """Begin the first episode, which is played until `end`; KeyboardInterrupt ends the wait."""
        if self._worker is None:  # it was stopped
            self._start_thread()
        begun: Future[None] = Future()
        self._starts.put(begun)
        while not wait([begun], _WAKE).done:  # it may wait for other agents without end
            if interrupted():
                raise KeyboardInterrupt
        begun.result()

    def end(self) -> None:
        worker, self._worker = self._worker, None
        self._starts.put(None)
        if worker is not None and not worker.stop(5.0):
            logger.warning("%s: a step did not end within 5 s: not closed", self.driven.name)

    def _run(self, worker: Worker, made: Future[None]) -> None:
        with _reporting(made):
            self.driven = drive(self._environment)
            made.set_result(None)
            try:
                begun = self._starts.get()
                if begun is not None:
                    with _reporting(begun):
                        self._begin(None)
                        begun.set_result(None)
                        self._play(worker)
            except BaseException as error:
                if not worker.stopping:
                    logger.exception("%s: the server stops", self.driven.name)
                    self.server.stop_soon(error)
            finally:
                if self.driven.owned:
                    self.driven.close()

    def _play(self, worker: Worker) -> None:
        server = self.server
        pacer = Pacer(server.status.fps or 60.0, sleep=worker.sleep)
        while not worker.stopping:
            if not self._has_audience():
                worker.sleep(_WAKE if self.lockstep else 1.0 / pacer.rate)
                pacer.restart()
                continue
            given: EnvResetRequest | AgentAction | None
            if self.lockstep or self._failure:
                given = server.next_input(_WAKE)  # at once while the server stops, or with a loan
                if given is None and (loan := server.loan) is not None:
                    self._play_borrowed(loan)
                    given = server.next_input(0)
                if given is None:
                    if not server.running:
                        worker.sleep(_WAKE)
                    elif self._failure:
                        self._begin_next()
                        pacer.restart()
                    continue
            else:
                server.count("frames_missed", pacer.wait())
                if worker.stopping:
                    return
                given = server.next_reset(0)
            if isinstance(given, EnvResetRequest):
                fps = self._answer(given)
                if fps is not None:
                    pacer = Pacer(fps, sleep=worker.sleep)
            elif given is not None:
                if self._set_action(given):
                    self._step()
                if self.lockstep:
                    server.borrow()
            else:
                for action in server.actions():
                    self._set_action(action)
                self._step()

    def _play_borrowed(self, loan: Loan) -> None:
        """Answer actions in few calls, until there is anything else to do."""
        pushed = loan if self.pushes_observations else None
        while True:
            given = loan.receive(_WAKE)
            if type(given) is tuple:
                number, name, value = given
                try:
                    fits = name == ACTION and not self._failure
                    self._action = self._fit_action(value) if fits else self._action
                except (TypeError, ValueError):
                    fits = False
                if not fits:  # `_set_action` refuses it
                    given = AgentAction([(name, value)], message_id=number)
            elif type(given) is not AgentAction:
                return
            loan.service.actions += 1
            if type(given) is tuple or self._set_action(given):
                self._step(pushed)

    def _answer(self, request: EnvResetRequest) -> float | None:
        """Reply to a reset; return its frame rate, if it has one."""
        env_id, selected = self.server.status.env_id, request.env_id
        if selected not in (None, env_id, *self._environments):
            self.server.refuse(request, f"No such environment: {selected}")
            return None
        self.server.actions()  # of the former episode
        try:
            if selected is not None and selected != self._changes.get("env_id", env_id):
                self._select(selected)
            self._begin(request)
        except BaseException as error:  # such as Gymnasium's own for a seed below 0
            self.server.log.exception("%s: a reset failed", request.peer)
            self.server.refuse(request, describe(error))
            return None
        return request.fps

    def _select(self, env_id: str) -> None:
        """Make another environment; if that fails, the last one stays."""
        before, driven = self.driven, drive(self._environments[env_id])
        with on_error(lambda: self._use(before)), on_error(driven.close if driven.owned else bool):
            about = self._use(driven)
        self.driven, self._environment = driven, self._environments[env_id]
        self._changes = {"env_id": env_id, "about": {**about, **self._about}}
        if before.owned:
            before.close()

    def _begin_next(self) -> None:
        """Begin an episode without a request; if that fails, the player tries again later."""
        try:
            self._begin(None)
        except BaseException as error:
            self._failure = describe(error)
            self.server.log.exception("%s: the next reset failed", self.driven.name)

    def _begin(self, request: EnvResetRequest | None) -> None:
        seed, options, fps = self._seed, None, None
        if request is not None:
            seed, options, fps = request.seed, request.options, request.fps
        observation, info = self.driven.reset(seed, options)
        self._seed = None
        self._action = None
        shown, info = self._prepare(observation), self._sendable(info)
        about = self._changes
        self._episode_id = self.server.begin_episode(request, fps=fps, info=info, **about)
        self._changes = {}
        self._show(shown)
        self._failure = ""

    def _set_action(self, message: AgentAction) -> bool:
        """Store an agent's action; return whether it is valid."""
        if self._failure:
            self.server.refuse(message, f"no episode is running: {self._failure}")
            return False
        for event in reversed(message.action):
            if len(event) == 2 and event[0] == ACTION:
                try:
                    self._action = self._fit_action(event[1])
                except (TypeError, ValueError) as error:  # EncodeError, or a value of no known form
                    self.server.refuse(message, f"invalid action: {error}")
                    return False
                return True
        self.server.refuse(message, f'invalid action: expected an event ["{ACTION}", value]')
        return False

    def _has_audience(self) -> bool:
        return bool(self.server.clients)

    def _next_action(self) -> Any:
        """Return the next step's action; None for a no-op."""
        return self._action

    def _prepare(self, observation: Any) -> Any:
        """Return what `_show` pushes for an observation."""
        return plain(self._fit_observation(observation))

    def _show(self, prepared: Any) -> None:
        self.server.observation(prepared)

    def _step(self, loan: Loan | None = None) -> None:
        """Take a step, and push its results; over a loan as one message.

        It refers to the observation's arrays only until it is sent.
        """
        try:
            action = self._next_action() if loan is None else self._action
            if action is None:
                action = self._action_tree.default_value()
            observation, reward, terminated, truncated, info = self.driven.step(action)
            if type(reward) is not float:
                reward = 0.0 if reward is None else real(reward, "the reward")  # None is dm_env's
            if loan is None:
                prepared = self._prepare(observation)
            else:
                prepared = self._fit_observation(observation)
                if type(prepared) is not np.ndarray or not prepared.ndim:
                    prepared = plain(prepared)
            if not (terminated is False is truncated):
                terminated, truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
            done = terminated or truncated
            flags = {TRUNCATED: True} if truncated else {}
            if truncated and terminated:
                flags[TERMINATED] = True
            shown = flags
            if info:
                try:
                    shown = {**mark_arrays(info), **flags}
                except Exception:
                    shown = {**self._sendable(info), **flags}
            if loan is not None and loan.step((self._episode_id, reward, done, shown, prepared)):
                loan.service.pushes += 1
                loan.service.messages += 1
            else:
                self._show(prepared)
                try:
                    self.server.reward(reward, done, shown)
                except (EncodeError, LimitExceeded):
                    self.server.reward(reward, done, {**self._sendable(info), **flags})
        except BaseException as error:
            self.server.log.exception("%s: a step failed", self.driven.name)
            self.server.count("steps_failed")
            done = True
            self.server.reward(0.0, done, {TRUNCATED: True, ERROR: describe(error)})
        if done:
            self._begin_next()

    def _sendable(self, info: Any) -> Mapping[str, Any]:
        """Return an info with its arrays marked, without entries that cannot be sent."""
        try:
            return self._checked({} if info is None else info)
        except Exception as error:  # also an error of the info's own methods
            self.server.count("infos_dropped")
            if not self._has_dropped:
                self._has_dropped = True
                logger.warning("%s: entries of infos are not sent: %s", self.driven.name, error)
        kept = {}
        for name in info if isinstance(info, Mapping) else ():
            with contextlib.suppress(Exception):
                self._checked({name: (value := info[name])})
                kept[name] = value
        with contextlib.suppress(Exception):  # too large as a whole
            return self._checked(kept)
        return {}

    def _checked(self, info: Any) -> Mapping[str, Any]:
        """Return an info with its arrays marked, or raise if it cannot be sent."""
        marked: Mapping[str, Any] = mark_arrays(info)
        Push(EnvReward(0.0, False, dict(marked), episode_id="0"), 0.0, self.server.limits)
        return marked


class EnvironmentRewarder(RewarderServer):
    """A `RewarderServer` whose `player` steps an environment while a client is connected.

    The environment is one of Gymnasium or dm_env, which is not closed; a class or function that
    makes one; or a name, such as ``"gym:CartPole-v1"`` or ``"my_module:MyEnvironment"``. A
    dictionary has several by id, or a name of one: a reset selects, which makes its environment
    and closes the last.

    Raises:
        TypeError: not an environment, or a vector of them.
        ValueError: an argument is invalid; EncodeError if JSON cannot encode values of a space.
        ImportError, AttributeError: there is no environment of that name.
    """

    @with_options(EnvironmentRewarderOptions)
    def __init__(self, environment: Any, options: EnvironmentRewarderOptions) -> None:
        self.player = player = EnvironmentPlayer(environment, options)
        with on_error(player.end):
            super().__init__(player.env_id, **player.served(options))
        player.server = self


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

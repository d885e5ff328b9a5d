"""PERLERT's two sides of an environment: `PerlertEndpoint` plays one, a `Simulation` is served."""

from __future__ import annotations

import contextlib
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs import perlert
from rlwire.environments.driver import Driven, driver_of, maker
from rlwire.environments.endpoint import Endpoint
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    on_error,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.perlert.client import Client
from rlwire.perlert.spaces import SpaceText, write_spaces
from rlwire.sessions.perlert.client import RUNNING, Frame, PerlertState
from rlwire.transports.address import AddressLike

_ASKED = 3  # times that a server may take to tell a part of the spaces: datagrams get lost


class PerlertEndpoint(Endpoint):
    """One slot of an instance, played in real time.

    The environment does not wait. A step sends the action from now on and returns the newest
    observation, waiting only if none has come since the last step. A reset waits for the end of the
    rollout, gets a slot, says ready, and waits until the next one begins. A server chooses its own
    seed. If it falls silent, the step is the episode's last, truncated.

    No reward is lost with its datagram: if the server adds up rewards, as rlwire's does in EXTRA
    (``total``), a step's reward is what was added since the last one. Otherwise it is the sum over
    the frames that have arrived. ``info`` has

    - ``step``, the number of the environment's step, and ``timestamp``, the server's milliseconds
      since 1970;
    - ``age``: seconds since the server made the observation, less those that the fastest frame of
      the rollout took to come, since the two clocks are not the same;
    - ``skipped``: steps since the last observation that were not seen;
    - ``extra``: EXTRA as a dictionary, or as text if it is none; not there if there is none.

    Args:
        address: the server's lobby, ``"host:port"``.
        instance: ``"name"`` or ``"name:number"``.
        limits: `Limits.datagram` is the size of the largest datagram.
        observation_space: the space that the observation's text is read for. Without it and the
            next one, a slot is taken at once, since a server of ours tells the spaces to its
            holder.
        action_space: the space of actions.
        agent: the slot to play; None for the first that is open.
        timeout: seconds that a step waits for a frame, and a reset for answers.
        start_timeout: seconds that a reset waits for a slot, for the rollout before to end, and
            again for the rollout to begin. None for ever.
        options: the `Client`'s.

    Attributes:
        client: for the lobby, messages and statistics.
    """

    def __init__(
        self,
        address: AddressLike,
        instance: str = "",
        *,
        timeout: float = 10.0,
        limits: Limits = DEFAULT,
        observation_space: Any = None,
        action_space: Any = None,
        agent: str | None = None,
        start_timeout: float | None = 60.0,
        **options: Any,
    ) -> None:
        self._timeout = timeout
        self._start_timeout = start_timeout
        self.client = Client(address, instance, limits=limits, **options)
        self.client.connect()
        self._agent = agent
        self._key: str | None = None
        self._frame: Frame | None = None
        self._seen: tuple[Any, dict[str, Any]] = None, {}
        self._total: float | None = None
        self._owed = 0.0
        self._fastest = math.inf
        self._over = True
        self._stepping = False
        with on_error(self.client.close):
            if observation_space is None or action_space is None:
                told = self._told_spaces(limits)
                observation_space = told[0] if observation_space is None else observation_space
                action_space = told[1] if action_space is None else action_space
            self._observations = SpaceText(
                observation_space, "the observation", named=True, limits=limits
            )
            self._actions = SpaceText(action_space, "the action", named=False, limits=limits)
        self.observation_space = observation_space
        self.action_space = action_space

    def _told_spaces(self, limits: Limits) -> tuple[Any, Any]:
        """Return the spaces of the slot, as the server tells them to its holder."""
        client, told = self.client, self.client.told
        asked = 0
        while asked < _ASKED * max(told.count, 1):  # each registration brings one part
            self._key = self._register()
            client.lobby(self._timeout)  # what was told came before its answer
            spaces = told.spaces(limits)
            if spaces is not None:
                return spaces
            asked += 1
        raise TypeError(
            f"{client} does not tell its spaces: give observation_space= and action_space=, or "
            f"like="
        )

    @property
    def places(self) -> int:
        """How many slots the instance has."""
        return len(self.client.lobby(self._timeout))

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Get a slot in the next rollout, after the end of one that goes on, and say ready.

        The server chooses its own seed and options.
        """
        self._stepping = False
        client = self.client
        deadline = monotonic() + (self._start_timeout or math.inf)
        while client.state in RUNNING:
            left = deadline - monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"{client}: the run before goes on, and PERLERT has no way to end one"
                )
            try:
                client.frames(min(left, self._timeout))
            except DeadlineExceeded:
                if monotonic() < deadline:
                    raise
        self._key = self._register()
        client.ready()

    def begin_step(self, action: Any) -> None:
        """Send what to do from now on."""
        self._stepping = True
        if self._over:
            raise LocalProtocolError(f"{self.client}: call reset() first")
        text = self._actions.to_text(action)
        if not self._actions.contains(self._actions.from_text(text)):  # as the server will ask
            raise EncodeError(f"the action {action!r} is not in {self.action_space}")
        frame = self._frame
        if frame is None or not frame.done:  # else the rollout was over when it began
            self.client.act(text)

    def finish(self) -> tuple[Any, ...]:
        """Return the first observation of a rollout that begins, or the newest one of a step."""
        client, frame = self.client, self._frame
        if self._stepping:
            if frame is not None and frame.done:
                return self._take([])
            try:
                frames = client.frames(self._timeout)
            except (ConnectionClosed, DeadlineExceeded) as error:
                late = isinstance(error, DeadlineExceeded) and client.state in RUNNING
                if late or client.state is PerlertState.CLOSED:
                    raise
                self._over = True
                observation, info = self._seen
                return observation, 0.0, False, True, {**info, "lost": str(error)}
            return self._take(frames)
        client.wait_start(self._start_timeout)
        self._frame, self._total, self._owed = None, None, 0.0
        self._fastest = math.inf
        self._over = False
        observation, reward, _, _, info = self._take(client.frames(self._timeout))
        self._owed = reward  # of steps before the first that was seen: the next one gives it
        return observation, info

    def close(self) -> None:
        """Leave. The server frees a slot in the lobby after a while; a rollout goes on."""
        self.client.close()

    def _register(self) -> str:
        """Get the slot that was asked for, or any: at first the one of the rollout before."""
        client, timeout = self.client, self._start_timeout
        if self._agent is None and self._key is not None:
            with contextlib.suppress(PeerError):
                return client.register(self._key, timeout=timeout)
        return client.register(self._agent, timeout=timeout, wait=timeout)

    def _take(self, frames: list[Frame]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the step that these frames, perhaps none, make."""
        before = self._frame
        for frame in frames:
            self._fastest = min(self._fastest, frame.received - frame.timestamp / 1000)
        reward, self._owed = self._owed, 0.0
        if not frames:  # the first was the last
            assert before is not None
            observation, info = self._seen
            self._over = before.done
            return observation, reward, *_end(before.done, info.get("extra")), info
        frame = self._frame = frames[-1]
        extra = _extra(frame)
        reward += self._reward(frames, before, extra)
        observation = self._observations.from_text(frame.observation)
        seen = -1 if before is None else before.step
        unseen = frame.step - seen - 1 if frame.step > seen else len(frames) - 1
        info = {
            "step": frame.step,
            "timestamp": frame.timestamp,
            "age": max(0.0, monotonic() - frame.timestamp / 1000 - self._fastest),
            "skipped": 0 if before is None else unseen,
        }
        if extra is not None:
            info["extra"] = extra
        self._seen = observation, info
        self._over = frame.done and before is not None
        return observation, reward, *_end(frame.done, extra), info

    def _reward(self, frames: list[Frame], before: Frame | None, extra: Any) -> float:
        total = extra.get("total") if isinstance(extra, dict) else None
        if not isinstance(total, (int, float)):
            return math.fsum(_number(frame.reward) for frame in frames)
        last, self._total = self._total or 0.0, float(total)
        added = self._total - last
        newest = frames[-1]
        if before is not None and newest.step == before.step + 1:
            # The step's own reward has not gone through a sum. If the server rounds, it differs by
            # more, and only the sums do not drift away from the truth.
            own = newest.reward
            if not isinstance(own, str) and math.isclose(own, added, rel_tol=1e-9, abs_tol=1e-9):
                return float(own)
        return added


def _extra(frame: Frame) -> Any:
    """Return EXTRA as a dictionary, as text if it is none, or None."""
    if frame.extra is None:
        return None
    try:
        return perlert.text_to_mapping(frame.extra)
    except (DecodeError, LimitExceeded):
        return frame.extra


def _end(done: bool, extra: Any) -> tuple[bool, bool]:
    """Return what Gymnasium calls terminated and truncated."""
    told = extra if isinstance(extra, dict) else {}
    truncated = done and told.get("truncated") is True
    return done and (not truncated or told.get("terminated") is True), truncated


def _number(reward: float | str) -> float:
    if isinstance(reward, str):
        raise DecodeError(f"the reward is no number but {quoted(reward)}")
    return float(reward)


# ---- a server's side

Default: TypeAlias = Any
"""An action, or a function of an agent's key and its last observation that returns one."""

_NUMBERED = re.compile(r"[_-]?[0-9]+$")
_SEPARATORS = re.compile("[:;,=]")


class Outcome(NamedTuple):
    """What happened to one agent in a step.

    Attributes:
        observation: as text, or as an array that is written as text where it is sent.
        reward: 0 after a reset.
        terminated: the episode is over for this agent.
        truncated: it was ended for this agent.
        info: the environment's.
        seen: the observation as the environment gave it.
    """

    observation: str | NDArray[Any]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[Any, Any]
    seen: Any


class Simulation(Protocol):
    """An environment for one or more agents, with text instead of spaces.

    `simulate` makes one of an environment of PettingZoo, Gymnasium or dm_env. An object with these
    methods may be served as well, with texts of its own.
    """

    @property
    def name(self) -> str:
        """The default name of its instances."""

    @property
    def agents(self) -> Mapping[str, str]:
        """The agents' kinds, by key."""

    def reset(self, seed: int) -> Mapping[str, Outcome]:
        """Begin an episode, and return the outcomes by the agents' keys."""

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Outcome]:
        """Let all agents act, and return the outcomes of those whose episode is not over.

        Args:
            actions: by key, of all agents, those whose episode is over included.
        """

    def parse(self, key: str, text: str) -> Any:
        """Return the action that a text is; raise if this agent may not take it."""

    def default(self, key: str) -> Any:
        """Return what an agent does until its client has sent an action."""

    def close(self) -> None:
        """Free what it holds."""


def scalars(info: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers, truth values and texts of an environment's info that ``extra`` can carry.

    For the argument `extra` of a PERLERT server.
    """
    found: dict[str, Any] = {}
    for key, value in info.items():
        name = str(key)
        if isinstance(value, np.generic):
            value = value.item()
        plain = isinstance(value, (bool, int, float)) or (
            isinstance(value, str) and not _SEPARATORS.search(value)
        )
        if plain and name and not _SEPARATORS.search(name):
            found[name] = value
    return found


class _AgentText:
    """One agent's spaces as text."""

    def __init__(
        self, what: str, observation_space: Any, action_space: Any, limits: Limits
    ) -> None:
        self.observation = SpaceText(
            observation_space, f"the observation{what}", named=True, limits=limits
        )
        self.action = SpaceText(action_space, f"the action{what}", named=False, limits=limits)
        self.told = deque(write_spaces(observation_space, action_space, limits))
        self._nothing = self.action.nothing()

    def default(self) -> Any:
        # An array is a new one, since an environment may write into it.
        return self._nothing if isinstance(self._nothing, np.generic) else self.action.nothing()

    def parse(self, text: str) -> Any:
        action = self.action.from_text(text)
        if not self.action.contains(action):
            raise DecodeError(f"{quoted(text)} is not in the action space {self.action.space}")
        return action

    def outcome(
        self,
        observation: Any,
        reward: Any = 0.0,
        terminated: Any = False,
        truncated: Any = False,
        info: Mapping[Any, Any] | None = None,
    ) -> Outcome:
        return Outcome(
            self.observation.to_wire(observation),
            float(reward or 0.0),
            bool(terminated),
            bool(truncated),
            info or {},
            observation,
        )


class EnvironmentSimulation:
    """A driven environment: one agent, whose key is ``"agent0"``, or a parallel one's.

    The key of an agent is its name, with underscores for the characters ``:;,=``; its kind is its
    key without the number at the end.
    """

    def __init__(self, driven: Driven, *, limits: Limits = DEFAULT) -> None:
        self._driven = driven
        self.name = _SEPARATORS.sub("_", driven.name)
        names = driven.agents or ("agent0",)
        self._keys = {name: _SEPARATORS.sub("_", str(name)) for name in names}
        found = list(self._keys.values())
        if len(set(found)) < len(found) or not all(found):
            raise EncodeError(f"the agents' keys are not of one each, or empty: {found}")
        self.agents = {key: _NUMBERED.sub("", key) or key for key in found}
        self._lone = None if driven.agents else found[0]
        seen, done = driven.observation_space, driven.action_space
        if self._lone is not None:
            driven.one("PERLERT")
            seen, done = {self._lone: seen}, {self._lone: done}
        self._texts = {
            key: _AgentText("" if self._lone else f" of {name!r}", seen[name], done[name], limits)
            for name, key in self._keys.items()
        }

    def reset(self, seed: int) -> dict[str, Outcome]:
        """Begin an episode."""
        seen, infos = self._driven.reset(seed)
        if self._lone is not None:
            seen, infos = {self._lone: seen}, {self._lone: infos}
        return self._outcomes(
            {name: (each, 0.0, False, False, infos.get(name)) for name, each in seen.items()}
        )

    def step(self, actions: Mapping[str, Any]) -> dict[str, Outcome]:
        """Let the agents that the environment has now act together."""
        lone = self._lone
        if lone is not None:
            return self._outcomes({lone: self._driven.step(actions[lone])})
        return self._outcomes(
            self._driven.step({name: actions[key] for name, key in self._keys.items()})
        )

    def _outcomes(self, steps: Mapping[Any, Any]) -> dict[str, Outcome]:
        keys = self._keys
        return {keys[name]: self._texts[keys[name]].outcome(*step) for name, step in steps.items()}

    def told(self, key: str) -> str | None:
        """Return the next message that tells a client its spaces, None if there is none."""
        told = self._texts[key].told
        told.rotate(-1)
        return told[-1] if told else None

    def parse(self, key: str, text: str) -> Any:
        """Return the action that a text is."""
        return self._texts[key].parse(text)

    def default(self, key: str) -> Any:
        """Return the action nearest to zero."""
        return self._texts[key].default()

    def close(self) -> None:
        """Close the environment."""
        self._driven.close()


def simulations_of(
    environment: Any, env_kwargs: Mapping[str, Any] | None = None, limits: Limits = DEFAULT
) -> tuple[Simulation, Callable[[], Simulation] | None]:
    """Return a simulation, and what makes more of them: None if there is none but this.

    `environment` is what `rlwire.environments.driver.maker` takes, or a simulation; `env_kwargs`
    are for the class or function.
    """
    environment, again = maker(environment, env_kwargs)
    if again is None:
        return simulate(environment, limits), None

    def make() -> Simulation:
        made = again()
        with on_error(getattr(made, "close", bool)):
            return simulate(made, limits)

    return make(), make


def simulate(environment: Any, limits: Limits = DEFAULT) -> Simulation:
    """Return an environment of Gymnasium, dm_env or PettingZoo's parallel kind as a simulation."""
    names = ("name", "agents", "reset", "step", "parse", "default", "close")
    if not isinstance(environment, type) and all(hasattr(environment, name) for name in names):
        simulation: Simulation = environment
        return simulation
    return EnvironmentSimulation(driver_of(environment), limits=limits)

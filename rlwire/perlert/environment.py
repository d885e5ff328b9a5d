"""`PerlertEndpoint` connects to an instance; a `Simulation` is an environment on a server."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rlwire._options import given, with_options
from rlwire.codecs import perlert
from rlwire.codecs.casting import flag, real
from rlwire.environments.driver import driver_of, maker
from rlwire.environments.endpoint import Endpoint
from rlwire.environments.spaces import DescribedSpaces
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    WouldWait,
    on_error,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.perlert.client import Client
from rlwire.perlert.options import PerlertClientOptions, PerlertEndpointOptions
from rlwire.perlert.spaces import SpaceText, write_spaces
from rlwire.sessions.perlert.client import RUNNING, Frame

logger = logging.getLogger(__name__)

_TEXTS = 1024  # of actions that are kept
_REGISTRATIONS = 3  # for each part of a space description, since datagrams get lost


class PerlertEndpoint(Endpoint):
    """An agent's slot in an instance that runs in real time: the environment waits for no action.

    A step sends the action and returns the newest observation; it waits only if no frame has
    arrived since the last step. A reset waits for the end of the run, registers for a slot, sends
    ready, and waits for the next run to start. Its seed is ignored: the server chooses one.

    If the server sends the sum of rewards in EXTRA (``total``), as rlwire's does, a step's reward
    is the difference of two sums, so lost frames lose no reward. Otherwise it is the sum over the
    frames that arrived. ``info`` has

    - ``step``: the environment's step number;
    - ``timestamp``: the server's time, in milliseconds since 1970;
    - ``skipped``: the number of steps between the last observation and this one;
    - ``extra``: EXTRA as a dictionary, or as text if it cannot be parsed; absent without EXTRA.

    Without given spaces the endpoint registers at once, since rlwire's server sends them to the
    slot's holder.
    """

    @with_options(PerlertEndpointOptions)
    def __init__(self, options: PerlertEndpointOptions) -> None:
        self._timeout, self._start_timeout = options.timeout, options.start_timeout
        self.client = Client(**given(options, PerlertClientOptions))
        self.client.connect()
        self._agent = options.agent
        self._key: str | None = None
        self._frame: Frame | None = None
        self._seen: tuple[Any, dict[str, Any]] = None, {}
        self._total: float | None = None
        self._unreported_reward = 0.0
        self._needs_reset = True
        self._stepping = self._watched = False
        self._warned = False  # of arguments of `begin_reset`
        limits = options.limits or DEFAULT
        with on_error(self.client.close):
            seen, done = options.observation_space, options.action_space
            if seen is None or done is None:
                found = self._described_spaces(limits)
                self.episode = found.episode
                seen = found[0] if seen is None else seen
                done = found[1] if done is None else done
            self._observations = SpaceText(seen, "the observation", named=True, limits=limits)
            words = options.actions
            self._actions = SpaceText(done, "the action", named=False, limits=limits, words=words)
        self.observation_space, self.action_space = seen, done
        self._texts: dict[int, str] = {}  # of integers that are actions

    def _described_spaces(self, limits: Limits) -> DescribedSpaces:
        """Register, and return the spaces that the server sends to the slot's holder."""
        client, description = self.client, self.client.description
        tries = 0
        while tries < _REGISTRATIONS * max(description.count, 1):  # each brings one part
            self._key = self._register()
            client.lobby(self._timeout)  # the part arrives before its reply
            if (spaces := description.spaces(limits)) is not None:
                return spaces
            tries += 1
        raise TypeError(
            f"{client}: the server does not describe its spaces: pass observation_space= and "
            f"action_space=, or like="
        )

    @property
    def places(self) -> int:
        return len(self.client.lobby(self._timeout))

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Wait for the end of the run, register for the next one, and send ready."""
        self._stepping = False
        client = self.client
        if (seed is not None or options is not None) and not self._warned:
            self._warned = True
            logger.warning(
                "%s: reset(seed=, options=) is ignored, since PERLERT has no fields for them: use "
                "seed= and env_kwargs= of the server",
                client,
            )
        deadline = monotonic() + (self._start_timeout or math.inf)
        while client.state in RUNNING:
            left = deadline - monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"{client}: the last run did not end within start_timeout="
                    f"{self._start_timeout:g} s, and no PERLERT client can end it"
                )
            try:
                client.frames(min(left, self._timeout))
            except DeadlineExceeded:
                if monotonic() < deadline:
                    raise
        self._key = self._register()
        client.ready()

    def watch(self, wanted: bool) -> int:
        connection: Any = self.client.connection
        self._watched = False
        if connection is None or (wanted and self._frame is not None and self._frame.done):
            return -1
        connection.release()
        file = int(connection.sock.raw.fileno())
        self._watched = wanted and file != -1
        return file

    def encode_step(self, action: Any) -> str:
        if self._needs_reset:
            raise LocalProtocolError(f"{self.client}: call reset() first")
        kind = type(action)
        text = self._texts.get(action) if kind is int or kind is np.int64 else None
        if text is None:
            text = self._actions.to_text(action)
            if not self._actions.contains(self._actions.from_text(text)):  # as the server checks
                raise EncodeError(f"the action {action!r} is not in {self.action_space}")
            if (kind is int or kind is np.int64) and len(self._texts) < _TEXTS:
                self._texts[action] = text
        return text

    def send_step(self, encoded: str) -> None:
        self._stepping = True
        if self._frame is None or not self._frame.done:  # else the run ended with its first frame
            self.client.act(encoded)

    def finish(self) -> tuple[Any, ...]:
        client, frame = self.client, self._frame
        if self._stepping:
            if frame is not None and frame.done:
                return self._step_of([])
            try:
                frames = client.frames(0.0 if self._watched else self._timeout)
            except DeadlineExceeded as error:
                if client.state in RUNNING:
                    raise
                self._needs_reset = True
                observation, info = self._seen
                return observation, 0.0, False, True, {**info, "lost": str(error)}
            if self._watched and not frames and client.state in RUNNING:
                raise WouldWait(str(client))
            return self._step_of(frames)
        client.wait_start(self._start_timeout)
        self._frame, self._total, self._unreported_reward = None, None, 0.0
        self._needs_reset = True  # until there is an observation
        observation, reward, _, _, info = self._step_of(client.frames(self._timeout))
        self._unreported_reward = reward  # of steps before the first observation
        return observation, info

    def close(self) -> None:
        """Close the client, which says goodbye. A run continues for its other clients."""
        self.client.close()

    def _register(self) -> str:
        """Register for `agent`'s slot; without one, for the last run's slot or the first open."""
        client, timeout = self.client, self._start_timeout
        if self._agent is None and self._key is not None:
            with contextlib.suppress(PeerError):
                return client.register(self._key, timeout=timeout)
        return client.register(self._agent, timeout=timeout, wait=timeout)

    def _step_of(self, frames: list[Frame]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the outcome of a step from its frames; without any, of a one-frame run's end."""
        before = self._frame
        reward, self._unreported_reward = self._unreported_reward, 0.0
        if not frames:
            assert before is not None
            observation, info = self._seen
            self._needs_reset = before.done
            return observation, reward, *flags_of(before.done, info.get("extra")), info
        frame = self._frame = frames[-1]
        extra = _extra(frame)
        reward += self._reward(frames, before, extra)
        try:
            observation = self._observations.from_text(frame.observation)
        except DecodeError:
            if before is not None or not (isinstance(extra, dict) and extra.get("error") is True):
                raise
            raise PeerError(f"{self.client}: the environment's reset failed") from None
        unseen = 0 if before is None else frame.step - before.step - 1
        skipped = len(frames) - 1 if unseen < 0 else unseen  # numbers need not ascend
        info = {"step": frame.step, "timestamp": frame.timestamp, "skipped": skipped}
        if extra is not None:
            info["extra"] = extra
        self._seen = observation, info
        self._needs_reset = frame.done and before is not None
        return observation, reward, *flags_of(frame.done, extra), info

    def _reward(self, frames: list[Frame], before: Frame | None, extra: Any) -> float:
        total = extra.get("total") if isinstance(extra, dict) else None
        given = [_number(frame.reward) for frame in frames]
        odd = not all(map(math.isfinite, given))  # rlwire's sums leave these out
        if odd or not isinstance(total, (int, float)) or not math.isfinite(total):
            self._total = total if isinstance(total, (int, float)) else None
            return sum(given) if odd else math.fsum(given)
        last, self._total = self._total or 0.0, float(total)
        added = self._total - last
        newest = frames[-1]
        if before is not None and newest.step == before.step + 1:
            # Prefer the frame's own reward, which lacks the rounding errors of a difference. If
            # the server rounds rewards, the two differ by more, and only the sums are exact.
            own = newest.reward
            room = max(1e-9, 4 * math.ulp(total))  # the sums' own rounding
            if not isinstance(own, str) and math.isclose(own, added, rel_tol=1e-9, abs_tol=room):
                return float(own)
        return added


def _extra(frame: Frame) -> Any:
    if frame.extra is None:
        return None
    try:
        return perlert.text_to_mapping(frame.extra)
    except (DecodeError, LimitExceeded):
        return frame.extra


def flags_of(done: bool, extra: Any) -> tuple[bool, bool]:
    """Return terminated and truncated of a frame."""
    flags = extra if isinstance(extra, dict) else {}
    truncated = done and flags.get("truncated") is True
    return done and (not truncated or flags.get("terminated") is True), truncated


def _number(reward: float | str) -> float:
    if isinstance(reward, str):
        raise DecodeError(f"the reward must be a number, not {quoted(reward)}")
    return float(reward)


_NUMBERED = re.compile(r"[_-]?[0-9]+$")
_SEPARATORS = re.compile("[:;,=]")


class Outcome(NamedTuple):
    """One agent's results of a step: `observation` as it is sent, `seen` as the value."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[Any, Any]
    seen: Any


class Simulation:
    """An environment of Gymnasium, dm_env or PettingZoo (parallel), with its spaces as text.

    A single agent's key is ``"agent0"``. Other keys are the agents' names, with underscores for the
    characters ``:;,=``. An agent's kind is its key without the trailing number. `keys`, `kinds` and
    `actions`, as in `rlwire.perlert.options.PerlertInstanceOptions`, replace them.
    """

    def __init__(
        self,
        environment: Any,
        limits: Limits = DEFAULT,
        *,
        keys: Mapping[Any, str] | str | None = None,
        kinds: Mapping[Any, str] | str | None = None,
        actions: Sequence[str] = (),
    ) -> None:
        self._driven = driven = driver_of(environment)
        self.name = _SEPARATORS.sub("_", driven.name)
        names = driven.agents or ("agent0",)
        given = dict.fromkeys(names, keys) if isinstance(keys, str) else keys or {}
        self._keys = {name: _SEPARATORS.sub("_", str(given.get(name, name))) for name in names}
        found = list(self._keys.values())
        kinds = dict.fromkeys(found, kinds) if isinstance(kinds, str) else kinds or {}
        for what, have, known in ("keys", given, names), ("kinds", kinds, found):
            if unknown := [each for each in have if each not in known]:
                raise ValueError(f"{what}: no agent {unknown[0]!r}; there are {[*known]}")
        if len(set(found)) < len(found) or not all(found):
            raise EncodeError(f"agents' keys must be unique and not empty, not {found}")
        self.agents = {key: kinds.get(key) or _NUMBERED.sub("", key) or key for key in found}
        self._lone = None if driven.agents else found[0]
        seen, done = driven.observation_space, driven.action_space
        if self._lone is not None:
            driven.one("PERLERT")
            seen, done = {names[0]: seen}, {names[0]: done}
        self._observations: dict[str, SpaceText] = {}
        self._actions: dict[str, SpaceText] = {}
        self._descriptions: dict[str, deque[str]] = {}
        for name, key in self._keys.items():
            of = "" if self._lone else f" of {name!r}"
            self._observations[key] = SpaceText(
                seen[name], f"the observation{of}", named=True, limits=limits
            )
            self._actions[key] = SpaceText(
                done[name], f"the action{of}", named=False, limits=limits, words=actions
            )
            parts = write_spaces(seen[name], done[name], limits, driven.environment)
            self._descriptions[key] = deque(parts)

    def reset(self, seed: int) -> dict[str, Outcome]:
        seen, infos = self._driven.reset(seed)
        if self._lone is not None:
            seen, infos = {self._lone: seen}, {self._lone: infos}
        return self._outcomes(
            {name: (each, 0.0, False, False, infos.get(name)) for name, each in seen.items()}
        )

    def step(self, actions: Mapping[str, Any]) -> dict[str, Outcome]:
        lone = self._lone
        if lone is not None:
            return self._outcomes({lone: self._driven.step(actions[lone])})
        return self._outcomes(
            self._driven.step({name: actions[key] for name, key in self._keys.items()})
        )

    def _outcomes(self, steps: Mapping[Any, Any]) -> dict[str, Outcome]:
        outcomes = {}
        for name, (observation, reward, terminated, truncated, info) in steps.items():
            key = self._lone or self._keys[name]
            outcomes[key] = Outcome(
                self._observations[key].to_wire(observation),
                0.0 if reward is None else real(reward, "the reward"),  # None is dm_env's
                terminated is not False and flag(terminated, "terminated"),
                truncated is not False and flag(truncated, "truncated"),
                info or {},
                observation,
            )
        return outcomes

    def space_description(self, key: str) -> str | None:
        """Return the next part of the description of an agent's spaces, in turn, if any."""
        parts = self._descriptions[key]
        parts.rotate(-1)
        return parts[-1] if parts else None

    def parse(self, key: str, text: str) -> Any:
        space = self._actions[key]
        action = space.from_text(text)
        if not space.contains(action):
            raise DecodeError(f"{quoted(text)} is not in the action space {space.space}")
        return action

    def default(self, key: str) -> Any:
        """Return the action nearest to zero, newly made: an environment may write into it."""
        return self._actions[key].default_value()

    def close(self) -> None:
        """Close the environment; what it raises is logged."""
        try:
            self._driven.close()
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.exception("%s: closing the environment failed", self.name)


def simulations_of(
    environment: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT,
    **names: Any,
) -> tuple[Simulation, Callable[[], Simulation] | None]:
    """Return a simulation, and a function that makes more; None for a given environment."""
    environment, again = maker(environment, env_kwargs)
    if again is None:
        return Simulation(environment, limits, **names), None

    def make() -> Simulation:
        made = again()
        with on_error(getattr(made, "close", bool)):
            return Simulation(made, limits, **names)

    return make(), make

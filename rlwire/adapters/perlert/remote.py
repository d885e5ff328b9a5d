"""`RemoteEnvironment`: one slot of a PERLERT server as a `gymnasium.Env` in real time.

Needs Gymnasium (the extra ``gym``).
"""

from __future__ import annotations

import contextlib
import math
from time import monotonic
from typing import Any

from rlwire.adapters.perlert.client import Client
from rlwire.adapters.perlert.spaces import SpaceText
from rlwire.codecs import perlert
from rlwire.environments.loading import load_environment
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    optional,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert.client import ClientSettings, Frame, State
from rlwire.transports.address import AddressLike
from rlwire.transports.datagram_cipher import DatagramCipher

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

__all__ = ["RemoteEnvironment"]


class RemoteEnvironment(gymnasium.Env):  # type: ignore[misc]
    """One slot of an instance, played in real time.

    ::

        env = RemoteEnvironment("127.0.0.1:32322", "CartPole-v1", like="CartPole-v1")
        observation, info = env.reset()
        terminated = truncated = False
        while not (terminated or truncated):
            action = policy(observation)
            observation, reward, terminated, truncated, info = env.step(action)

    The world does not wait. `step` says what to do from now on and returns the newest observation
    there is, waiting only if none has come since the last call; the action need not have had an
    effect on it yet. `reset` gets a slot, says ready, and waits until the run begins, for the other
    players too. There is no way to end a run: a `reset` in the middle of one waits for its end.

    No reward is lost with its datagram: if the server adds up rewards, as rlwire's does in EXTRA
    (``total``), a step's reward is what was added since the last one. Otherwise it is the sum over
    the frames that have arrived.

    ``info`` has

    - ``step``, the number of the environment's step, and ``timestamp``, the server's milliseconds
      since 1970;
    - ``age``: seconds since the server made the observation, less those that the fastest frame of
      the run took to come, since the two clocks are not the same;
    - ``skipped``: steps since the last observation that were not seen, because they were lost, not
      sent, or overtaken by newer ones;
    - ``duplicates`` and ``late``: datagrams of this run that came twice, or after newer ones;
    - ``extra``: EXTRA as a dictionary, or as text if it is none; not there if there is none.

    Not as in other environments: the seed of `reset` reaches only `np_random`, since a PERLERT
    server chooses its own, so runs are never the same twice (`spec.nondeterministic`). The
    environment belongs to one thread; any number of them may be in one process.

    Args:
        address: the server's lobby, ``"host:port"``.
        instance: ``"name"`` or ``"name:number"``.
        observation_space: the space that the observation's text is read for.
        action_space: the space of actions.
        like: takes the spaces from an environment, or from one of this name, as
            ``"CartPole-v1"`` or ``"mpe2.simple_spread_v3:parallel_env"``; for PettingZoo's, those
            of `agent`, or of the first agent.
        agent: the slot to play; None for the first that is open.
        tag: what others see in the lobby; by default a random one.
        timeout: seconds that `step` waits for a frame, and `reset` for answers.
        start_timeout: seconds that `reset` waits for a slot, for the run before to end, and
            again for the run to begin. None for ever.
        wait: False lets `step` return at once if there is no new observation, with the last one
            and reward 0.
        cipher: the key that the server has as well, or a cipher made of it.
        settings: times of the protocol.
        limits: `Limits.datagram` is the size of the largest datagram.

    Attributes:
        client: for what is not of an environment: the lobby, messages, statistics.

    Raises:
        TypeError: the spaces are not given, or twice.
        EncodeError: a space has no text.
        OSError: the server's name is not known.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's interface

    def __init__(
        self,
        address: AddressLike,
        instance: str,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        like: Any = None,
        agent: str | None = None,
        tag: str | None = None,
        timeout: float = 10.0,
        start_timeout: float | None = 60.0,
        wait: bool = True,
        cipher: DatagramCipher | bytes | None = None,
        settings: ClientSettings | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        if like is not None:
            if observation_space is not None or action_space is not None:
                raise TypeError("give the spaces, or an environment that has them, not both")
            observation_space, action_space = _spaces_of(like, agent)
        if observation_space is None or action_space is None:
            raise TypeError("give observation_space and action_space, or like=...")
        self.observation_space = observation_space
        self.action_space = action_space
        self.render_mode = None
        self._observations = SpaceText(
            observation_space, "the observation", named=True, limits=limits
        )
        self._actions = SpaceText(action_space, "the action", named=False, limits=limits)
        if isinstance(cipher, bytes):
            cipher = DatagramCipher(cipher, "client")  # whose repr does not show the key
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._wait = wait
        self.client = Client(
            address, instance, tag=tag, cipher=cipher, settings=settings, limits=limits
        )
        # What Gymnasium's checker and wrappers ask; `make` of it opens another slot.
        self.spec = EnvSpec(
            "rlwire/PERLERT-v0",
            entry_point=type(self),
            nondeterministic=True,
            order_enforce=False,
            disable_env_checker=True,
            kwargs={
                **{"address": address, "instance": instance, "agent": agent, "timeout": timeout},
                **{"observation_space": observation_space, "action_space": action_space},
                **{"start_timeout": start_timeout, "wait": wait, "cipher": cipher},
                **{"settings": settings, "limits": limits},
            },
        )
        self._agent = agent
        self._key: str | None = None
        self._frame: Frame | None = None
        self._seen: tuple[Any, dict[str, Any]] = None, {}
        self._total: float | None = None
        self._owed = 0.0
        self._fastest = math.inf
        self._before: dict[str, int] = {}
        self._over = True
        self.client.connect()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Wait for a new run, and return its first observation that arrives.

        Args:
            seed: of `np_random`; the server does not hear of it.
            options: not used.

        Raises:
            DeadlineExceeded: no answer, no end of the run before, no beginning of the new one; the
                text says who is missing.
            PeerError: the slot, or all of them, are others'.
            DecodeError: the observation is none of the space.
        """
        super().reset(seed=seed)
        client = self.client
        self._finish()
        self._key = self._register()
        client.ready()
        client.wait_start(self._start_timeout)
        self._before = client.statistics()
        self._frame, self._total, self._owed = None, None, 0.0
        self._fastest = math.inf
        self._over = False
        observation, reward, _, _, info = self._take(client.frames(self._timeout))
        self._owed = reward  # of steps before the first that was seen: the next one gives it
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Say what to do from now on, and return the newest observation.

        Raises:
            EncodeError: the action is not in the action space.
            DeadlineExceeded: no frame came in time.
            DecodeError: the observation is none of the space, or the reward no number.
            LocalProtocolError: the run is over, or `reset` was never called.
        """
        if self._over:
            raise LocalProtocolError(f"{self.client}: call reset() first")
        text = self._actions.to_text(action)
        if not self.action_space.contains(self._actions.from_text(text)):  # as the server will ask
            raise EncodeError(f"the action {action!r} is not in {self.action_space}")
        frame = self._frame
        if frame is not None and frame.done:  # the run was over when `reset` returned
            return self._take([])
        client = self.client
        client.act(text)
        return self._take(client.frames(self._timeout if self._wait else 0.0))

    def close(self) -> None:
        """Leave. The server frees a slot in the lobby after a while; a run goes on without us."""
        self.client.close()

    def _finish(self) -> None:
        """Wait for the end of a run that goes on."""
        client = self.client
        deadline = monotonic() + (self._start_timeout or math.inf)
        while client.state in (State.STARTING, State.ROLLOUT):
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

    def _register(self) -> str:
        """Get the slot that was asked for, or any: at first the one of the run before."""
        client, patience = self.client, self._start_timeout
        if self._agent is None and self._key is not None:
            with contextlib.suppress(PeerError):
                return client.register(self._key, timeout=patience)
        return client.register(self._agent, timeout=patience, wait=patience)

    def _take(self, frames: list[Frame]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return what has become of things after these frames, perhaps none."""
        before = self._frame
        for frame in frames:
            self._fastest = min(self._fastest, frame.received - frame.timestamp / 1000)
        reward, self._owed = self._owed, 0.0
        if not frames:
            assert before is not None
            observation, info = self._seen
            info = {**info, **self._numbers(before), "skipped": 0}
            self._over = before.done
            ended = info.get("extra", {})
            return observation, reward, *_end(before.done, ended), info
        frame = self._frame = frames[-1]
        extra = _extra(frame)
        reward += self._reward(frames, before, extra)
        observation = self._observations.from_text(frame.observation)
        info = self._numbers(frame)
        seen = -1 if before is None else before.step
        unseen = frame.step - seen - 1 if frame.step > seen else len(frames) - 1
        info["skipped"] = 0 if before is None else unseen
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

    def _numbers(self, frame: Frame) -> dict[str, Any]:
        counts = self.client.statistics()
        return {
            "step": frame.step,
            "timestamp": frame.timestamp,
            "age": max(0.0, monotonic() - frame.timestamp / 1000 - self._fastest),
            **{name: counts[name] - self._before[name] for name in ("duplicates", "late")},
        }


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


def _spaces_of(like: Any, agent: str | None) -> tuple[Any, Any]:
    if isinstance(like, str):
        make = load_environment(like if ":" in like else f"gym:{like}")
        made = make() if callable(make) else make
        try:
            return _spaces_of(made, agent)
        finally:
            made.close()
    if callable(like.observation_space):  # PettingZoo's
        name = like.possible_agents[0] if agent is None else agent
        return like.observation_space(name), like.action_space(name)
    return like.observation_space, like.action_space

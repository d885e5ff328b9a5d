"""`PerlertEndpoint`: one slot of a PERLERT server as an `Endpoint`, in real time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from time import monotonic
from typing import Any

from rlwire.codecs import perlert
from rlwire.environments.endpoint import Endpoint, Outcome
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
from rlwire.perlert.spaces import SpaceText
from rlwire.sessions.perlert.client import Frame
from rlwire.sessions.perlert.registration import State
from rlwire.transports.address import AddressLike

_PLAYING = (State.STARTING, State.ROLLOUT)
_ASKED = 3  # times that a server may take to tell a part of the spaces: datagrams get lost


class PerlertEndpoint(Endpoint):
    """One slot of an instance, played in real time.

    The world does not wait. A step says what to do from now on and gives the newest observation
    there is, waiting only if none has come since the last one; the action need not have had an
    effect on it yet. A reset gets a slot, says ready, and waits until the run begins, for the other
    players too. There is no way to end a run: a reset in the middle of one waits for its end.

    No reward is lost with its datagram: if the server adds up rewards, as rlwire's does in EXTRA
    (``total``), a step's reward is what was added since the last one. Otherwise it is the sum over
    the frames that have arrived.

    PERLERT has no field for the environment's own info: nothing of it is in ``info``, but what the
    server puts into EXTRA (`extra` of `Server`). ``info`` has

    - ``step``, the number of the environment's step, and ``timestamp``, the server's milliseconds
      since 1970;
    - ``age``: seconds since the server made the observation, less those that the fastest frame of
      the run took to come, since the two clocks are not the same;
    - ``skipped``: steps since the last observation that were not seen, because they were lost, not
      sent, or overtaken by newer ones;
    - ``extra``: EXTRA as a dictionary, or as text if it is none; not there if there is none.

    A server chooses its own seed, so runs are never the same twice. When nothing is heard of the
    server in a run any more, the step is the episode's last, truncated. The endpoint belongs to one
    thread; any number of them may be in one process.

    Args:
        address: the server's lobby, ``"host:port"``.
        instance: ``"name"`` or ``"name:number"``.
        limits: `Limits.datagram` is the size of the largest datagram.
        observation_space: the space that the observation's text is read for. Without it and the
            next one, a slot is taken at once, since a server of ours tells who has one.
        action_space: the space of actions.
        agent: the slot to play; None for the first that is open.
        timeout: seconds that a step waits for a frame, and a reset for answers.
        start_timeout: seconds that a reset waits for a slot, for the run before to end, and
            again for the run to begin. None for ever.
        options: the `Client`'s.

    Attributes:
        client: for what is not of an environment: the lobby, messages, statistics.
    """

    def __init__(
        self,
        address: AddressLike,
        instance: str,
        *,
        limits: Limits = DEFAULT,
        observation_space: Any = None,
        action_space: Any = None,
        agent: str | None = None,
        timeout: float = 10.0,
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
        self._begun = ""
        with on_error(self.client.close):
            if observation_space is None or action_space is None:
                told = self._told(limits)
                observation_space = told[0] if observation_space is None else observation_space
                action_space = told[1] if action_space is None else action_space
            self._observations = SpaceText(
                observation_space, "the observation", named=True, limits=limits
            )
            self._actions = SpaceText(action_space, "the action", named=False, limits=limits)
        self.observation_space = observation_space
        self.action_space = action_space

    def _told(self, limits: Limits) -> tuple[Any, Any]:
        """Return the spaces of the slot, as the server tells them to who holds it."""
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
            f"{client} does not tell its spaces: give observation_space= and "
            f"action_space=, or like="
        )

    @property
    def places(self) -> int:
        """How many slots the instance has."""
        return len(self.client.lobby(self._timeout))

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Get a slot in the next run, after the end of one that goes on, and say ready.

        The server chooses its own seed and options.
        """
        self._begun = "reset"
        self._finish_run()
        self._key = self._register()
        self.client.ready()

    def begin_step(self, action: Any) -> None:
        """Say what to do from now on."""
        self._begun = "step"
        if self._over:
            raise LocalProtocolError(f"{self.client}: call reset() first")
        text = self._actions.to_text(action)
        if not self._actions.contains(self._actions.from_text(text)):  # as the server will ask
            raise EncodeError(f"the action {action!r} is not in {self.action_space}")
        frame = self._frame
        if frame is None or not frame.done:  # else the run was over when it began
            self.client.act(text)

    def finish(self) -> Outcome:
        """Return the first observation of a run that begins, or the newest one of a step."""
        client, frame = self.client, self._frame
        if self._begun == "step":
            if frame is not None and frame.done:
                return self._take([])
            try:
                frames = client.frames(self._timeout)
            except (ConnectionClosed, DeadlineExceeded) as error:
                late = isinstance(error, DeadlineExceeded) and client.state in _PLAYING
                if late or client.state is State.CLOSED:
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
        """Leave. The server frees a slot in the lobby after a while; a run goes on without us."""
        self.client.close()

    def _finish_run(self) -> None:
        """Wait for the end of a run that goes on."""
        client = self.client
        deadline = monotonic() + (self._start_timeout or math.inf)
        while client.state in _PLAYING:
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
        if not frames:  # the first was the last
            assert before is not None
            observation, info = self._seen
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
        return {
            "step": frame.step,
            "timestamp": frame.timestamp,
            "age": max(0.0, monotonic() - frame.timestamp / 1000 - self._fastest),
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

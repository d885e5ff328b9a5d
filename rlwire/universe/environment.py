"""`UniverseEndpoint`: a remote's pixels and rewards, for Gymnasium."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rewarder.infos import SIZE, SPACES
from rlwire.codecs.rfb.decoder import Rectangle
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.pacing import Pacer
from rlwire.environments.spaces import spaces_of
from rlwire.errors import (
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
    on_error,
)
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.transports.connection import Connection
from rlwire.transports.sockets import Backoff, Timeouts, is_permanent
from rlwire.universe.input import split_action
from rlwire.universe.options import UniverseEnvironmentOptions
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.universe.rewarder.environment import ACTION, pop_flags
from rlwire.universe.rfb.client import RfbClient
from rlwire.universe.spaces import Events, choices, pictures

RUNNING: Final = "running"
"""The `env_state` in which agents receive observations and act."""

_LOST = (RlwireError, OSError)
_REFUSED = 256  # refused actions in one step, at most; the last one's reason counts
_WAIT = 0.02  # seconds for a picture, at most, between two looks at the rewarder


class UniverseEndpoint(Endpoint):
    """A remote's pixels and rewards at a fixed rate; needs Gymnasium (the extra ``gym``).

    While an environment resets, actions are not sent. After the end of an episode, a reset without
    a seed continues with the episode that the remote started by itself.

    `rewarder` and `pixels` are the arguments of its two clients; without `rewarder` there are only
    pixels.
    """

    def __init__(
        self,
        name: str,
        rewarder: Mapping[str, Any] | None,
        pixels: Mapping[str, Any],
        options: UniverseEnvironmentOptions,
        *,
        env_id: str | None = None,
        observation_space: Any = None,
        action_space: Any = None,
        copy: bool = True,
    ) -> None:
        self._name, self._rewarder, self._pixels = name, rewarder, pixels
        self._env_id = env_id
        reset_timeout = 60.0 if options.reset_timeout is None else options.reset_timeout
        start_timeout, actions = options.start_timeout, options.actions
        self._reset_timeout, self._within = reset_timeout, f"reset_timeout={reset_timeout:g} s"
        self._rate, self._pacer = options.rate, Pacer(options.rate)
        self._resetting = False
        self._needs_reset, self._continues = True, False
        self._wanted: tuple[Any, ...] = ()  # the arguments of the last reset
        self._request: int | None = None  # its number, until the reply is awaited
        self._kept = 0.0  # rewards that arrived with the reset's observation
        self._into: NDArray[np.uint8] | None = None  # see `write_to`
        self._connect(f"start_timeout={start_timeout:g} s", time.monotonic() + start_timeout)
        with on_error(self.close):
            self._select()
            size = self.screen.width, self.screen.height
            self.observation_space = pictures(size)
            if observation_space not in (None, self.observation_space):
                raise EncodeError(f"pixels are {self.observation_space}, not {observation_space}")
            if not copy:
                self.write_to(np.zeros(self.observation_space.shape, np.uint8))
            self._events: Callable[[Any], Sequence[Any]] = lambda action: action
            if actions is not None:
                self.action_space, self._events = choices(actions)
            else:
                described = spaces_of(self._about.get(SPACES))
                self.episode = described.episode if described else {}
                if action_space is None:
                    action_space = Events(size=size) if described is None else described[1]
                self.action_space = action_space
                if not isinstance(action_space, Events):
                    fit = fitting(action_space, "the action", within=True)
                    self._events = lambda action: [(ACTION, plain(fit(action)))]

    # Connections.

    def _connect(self, within: str, until: float) -> None:
        """Connect both, and wait for the first picture; retry until then.

        A remote that is being started may accept connections and close them.
        """
        for delay in Backoff(1 << 30, longest=1.0).delays():
            given = {"timeout": Timeouts(connect=max(0.001, until - time.monotonic()), idle=None)}
            try:
                with contextlib.ExitStack() as undo:
                    self.client: RewarderClient | None = None
                    if self._rewarder is not None:
                        self.client = RewarderClient(**{**given, **self._rewarder})
                        undo.enter_context(self.client)
                    self.screen = RfbClient(**{**given, **self._pixels})
                    undo.enter_context(self.screen)
                    self._draw(self.screen.update(max(0.001, until - time.monotonic())))
                    self._undo = undo.pop_all()
                return
            except OSError as error:
                if is_permanent(error):
                    raise
                if time.monotonic() + delay >= until:
                    text = f"{self._name}: not connected within {within}: {error}"
                    raise DeadlineExceeded(text) from error
            time.sleep(delay)

    @property
    def _about(self) -> Mapping[str, Any]:
        return {} if self.client is None else self.client.session.about

    def _select(self) -> None:
        """Reset to another environment of an rlwire server, for its spaces and screen size."""
        client = self.client
        if client is None or client.observer or SPACES not in self._about:
            return
        if self._env_id not in (None, client.session.env_id):
            self.begin_reset(None, None)
            self._reset()
            while self._about.get(SIZE) not in (None, [self.screen.width, self.screen.height]):
                self._draw(self.screen.update(self._left(f"picture of {self._env_id}")))

    def close(self) -> None:
        self._undo.close()

    # Pictures.

    def write_to(self, row: NDArray[np.uint8]) -> None:
        """Write pictures to a row of a batch, of the observation's shape."""
        self._into = row
        self._draw([])
        self.screen.snapshot(row)

    def _draw(self, changes: Sequence[Rectangle]) -> None:
        """Copy the changes to the array of `write_to`, if there is one."""
        into = self._into
        if into is None:
            return
        pixels = self.screen.framebuffer.pixels
        if pixels.shape != into.shape:
            raise RemoteProtocolError(
                f"{self._name}: the screen is {self.screen.width}x{self.screen.height} pixels now, "
                f"and does not fit the array of write_to(); create the environment again"
            )
        for r in changes:
            area = slice(r.y, r.y + r.height), slice(r.x, r.x + r.width)
            into[area] = pixels[area]

    def _picture(self) -> NDArray[np.uint8]:
        return self.screen.snapshot() if self._into is None else self._into

    def start_rendering(self) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self._rate}
        self.render_mode = "rgb_array"

    def render(self) -> NDArray[np.uint8] | None:
        return None if self.render_mode is None else self.screen.snapshot()

    # Resets and steps.

    @property
    def places(self) -> int | None:
        return None if self._rewarder is None else 1

    @property
    def _running(self) -> bool:
        """Whether an episode runs, so that the agent observes and acts."""
        client = self.client
        return client is None or (
            client.session.episode_id is not None and client.session.env_state == RUNNING
        )

    @property
    def _lost(self) -> str:
        """Which connection has ended."""
        if self.screen.ended:
            return "VNC session"
        return "Rewarder session" if self.client is not None and self.client.ended else ""

    def _left(self, what: str) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{self._name}: no {what} within {self._within}")
        return left

    def _enter(self) -> None:
        """Let the calling thread use the screen: an environment may move between threads."""
        connection = self.screen.connection
        if isinstance(connection, Connection):
            connection.release()

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        self._enter()
        self._until = time.monotonic() + self._reset_timeout
        self._wanted, self._kept = (self._env_id, seed, options), 0.0
        if (seed is not None or options or not self._continues) and not self._lost:
            with contextlib.suppress(OSError, PeerError):  # `finish` connects again
                self._send_reset()
        self._resetting, self._continues, self._needs_reset = True, False, True

    def _send_reset(self) -> None:
        if self.client is not None and not self.client.observer:
            self._request = self.client.send_reset(*self._wanted, fps=self._rate)

    def finish(self) -> Outcome:
        return self._reset() if self._resetting else self._step()

    def _reset(self) -> Outcome:
        if self._lost:
            self.close()
            self._connect(self._within, self._until)
            self._send_reset()
        number, self._request = self._request, None
        if self.client is not None and number is not None:
            self.client.await_reset(number, self._left("reply to a reset"))
        info: dict[str, Any] = {}
        while True:
            step = self._poll()
            if step.done:
                self._kept, info = 0.0, {}
            else:
                self._kept += step.reward
                info |= step.info
            if self._running:
                break
            left = self._left("running episode")
            with contextlib.suppress(DeadlineExceeded):
                self._draw(self.screen.update(min(left, _WAIT)))
        self._needs_reset = False
        self._pacer.restart()
        self._pacer.advance()
        return self._picture(), info

    def encode_step(self, action: Any) -> tuple[list[Any], list[Sequence[Any]]]:
        self._enter()
        if self._needs_reset:
            raise LocalProtocolError(f"{self._name}: no episode is running, call reset()")
        return split_action(self._events(action))

    def send_step(self, encoded: tuple[list[Any], list[Sequence[Any]]]) -> None:
        self._resetting = False
        if not self._running:
            return
        messages, others = encoded
        with contextlib.suppress(OSError, PeerError):  # `finish` reports it
            if messages:
                self.screen.send(messages)
            if others and self.client is not None:
                self.client.act(others)

    def _poll(self) -> RewarderStep:
        """Return what has arrived; raise the error of a lost connection."""
        self._draw(self.screen.poll())
        client = self.client
        step = RewarderStep(0.0, False, {})
        if client is None:
            return step
        refused = ""
        for _ in range(_REFUSED):
            try:
                step = client.poll()
                break
            except PeerError as error:
                if error is client.error:
                    raise
                refused = str(error)  # an action; the episode continues
        if refused:
            step.info["env.refused"] = refused
        if step.texts:
            step.info["text"] = [*step.texts]
        return step

    def _step(self) -> Outcome:
        missed = self._pacer.wait()
        kept, self._kept = self._kept, 0.0
        try:
            step = self._poll()
        except _LOST as error:
            if not self._lost:
                raise
            self._needs_reset = True
            reason = f"{self._name}: {self._lost} failed: {error}"
            return self._picture(), kept, False, True, {"lost": reason}
        info, reward = step.info, kept + step.reward
        if missed:
            info["stats.throttle.missed"] = missed
        if not step.done:
            return self._picture(), reward, False, False, info
        self._needs_reset = self._continues = True
        return self._picture(), reward, *pop_flags(info, step.cut), info

"""`UniverseServer`: an environment as a remote of Universe."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlwire._options import StreamServerOptions, given, with_options
from rlwire.codecs.casting import as_array, flag, real
from rlwire.codecs.rewarder.infos import SIZE
from rlwire.environments.driver import Driven
from rlwire.errors import on_error
from rlwire.serving.serving import Running
from rlwire.universe.input import Controls, buttons_of, keys_of
from rlwire.universe.options import UniverseServerOptions
from rlwire.universe.page import PageServer
from rlwire.universe.rewarder.player import EnvironmentPlayer
from rlwire.universe.rewarder.server import RewarderServer
from rlwire.universe.rfb.server import Display, RfbServer
from rlwire.urls import parse_url

Frame: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
"""Height x width x 3, uint8."""
Source: TypeAlias = Literal["observation", "render"]

_SIDE = 16_384  # pixels
_SHARED = [
    field.name for field in fields(StreamServerOptions) if field.name not in ("address", "record")
]


class ScreenPlayer(EnvironmentPlayer):
    """Also shows the environment's frames on a `display`, whose viewers act through `controls`."""

    controls: Controls
    pushes_observations = False

    def __init__(self, environment: Any, options: UniverseServerOptions) -> None:
        self._keys, self._play_function, self._frames = options.keys, options.play, options.frames
        super().__init__(environment, options)
        with on_error(self.end):
            shape = self.driven.observation_space.shape
            height, width = shape[:2] if self._source == "observation" else (480, 640)
            self.display = Display(
                width,  # until the first episode begins
                height,
                name=self.env_id,
                on_input=lambda *event: self.controls.receive(*event),
                on_leave=lambda viewer: self.controls.leave(viewer),
            )

    def _use(self, driven: Driven) -> dict[str, Any]:
        description, keys = super()._use(driven), self._keys
        self._frame, self._source = frames_of(driven, self._frames)
        if not keys and self._play_function is None:
            keys = keys_of(driven.environment)
        self.controls = Controls(keys, self._play_function, self._fit_action)
        return description

    def _has_audience(self) -> bool:
        return bool(self.server.clients or self.display.viewers)

    def _next_action(self) -> Any:
        action = None if self.lockstep else self.controls.action()
        if action is None:
            action = self._action
        return self.controls.idle if action is None else action

    def _prepare(self, observation: Any) -> Any:
        frame = self._frame(observation)
        if "about" in self._changes:  # of another environment
            self._changes["about"][SIZE] = [frame.shape[1], frame.shape[0]]
        return frame, super()._prepare(observation) if self._source == "render" else None

    def _show(self, prepared: Any) -> None:
        frame, observation = prepared
        self.display.show(frame)
        if self._source == "render":
            super()._show(observation)


class UniverseServer(RewarderServer):
    """Serves an environment in real time: rewards to agents and observers, pixels to VNC viewers.

    ::

        with UniverseServer("gym:ALE/Pong-v5", "universe://localhost:5900+15900") as server:
            ...

    The environment steps while a client or a viewer is connected. While a viewer holds down the
    keys of an action, that action replaces the agent's last one. In lockstep only agents act.

    Attributes:
        display: what viewers see.
        player: steps the environment; `controls` map viewers' keys to its actions.
        page: the `PageServer`, if any.

    The environment is as for `EnvironmentRewarder`. `rlwire.serve` makes ``"gym:ID"`` with
    ``render_mode="rgb_array"``. `keys` are as in `rlwire.universe.input.Keys`, `play` as in
    `rlwire.universe.input.Play`, and `page` is a port, an address, or True for port 6080, see
    `rlwire.universe.page.PageServer`.

    Raises:
        TypeError: the environment has no pictures.
        ValueError: an argument is invalid.
        MissingExtra: VNC passwords need the extra ``gym``.
    """

    player: ScreenPlayer

    @with_options(UniverseServerOptions)
    def __init__(self, environment: Any, options: UniverseServerOptions) -> None:
        self._url = url = parse_url(options.address)
        self._score: dict[str, Any] = {"episode": 0, "score": 0.0, "best": None, "last": None}
        if url.pixels_address is None:
            raise ValueError(f"{url.shown}: pixels need a port, such as {url.host}:5900+{url.port}")
        options = replace(options, name=url.path or options.name)
        self.player = player = ScreenPlayer(environment, options)
        self.display = player.display
        with on_error(player.end):
            served = {**player.served(options), "address": url.address}
            super().__init__(player.env_id, **served)
            player.server = self
            own = given(options)
            shared = {name: own[name] for name in _SHARED if name in own}
            pixels = {"limits": options.limits, "record": options.record, **shared}
            pixels["view_auth"] = options.view_auth
            pixels = {"auth": self.auth, **pixels, **(options.pixels or {})}
            self._pixels = RfbServer(self.display, url.pixels_address, **pixels)
            self.page: PageServer | None = None
            if options.page is not None:
                self.page = PageServer(
                    self.display,
                    options.page,
                    host=url.host or "localhost",
                    auth=self.auth,
                    about=self._about,
                    origins=options.origins,
                    **shared,
                )
        self._pixels.log_level = logging.DEBUG  # this server logs both addresses
        self._viewing = [server for server in (self._pixels, self.page) if server is not None]

    @property
    def viewers(self) -> int:
        return self.display.viewers

    @property
    def url(self) -> str:
        """The URL for agents and viewers, with the bound ports and a random password."""
        url = self._url
        made = (("password", self.auth),) if self._random else ()
        changes: dict[str, Any] = {"tls": self._encrypted, "options": made}
        if url.unix is None:
            changes["pixels"] = self._pixels.address.port
            if not url.only_pixels:
                changes["port"] = self.address.port
        return str(url.replace(**changes))

    def statistics(self) -> dict[str, int]:
        """Return the rewarder's statistics, and those of VNC and the page as ``pixels_...``."""
        counts = Counter(self._pixels.statistics())
        counts.update({} if self.page is None else dict(self.page.counts))
        counts["viewers"] = self.viewers
        pixels = {f"pixels_{name}": count for name, count in counts.items()}
        return {**super().statistics(), **pixels}

    def drain(self, seconds: float, grace: float = 5.0) -> None:
        """Drain viewers, then agents, within `seconds` in all; then stop."""
        until = time.monotonic() + seconds
        for server in self._viewing:
            server.drain(max(0.0, until - time.monotonic()), grace)
        super().drain(max(0.0, until - time.monotonic()), grace)

    def reward(self, value: float, done: bool = False, *more: Any, **options: Any) -> None:
        super().reward(value, done, *more, **options)
        was, gain = self._score, real(value, "the reward")
        now = {"score": was["score"] + (gain if math.isfinite(gain) else 0.0)}
        if done is not False and flag(done, "done"):
            now["last"] = {"episode": was["episode"], "score": now["score"]}
            now["best"] = now["score"] if was["best"] is None else max(was["best"], now["score"])
        self._score = {**was, **now}
        if self.page is not None:
            self.page.update()

    def begin_episode(self, *arguments: Any, **options: Any) -> str:
        episode = super().begin_episode(*arguments, **options)
        self._score = {**self._score, "episode": self._score["episode"] + 1, "score": 0.0}
        return episode

    def _about(self) -> dict[str, Any]:
        """Return what the page tells."""
        player = self.player
        buttons = buttons_of(player.driven.environment, player.controls.keys)
        rate = None if player.lockstep else self.status.fps
        return {"name": self.display.name, "buttons": buttons, "rate": rate, **self._score}

    def _listen(self) -> Running:
        with on_error(self._stop_viewing):
            for server in self._viewing:
                server.start()
            return self._pixels if self._url.only_pixels else super()._listen()

    def _stop_viewing(self) -> None:
        for server in reversed(self._viewing):
            server.stop()

    def _after_stop(self) -> None:
        self._stop_viewing()
        super()._after_stop()

    def _details(self) -> str:
        return f"{super()._details()}, {self.display}"


def is_picture(space: Any) -> bool:
    """Return whether a space's observations are uint8 pictures: grey, RGB or RGBA."""
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype) != np.uint8:
        return False
    plane = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    return plane and all(8 <= side <= _SIDE for side in shape[:2])


def as_frame(picture: Any) -> Frame:
    array: Frame = as_array(picture, "the picture")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    return array[:, :, :3] if array.shape[2:] == (4,) else array


def frames_of(
    driven: Driven, source: Source | None = None
) -> tuple[Callable[[Any], Frame], Source]:
    """Return the function that makes a frame of an observation, and the frame's source."""
    space, environment = driven.observation_space, driven.environment
    picture = is_picture(space)
    renders = getattr(environment, "render_mode", None) == "rgb_array"
    if source is None:
        colour = picture and len(space.shape) == 3 and space.shape[2] > 1
        source = "observation" if picture and (colour or not renders) else "render"
    if source == "observation":
        if not picture:
            raise TypeError(
                f"{driven.name}: frames are uint8, height x width x 3; observations are {space}"
            )
        return as_frame, source
    if not renders:
        raise TypeError(
            f"{driven.name} has no pictures: its observations are {space}; make it with "
            f'render_mode="rgb_array" (--env-kwargs render_mode=rgb_array)'
        )
    return lambda observation: as_frame(environment.render()), source

"""`UniverseServer`: an environment as a remote of Universe: rewards, pixels, keyboard and mouse."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from rlwire.environments.driver import drive
from rlwire.errors import on_error
from rlwire.limits import Limits
from rlwire.registry import URL, parse_url
from rlwire.serving.serving import Running
from rlwire.transports.address import Address
from rlwire.universe.controls import Controls, Keys, Play, keys_of
from rlwire.universe.frames import Source, frames_of
from rlwire.universe.page import PagePlace, RemoteServers
from rlwire.universe.rewarder.environment import EnvironmentRewarder
from rlwire.universe.rfb.server import Display, RfbServer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlwire.serving.serving import StreamOptions

logger = logging.getLogger(__name__)

PIXELS = "rlwire.pixels"
"""The field of ``v0.env.describe``'s body that says what the pixels are; no part of the document:
``"observation"``, or ``"render"`` for a picture beside it."""


class UniverseServer(RemoteServers):
    """Serves an environment whose pixels are watched, and which is played, by agents and people.

    ::

        with UniverseServer("gym:ALE/Pong-v5", "universe://localhost:5900+15900") as server:
            ...

    Frames go to any VNC viewer, rewards to agents and observers; it steps in real time, as long as
    anybody looks on. Keys and buttons that mean an action are in force as long as a viewer holds
    them down, and then the agent's last action again. In lockstep, steps are an agent's alone.

    Args:
        environment: as `EnvironmentRewarder` takes it. Who makes it by name, ``"gym:ID"``, gets
            ``render_mode="rgb_array"`` from the front door.
        url: where to listen for both: ``universe://host:5900+15900``; ``host:5900`` is without a
            rewarder. The path is the environment's id.
        auth: the password of both connections and of the page, of which VNC looks at the first 8
            bytes; None lets all in. By default the rewarder's is the document's, ``"openai"``, and
            VNC and the page have none.
        view_auth: a second password of VNC, for people who shall only watch.
        keys: actions by keys and buttons, as `controls.Keys` has it; by default those that the
            environment has for people (Gymnasium's ``get_keys_to_action``).
        play: instead, a function that returns the action; see `controls.Play`.
        frames: where they come from, ``"observation"`` or ``"render"``; see `frames.frames_of`.
        page: a port, or an address, for a page that watches and plays in a browser; see
            `PageServer`. None for none.
        novnc: where the page finds noVNC.
        rate: steps a second.
        origins: the pages of others that may connect to the rewarder.
        pixels: options of the `RfbServer` alone.
        rewards: options of the `EnvironmentRewarder` alone, such as `seed`, `lockstep`, `env_id`.
        limits: maxima for what is read.
        options: `rlwire.serving.serving.StreamOptions`, of all.

    Raises:
        TypeError: it is no environment, or looks like nothing.
        ValueError: an argument makes no sense.
        MissingExtra: a password is given, and the extra ``universe`` is not installed.
    """

    def __init__(
        self,
        environment: Any,
        url: URL | str = "universe://127.0.0.1:5900+15900",
        *,
        auth: str | EllipsisType | None = ...,
        view_auth: str | None = None,
        keys: Keys | None = None,
        play: Play | None = None,
        frames: Source | None = None,
        page: PagePlace = None,
        novnc: str | None = None,
        rate: float = 60,
        origins: Collection[str] = (),
        pixels: Mapping[str, Any] | None = None,
        rewards: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        secret = None if isinstance(auth, EllipsisType) else auth
        auth = "openai" if isinstance(auth, EllipsisType) else auth
        where = parse_url(url)
        if where.pixels_address is None:
            raise ValueError(f"{where}: its pixels need a port: {where.host}:5900+{where.port}")
        self._player = _Player(
            environment,
            where.address,
            self,
            frames,
            Controls(keys, play) if keys or play is not None else None,
            listens=not where.only_pixels,
            auth=auth,
            fps=rate,
            origins=origins,
            env_id=where.path or None,
            limits=limits,
            **{**(rewards or {}), **options},
        )
        self._pixels = RfbServer(
            self._player.display,
            where.pixels_address,
            auth=secret,
            view_auth=view_auth,
            limits=limits,
            **{**(pixels or {}), **options},
        )
        super().__init__(
            where,
            {"rewards": self._player, "pixels": self._pixels},
            page,
            auth=secret,
            rewarder_auth=auth,
            about=self.about,
            novnc=novnc,
            **options,
        )

    @property
    def viewers(self) -> int:
        """How many VNC viewers there are, those of the page among them."""
        return self._pixels.viewers

    def about(self) -> dict[str, Any]:
        """Return what a page tells of the environment: its name, and what its keys do."""
        return {"name": self.display.name, "keys": dict(self.controls.keys)}

    @property
    def display(self) -> Display:
        """What viewers see."""
        return self._player.display

    @property
    def controls(self) -> Controls:
        """What viewers hold down."""
        return self._player.controls


class _Player(EnvironmentRewarder):
    """Plays the environment for clients and viewers."""

    def __init__(
        self,
        environment: Any,
        address: Address,
        whole: UniverseServer,
        source: Source | None,
        controls: Controls | None,
        *,
        listens: bool,
        about: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        driven = drive(environment)
        try:
            self._frame, self._source = frames_of(driven, source)
            self.controls = controls or Controls(keys_of(driven.environment))
        except BaseException:
            if driven.owned:
                driven.close()
            raise
        self._whole = whole
        self._listens = listens
        super().__init__(driven, address, about={PIXELS: self._source, **(about or {})}, **options)
        with on_error(self._close_environment):
            self.controls.convert(self._playable)
        space = driven.observation_space
        height, width = space.shape[:2] if self._source == "observation" else (480, 640)
        self.display = Display(
            width,
            height,
            name=self.status.env_id or driven.name,
            on_input=self.controls.take,
            on_leave=self.controls.leave,
        )

    def _playable(self, action: Any) -> Any:
        """Return an action of a key as the environment takes it: it may be written as in JSON."""
        return self._fit_action(action)

    def stop_soon(self) -> None:
        """Stop all of it."""
        self._whole.stop_soon()

    def _listen(self) -> Running:
        return super()._listen() if self._listens else _Nobody(self._where)

    def _watched(self) -> bool:
        return bool(self.clients or self._whole.viewers)

    def _chosen(self) -> Any:
        action = None if self._lockstep else self.controls.action()
        if action is None:
            action = self._action
        return self.controls.idle if action is None else action

    def _show(self, observation: Any) -> None:
        self.display.show(self._frame(observation))
        if self._source == "render":
            super()._show(observation)


class _Nobody:
    """What serves rewards where there are only pixels: nothing."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def drain(self, seconds: float) -> None:
        pass

    def stop(self, grace: float) -> None:
        pass

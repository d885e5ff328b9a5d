"""`UniverseServer`: an environment as a remote of Universe."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rlwire.environments.driver import Driven, drive
from rlwire.errors import on_error
from rlwire.limits import Limits
from rlwire.registry import URL, parse_url
from rlwire.serving.serving import BackgroundServer, Running
from rlwire.sessions.guesses import new_password
from rlwire.transports.address import Address
from rlwire.universe.input import Controls, Keys, Play, keys_of
from rlwire.universe.rewarder import EnvironmentRewarder
from rlwire.universe.rfb.server import Display, RfbServer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlwire.serving.serving import StreamOptions

logger = logging.getLogger(__name__)

PIXELS = "rlwire.pixels"
"""Our field of ``v0.env.describe``'s body: whether frames are ``"observation"`` or ``"render"``."""

Frame: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
"""Height x width x 3, uint8."""
Source: TypeAlias = Literal["observation", "render"]

_SIDE = 16_384  # pixels: no screen is larger


class UniverseServer(BackgroundServer):
    """Serves an environment in real time: pixels to VNC viewers, rewards to agents and observers.

    ::

        with UniverseServer("gym:ALE/Pong-v5", "universe://localhost:5900+15900") as server:
            ...

    The environment steps while a client is connected. While a viewer holds down the keys of an
    action, that action replaces the agent's last one. In lockstep only agents act.

    Args:
        environment: as for `EnvironmentRewarder`. The front door makes ``"gym:ID"`` with
            ``render_mode="rgb_array"``.
        url: both addresses, ``universe://host:5900+15900``; ``host:5900`` has no rewarder. The
            path is the environment's id.
        auth: the password of both connections, of which VNC compares 8 bytes; None accepts all
            clients. By default a random one, which is in `url` and in the log. The original's
            clients send ``"openai"``.
        view_auth: a second VNC password, for viewers that only watch.
        keys: actions by keys and buttons, see `rlwire.universe.input.Keys`; by default Gymnasium's
            ``get_keys_to_action``.
        play: a function that returns the action instead, see `rlwire.universe.input.Play`.
        frames: ``"observation"`` or ``"render"``. By default the observation if it is a colour
            picture, otherwise what the environment renders.
        rate: steps a second.
        origins: pages whose scripts may connect to the rewarder.
        pixels: options of the `RfbServer` alone.
        rewards: options of the `EnvironmentRewarder` alone, such as ``seed`` and ``lockstep``.
        limits: maxima for received messages.
        options: `rlwire.serving.serving.StreamOptions` of both servers.

    Raises:
        TypeError: the environment has no pictures.
        ValueError: an argument is invalid.
        MissingExtra: VNC passwords need the extra ``universe``.
    """

    scheme = "universe"

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
        rate: float = 60,
        origins: Collection[str] = (),
        pixels: Mapping[str, Any] | None = None,
        rewards: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        self._password = new_password() if isinstance(auth, EllipsisType) else None
        auth = self._password if isinstance(auth, EllipsisType) else auth
        self._url = parse_url(url)
        if self._url.pixels_address is None:
            raise ValueError(
                f"{self._url}: its pixels need a port: {self._url.host}:5900+{self._url.port}"
            )
        self._rewards = _PlayedRewarder(
            environment,
            self._url.address,
            self,
            frames,
            Controls(keys, play) if keys or play is not None else None,
            listens=not self._url.only_pixels,
            auth=auth,
            rate=rate,
            origins=origins,
            env_id=self._url.path or None,
            limits=limits,
            **{**(rewards or {}), **options},
        )
        self.display, self.controls = self._rewards.display, self._rewards.controls
        self._pixels = RfbServer(
            self.display,
            self._url.pixels_address,
            auth=auth,
            view_auth=view_auth,
            limits=limits,
            **{**(pixels or {}), **options},
        )
        self._servers: list[BackgroundServer] = [self._rewards, self._pixels]
        for server in self._servers:
            server._level = logging.DEBUG  # this server logs both addresses
        super().__init__(self._rewards.address)
        self._guarded = True  # each of the two warns
        self._encrypted = options.get("tls") is not None

    @property
    def viewers(self) -> int:
        """The number of connected VNC viewers."""
        return self._pixels.viewers

    @property
    def url(self) -> str:
        """Where agents and viewers connect, with the system's ports and a random password."""
        url = self._url
        made = () if self._password is None else (("password", self._password),)
        changes: dict[str, Any] = {"tls": self._encrypted, "options": made}
        if url.unix is None:
            changes["pixels"] = self._pixels.address.port
            if not url.only_pixels:
                changes["port"] = self._rewards.address.port
        return str(url.replace(**changes))

    def statistics(self) -> dict[str, Any]:
        """Return the statistics of ``rewards`` and ``pixels``."""
        return {"rewards": self._rewards.statistics(), "pixels": self._pixels.statistics()}

    def _run(self) -> Running:
        with contextlib.ExitStack() as undo:
            for server in self._servers:
                undo.callback(server.stop)
                server.start()
            undo.pop_all()
        return _RunningServers(self._servers, self._rewards.address)

    def _details(self) -> str:
        return f"2 servers: {self._rewards._details()}; {self._pixels._details()}"

    def _after_stop(self) -> None:
        """Each of the two servers cleans up by itself."""


class _RunningServers:
    """Servers that drain and stop together, in reverse order."""

    def __init__(self, servers: Sequence[BackgroundServer], address: Address) -> None:
        self._servers = servers[::-1]
        self.address = address

    def drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for server in self._servers:
            server.drain(max(0.0, until - time.monotonic()))

    def stop(self, grace: float) -> None:
        until = time.monotonic() + grace
        for server in self._servers:
            server.stop(max(0.1, until - time.monotonic()))


class _PlayedRewarder(EnvironmentRewarder):
    """Steps the environment for clients and viewers, and shows its frames."""

    def __init__(
        self,
        environment: Any,
        address: Address,
        server: UniverseServer,
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
        self._whole = server
        self._listens = listens
        super().__init__(driven, address, about={PIXELS: self._source, **(about or {})}, **options)
        with on_error(self._close_environment):
            self.controls.convert(self._fit_action)
        space = driven.observation_space
        height, width = space.shape[:2] if self._source == "observation" else (480, 640)
        self.display = Display(
            width,
            height,
            name=self.status.env_id or driven.name,
            on_input=self.controls.receive,
            on_leave=self.controls.leave,
        )

    def stop_soon(self) -> None:
        """Stop all servers."""
        self._whole.stop_soon()

    def _listen(self) -> Running:
        return super()._listen() if self._listens else _RunningServers([], self._where)

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


def is_picture(space: Any) -> bool:
    """Return whether a space's observations are uint8 pictures: grey, RGB or RGBA."""
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype) != np.uint8:
        return False
    plane = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    return plane and all(8 <= side <= _SIDE for side in shape[:2])


def as_frame(picture: Any) -> Frame:
    """Return a picture as RGB: grey on all three channels, without alpha."""
    array = np.asarray(picture)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"a picture is height x width x 3 of uint8, not {array.shape} of {array.dtype}"
        )
    if not all(0 < side <= _SIDE for side in array.shape[:2]):
        raise ValueError(f"each side of a picture has 1 to {_SIDE} pixels, not {array.shape}")
    if array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    return np.ascontiguousarray(array[:, :, :3])


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
            f'render_mode="rgb_array"'
        )
    return lambda observation: as_frame(environment.render()), source

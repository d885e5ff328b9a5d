"""`Recording` reads what a `RecordingProxy` has written; `Replay` is an environment that plays it.

Pixels are decoded as a viewer decodes them (`rlwire.sessions.rfb.client`), so a recording shows
exactly what the recorded viewer saw. The files themselves are read by `fbs`.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlwire.adapters.universe.fbs import read_fbs
from rlwire.codecs.rewarder import AgentAction, EnvReward, decode
from rlwire.codecs.rfb.handshake import Security, decode_version
from rlwire.codecs.rfb.messages import (
    FramebufferUpdateRequest,
    KeyEvent,
    PointerEvent,
    SetPixelFormat,
    client_message_size,
    decode_client_message,
)
from rlwire.codecs.rfb.pixels import RGBX, PixelFormat
from rlwire.errors import DecodeError, RemoteProtocolError, optional
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rfb.client import ClientSession
from rlwire.sessions.rfb.events import Painted, Resized

__all__ = ["Moment", "Recording", "Replay"]

Frame: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_VERSION = 12  # bytes of RFB's first message
_RESPONSE = 16  # of the answer to VNC's challenge


class Moment(NamedTuple):
    """What happened at a time of a recording.

    Attributes:
        at: UNIX time in seconds.
        what: an array (H, W, 3) of uint8, the pixels from now on; a `KeyEvent` or `PointerEvent`;
            or a message of the rewarder's connection, such as `EnvReward` or `AgentAction`.
    """

    at: float
    what: Any


class Recording:
    """The recording of one agent: a folder with some of a `RecordingProxy`'s three files.

    Args:
        folder: where they are, such as ``recordings/1``.
        limits: maxima for what is read; `pixels`, `received` and `string` count.

    Raises:
        FileNotFoundError: there is neither of pixels nor of rewards a file.
    """

    def __init__(self, folder: str | os.PathLike[str], *, limits: Limits | None = None) -> None:
        self._limits = limits or DEFAULT
        self._paths = {
            name: path
            for name in ("server.fbs", "client.fbs", "rewards.demo")
            if os.path.exists(path := os.path.join(os.fspath(folder), name))
        }
        if not {"server.fbs", "rewards.demo"} & self._paths.keys():
            raise FileNotFoundError(f"{folder} has no server.fbs, and no rewards.demo")

    def __iter__(self) -> Iterator[Moment]:
        """Give all that happened, in the order of its times.

        Raises:
            OSError: a file cannot be read.
            DecodeError, LimitExceeded: it is none of its kind.
            RemoteProtocolError: its pixels changed their format, which cannot be followed.
        """
        parts = (self.frames(), self.inputs(), self.messages())
        return heapq.merge(*parts, key=attrgetter("at"))

    def frames(self) -> Iterator[Moment]:
        """Give the pixels after each update that changed them; each array is the reader's own."""
        path = self._paths.get("server.fbs")
        if path is None:
            return
        session = self._session()
        waiting = bytearray()
        for at, data in read_fbs(path, limits=self._limits):
            waiting += data
            changed = False
            for message in _whole(waiting, session.frame_size):
                events = session.receive(message)
                session.outgoing()  # which nobody hears
                changed |= any(
                    isinstance(event, Resized) or (isinstance(event, Painted) and event.rectangles)
                    for event in events
                )
            if changed and session.framebuffer is not None:
                yield Moment(at, session.framebuffer.snapshot())

    def inputs(self) -> Iterator[Moment]:
        """Give the keys and the mouse: each `KeyEvent` and `PointerEvent`."""
        for at, message in self._said():
            if isinstance(message, (KeyEvent, PointerEvent)):
                yield Moment(at, message)

    def messages(self) -> Iterator[Moment]:
        """Give the messages of the rewarder's connection, of both sides."""
        path = self._paths.get("rewards.demo")
        if path is None:
            return
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return  # it was cut off
                try:
                    known = json.loads(line)
                    if number == 1:
                        if known["version"] != 1:
                            raise DecodeError(f"{path} is of version {known['version']}, not 1")
                        continue
                    at, message = float(known["timestamp"]), known["message"]
                except (ValueError, TypeError, KeyError) as error:
                    if isinstance(error, DecodeError):
                        raise
                    raise DecodeError(f"{path}, line {number}: {error!r}") from None
                yield Moment(at, decode(json.dumps(message).encode()))

    def _session(self) -> ClientSession:
        """Return a session that hears what the recorded client heard."""
        mine = b""
        pixel_format: PixelFormat = RGBX
        if "client.fbs" in self._paths:
            mine = self._first("client.fbs", _VERSION + 1)
            pixel_format = self._pixel_format()
        version = decode_version(mine) if mine else (3, 8)
        return ClientSession(
            password="" if self._has_password(mine, version) else None,
            pixel_format=pixel_format,
            newest=version if version in ((3, 3), (3, 7), (3, 8)) else (3, 8),
            update_timeout=None,
            limits=self._limits,
        )

    def _pixel_format(self) -> PixelFormat:
        """Return the format in which the recorded client had pixels come."""
        found: PixelFormat | None = None
        asked = False
        for _, message in self._said():
            if isinstance(message, SetPixelFormat):
                if asked and message.pixel_format != found:
                    raise RemoteProtocolError(
                        "the recorded viewer changed its pixel format while updates were on their "
                        "way, so nobody can tell which of them have which"
                    )
                found = message.pixel_format
            asked |= isinstance(message, FramebufferUpdateRequest)
        if found is None:
            raise RemoteProtocolError(
                "the recorded viewer took the server's own pixel format, which is not read"
            )
        return found

    def _said(self) -> Iterator[tuple[float, Any]]:
        """Give the client's messages after its handshake."""
        path = self._paths.get("client.fbs")
        if path is None:
            return
        waiting = bytearray()
        skip: int | None = None  # bytes of the handshake
        for at, data in read_fbs(path, limits=self._limits):
            waiting += data
            if skip is None:
                skip = self._handshake_size(waiting)
                if skip is None:
                    continue
                del waiting[:skip]
            for message in _whole(waiting, partial(client_message_size, limits=self._limits)):
                yield at, decode_client_message(message, self._limits)

    def _handshake_size(self, mine: bytearray) -> int | None:
        """Return the size of a client's handshake, None if more bytes must tell."""
        if len(mine) < _VERSION + 1:
            return None
        version = decode_version(mine)
        size = _VERSION + (version >= (3, 7))
        size += (_RESPONSE if self._has_password(mine, version) else 0) + 1  # and ClientInit
        return size if len(mine) >= size else None

    def _has_password(self, mine: bytes | bytearray, version: tuple[int, int]) -> bool:
        """Whether the client has answered a challenge: before 3.7 the server says so, then it."""
        if version < (3, 7):
            said = self._first("server.fbs", _VERSION + 4)
            return int.from_bytes(said[_VERSION : _VERSION + 4], "big") == Security.VNC
        return mine[_VERSION : _VERSION + 1] == bytes([Security.VNC])

    def _first(self, name: str, size: int) -> bytes:
        """Return the first blocks of a file that have so many bytes, if there is one."""
        found = b""
        if name in self._paths:
            for _, data in read_fbs(self._paths[name], limits=self._limits):
                found += data
                if len(found) >= size:
                    break
        return found


def _whole(waiting: bytearray, size_of: Callable[[bytearray, int, int], int]) -> Iterator[bytes]:
    """Take the messages that are whole out of what waits."""
    start = 0
    while (size := size_of(waiting, start, len(waiting))) and start + size <= len(waiting):
        yield bytes(waiting[start : start + size])
        start += size
    del waiting[:start]


class Replay:
    """A recording as an environment: what is done makes no difference to it.

    ::

        rlwire.serve(Replay("recordings/1"), "universe://localhost:5900+15900", rate=30)

    Each step goes on by a part of a second, and gives the pixels of then and what was rewarded
    since. An episode ends where the recorded one did; the one after the last is the first again.
    Needs Gymnasium (the extra ``gym``).

    Args:
        folder: as `Recording` takes it; it must have pixels.
        fps: steps to a second of the recording.
        limits: maxima for what is read.

    Raises:
        ValueError: it has no pixels.
        What reading it raises.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's
    render_mode = "rgb_array"

    def __init__(
        self, folder: str | os.PathLike[str], *, fps: float = 60, limits: Limits | None = None
    ) -> None:
        with optional("gymnasium", "gym"):
            from gymnasium import spaces
        if not fps > 0:
            raise ValueError(f"fps must be positive, not {fps!r}")
        self._recording = Recording(folder, limits=limits)
        first = next(self._recording.frames(), None)
        if first is None:
            raise ValueError(f"{folder} has no pixels")
        self._step = 1.0 / fps
        self.observation_space = spaces.Box(0, 255, first.what.shape, np.uint8)
        self.action_space = spaces.Discrete(1)
        self._moments: Iterator[Moment] | None = None
        self._next: Moment | None = None
        self._frame: Frame = first.what
        self._now = 0.0

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Begin the next recorded episode; the seed counts for nothing."""
        if self._next is None:
            self._moments = iter(self._recording)
            while not isinstance(self._advance(), np.ndarray):
                pass
            assert self._next is not None
            self._now = self._next.at
            self._take(self._now)
        return self._frame, {}

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Go on by a step's time."""
        self._now += self._step
        reward, done, info = self._take(self._now)
        return self._frame, reward, done, self._next is None and not done, info

    def render(self) -> Frame:
        """Return the pixels."""
        return self._frame

    def close(self) -> None:
        """Let go of the files."""
        self._moments = self._next = None

    def _advance(self) -> Any:
        assert self._moments is not None
        self._next = next(self._moments, None)
        return None if self._next is None else self._next.what

    def _take(self, until: float) -> tuple[float, bool, dict[str, Any]]:
        """Take what happened until a time, or until an episode's end."""
        total, done = 0.0, False
        info: dict[str, Any] = {}
        while not done and self._next is not None and self._next.at <= until:
            what = self._next.what
            if isinstance(what, np.ndarray):
                self._frame = what
            elif isinstance(what, EnvReward):
                total, done = total + what.reward, what.done
                info.update(what.info)
            elif isinstance(what, AgentAction):
                info["rlwire.action"] = list(what.action)
            self._advance()
        return total, done, info

"""`RecordingProxy`: stands in front of a remote, and writes down what goes over both connections.

In the original program's files: of each connection's pixels ``server.fbs`` and ``client.fbs``, of
its rewarder ``rewards.demo``, JSON lines with every message of both sides. Reading them is in
`rlwire.adapters.universe.replay`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from rlwire.adapters.relay import Ear, Relay
from rlwire.adapters.universe.fbs import FbsWriter
from rlwire.adapters.universe.page import PagePlace, RemoteServers
from rlwire.adapters.universe.routes import PixelsRoute, RewardsRoute
from rlwire.protocols import URL
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.tls import ClientSide

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlwire.adapters.serving import StreamOptions

__all__ = ["Folders", "RecordingProxy"]

logger = logging.getLogger(__name__)

_EARLY = 1 << 20  # bytes that are kept of what a server says before its client's first word


class RecordingProxy(RemoteServers):
    """Stands in front of a remote; agents and viewers connect to it instead.

    ::

        with RecordingProxy(parse_url("universe://remote:5900+15900"),
                            parse_url("universe://localhost:5901+15901"), "recordings"):
            ...

    Each connection that says a word is written to ``recordings/N``, from 1 on: the pixels of the
    Nth that has pixels, and the rewards of the Nth that has rewards. Bytes are passed on as they
    are, passwords included, which the remote checks: ``client.fbs`` has the answer to VNC's
    challenge, by which whoever reads it can guess a short password.

    Args:
        remote: where the remote is.
        url: where to listen, for what the remote has.
        folder: where recordings go; made if it is not there. None only passes on.
        remote_tls: for a remote with TLS; by default the system's authorities for ``+tls``.
        origins: the pages that may connect to the rewarder.
        page: where a page for browsers is; see `PageServer`. None for none. It goes through the
            proxy, so who plays on it is recorded.
        novnc: where noVNC is, which the page needs.
        auth: the password of the page, and what it tells the rewarder.
        options: `rlwire.adapters.serving.StreamOptions`, of both.

    Raises:
        ValueError: the two URLs have not the same connections.
        OSError: the folder cannot be made.
    """

    def __init__(
        self,
        remote: URL,
        url: URL,
        folder: str | os.PathLike[str] | None = None,
        *,
        remote_tls: ClientSide = None,
        origins: Collection[str] = (),
        page: PagePlace = None,
        novnc: str | None = None,
        auth: str | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        shapes = {(each.pixels is None, each.only_pixels) for each in (remote, url)}
        if len(shapes) != 1:
            raise ValueError(f"{url} and {remote} must both have pixels, or rewards, or both")
        folders = None if folder is None else Folders(folder)
        parts: dict[str, Any] = {}
        if not url.only_pixels:
            rewards = RewardsRoute(
                remote, remote_tls, origins, None if folders is None else folders.rewards
            )
            parts["rewards"] = Relay("universe", url.address, rewards, **options)
        if url.pixels_address is not None:
            pixels = PixelsRoute(remote, remote_tls, None if folders is None else folders.pixels)
            parts["pixels"] = Relay("universe", url.pixels_address, pixels, **options)
        super().__init__(
            url, parts, page, auth=auth, rewarder_auth=auth or "openai", novnc=novnc, **options
        )


class Folders:
    """Numbered folders, and who writes to which.

    Args:
        folder: where they are.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._lock = threading.Lock()
        os.makedirs(self._folder, exist_ok=True)

    def pixels(self, connection: AsyncConnection) -> Ear:
        """Return who listens in on a connection of pixels."""
        return _Pixels(self, connection.peer)

    def rewards(self, connection: AsyncConnection) -> Ear:
        """Return who listens in on a rewarder's connection."""
        return _Rewards(self, connection.peer)

    def take(self, *names: str) -> list[str]:
        """Return paths of files that are not there yet, in the first folder without them."""
        with self._lock:
            number = 1
            while True:
                folder = os.path.join(self._folder, str(number))
                os.makedirs(folder, exist_ok=True)
                paths = [os.path.join(folder, name) for name in names]
                with contextlib.suppress(FileExistsError):
                    for path in paths:
                        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                    return paths
                number += 1


class _Late:
    """What is written from the client's first word on, and what was said before."""

    def __init__(self, folders: Folders, peer: str) -> None:
        self._folders = folders
        self._peer = peer
        self._early: list[tuple[Any, bool, float]] | None = []
        self._size = 0

    def hear(self, message: Any, from_server: bool) -> None:
        now = time.time()
        if self._early is not None:
            self._early.append((bytes(message), from_server, now))
            self._size += len(message)
            if from_server:
                if self._size > _EARLY:
                    self._early.clear()
                return
            if self._size > _EARLY:
                logger.warning("%s: what it heard before its first word is lost", self._peer)
            early, self._early = self._early, None
            self.begin(early[0][2] if early else now)
            for each in early:
                self.write(*each)
            return
        self.write(message, from_server, now)

    def close(self) -> None:
        if self._early is None:
            self.end()

    def begin(self, now: float) -> None:
        raise NotImplementedError

    def write(self, message: Any, from_server: bool, now: float) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class _Pixels(_Late):
    _files: list[BinaryIO]

    def begin(self, now: float) -> None:
        paths = self._folders.take("server.fbs", "client.fbs")
        self._files = [open(path, "wb") for path in paths]  # noqa: SIM115 - closed by `end`
        self._sides = [FbsWriter(file, now) for file in self._files]
        logger.info("%s: its pixels go to %s", self._peer, os.path.dirname(paths[0]))

    def write(self, message: Any, from_server: bool, now: float) -> None:
        self._sides[0 if from_server else 1].write(message, now)

    def end(self) -> None:
        for file, side in zip(self._files, self._sides, strict=True):
            with file:
                side.close(time.time())


class _Rewards(_Late):
    _file: TextIO

    def begin(self, now: float) -> None:
        (path,) = self._folders.take("rewards.demo")
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by `end`
        self._file.write('{"version": 1}\n')
        logger.info("%s: its rewards go to %s", self._peer, path)

    def write(self, message: Any, from_server: bool, now: float) -> None:
        # The message is JSON already, and goes into the line as it came; a line end in it is space.
        text = bytes(message).decode().replace("\n", " ").replace("\r", " ")
        json.loads(text)  # a line that is none would spoil the file
        said = "true" if from_server else "false"
        self._file.write(f'{{"timestamp": {now!r}, "message": {text}, "from_rewarder": {said}}}\n')
        self._file.flush()

    def end(self) -> None:
        self._file.close()

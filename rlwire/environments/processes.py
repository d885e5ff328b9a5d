"""`WorkerPart`: a `Batch` in a process of its own, with its columns in shared memory.

A step exchanges one byte each way, through shared memory where the system supports it. Infos,
attributes and errors follow as MessagePack. If a process dies, its environments' episodes are
truncated, and a new process replaces it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs import msgpack
from rlwire.environments.batch import Arguments, Batch, Infos, Shared
from rlwire.environments.infos import sendable
from rlwire.errors import ConnectionClosed, PeerError, on_error
from rlwire.transports.forking import of_this_process
from rlwire.transports.shm import ShmSocket
from rlwire.transports.shm_calls import AVAILABLE

logger = logging.getLogger(__name__)

Make = Callable[[], Any]
"""Makes an environment; picklable unless processes are forked."""

_LENGTH = struct.Struct("<Q")
_DONE, _MORE, _FAILED = b"d", b"m", b"f"  # replies; a value follows the last two
_STEP, _RESET, _CALL = b"s", b"r", b"c"  # requests; a value follows the last two
_JOIN = 5.0  # seconds for a process to end after its socket


class Memory:
    """Allocates arrays in a shared block, the same in both processes; without a block, counts."""

    LINE = 64  # bytes of a cache line: processes must not share one

    def __init__(self, block: Any = None) -> None:
        self._view = None if block is None else memoryview(block).cast("B")
        self.used = 0

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        start = self.used
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.used += -(-size // self.LINE) * self.LINE
        if self._view is None:
            return np.zeros(shape, dtype)
        return np.ndarray(shape, dtype, self._view[start : start + size])

    @classmethod
    def measured(cls, cut: Callable[[Any], object]) -> int:
        memory = cls()
        cut(memory)
        return memory.used


@dataclass(eq=False)
class WorkerPart:
    """A `Batch` in another process."""

    makes: Sequence[Make]
    shared: Shared
    recipe: Callable[[], Shared]
    mode: str
    context: Any
    first: int  # number of the first environment
    spin: float = 0.0  # seconds that the worker spins
    patience: float = 0.0  # seconds that the caller spins

    def __post_init__(self) -> None:
        self.size = len(self.makes)
        self._process: BaseProcess | None = None
        self._socket: socket.socket | None = None
        self._asked = b""
        self._busy = False  # whether a reply is pending
        of_this_process(self)
        self._start()

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        if self._busy:  # Ctrl-C interrupted the last request
            logger.warning(
                "process %s of environments %s: the last request was interrupted; starting another",
                self._process and self._process.pid, self._which,
            )  # fmt: skip
            self.close()
            self._start()
        self._ask(_RESET, [list(seeds), options, [bool(each) for each in mask]])

    def begin_step(self) -> None:
        self._asked, self._busy = _STEP, True
        with contextlib.suppress(OSError):  # the process died; `finish` reports it
            self._here.sendall(_STEP)

    def finish(self) -> Infos:
        try:
            found = self._answer()
        except OSError:
            return self._replace()
        return [] if found is None else [(place, info) for place, info in found]

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        self._ask(_CALL, [name, [each and [list(each[0]), dict(each[1])] for each in arguments]])
        found: list[Any] = self._answer()
        return found

    def close(self) -> None:
        """End the process, which closes its environments."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        process, self._process = self._process, None
        if process is None:
            return
        process.join(_JOIN)
        if process.is_alive():
            logger.warning(
                "process %s of environments %s did not end within %.0f s; killing it",
                process.pid, self._which, _JOIN,
            )  # fmt: skip
            process.kill()
            process.join()
        process.close()

    def close_inherited(self) -> None:
        """Close sockets copied by a fork: a worker ends when all copies of its peer are closed."""
        if isinstance(self._socket, ShmSocket):
            self._socket.close_inherited()
        elif self._socket is not None:
            self._socket.close()
        self._socket = self._process = None

    @property
    def _here(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionClosed(f"the process of environments {self._which} has been closed")
        return self._socket

    @property
    def _which(self) -> str:
        return f"{self.first} to {self.first + self.size - 1}"

    def _start(self) -> None:
        here, there = socket.socketpair()
        process = self.context.Process(
            target=_work,
            args=(there, here, self.makes, self.recipe, self.mode, self.spin),
            name=f"rlwire environments {self._which}",
            daemon=True,
        )
        with there, on_error(here.close):
            process.start()
        self._process, self._socket = process, here
        with on_error(self.close):
            with contextlib.suppress(OSError):  # the process died; `_answer` reports it
                self._socket = _shared(here, server_side=False, spin=self.patience)
            self._answer()  # waits until the environments are made

    def _replace(self) -> Infos:
        """Replace a process that died; truncate its environments' episodes."""
        process = self._process
        assert process is not None
        process.join(_JOIN)
        logger.error(
            "process %s of environments %s died with exit code %s: truncating their episodes and "
            "starting another",
            process.pid, self._which, process.exitcode,
        )  # fmt: skip
        self.close()
        self._start()
        if self._asked == _RESET:
            return self._reset_all()
        shared = self.shared
        shared.observations.keep()
        died: dict[str, Any] = {"died": True}
        infos: Infos = [(place, died) for place in range(self.size)]
        if self.mode == "SameStep":
            for place in range(self.size):
                shared.finals.write(place, shared.observations.read(place))
            infos = [(place, {"final_obs": ..., "final_info": died}) for place, _ in infos]
            infos += self._reset_all()
        shared.rewards[:] = 0.0
        shared.terminations[:] = False
        shared.truncations[:] = True
        return infos

    def _reset_all(self) -> Infos:
        self.begin_reset([None] * self.size, None, [True] * self.size)
        return self.finish()

    def _ask(self, what: bytes, value: Any) -> None:
        framed = _framed(value)
        self._asked, self._busy = what, True
        with contextlib.suppress(OSError):
            self._here.sendall(what + framed)

    def _answer(self) -> Any:
        here = self._here
        try:
            answer = _one(here)
            if answer == _DONE:
                self._busy = False
                return None
            value: Any = _read(here) if answer else None
        except OSError:
            answer = b""
        self._busy = False
        if not answer:
            raise ConnectionClosed(
                f"the process of environments {self._which} died; the next step or reset starts "
                f"another"
            )
        if answer == _MORE:
            return value
        kind, text, trace = value
        logger.error("environments %s failed in their process:\n%s", self._which, trace)
        raise PeerError(f"an environment of {self._which} failed in its process: {kind}: {text}")


def _shared(sock: socket.socket, *, server_side: bool, spin: float) -> socket.socket:
    """Return the socket, or one over shared memory where the system supports it."""
    if not AVAILABLE:
        return sock
    shared = ShmSocket(sock, server_side=server_side)
    with on_error(shared.close):
        shared.handshake(None)
    shared.spin = spin
    return shared


def _one(sock: socket.socket) -> bytes:
    """Return the next byte, or ``b""`` at the end of the stream."""
    byte = bytearray(1)
    return bytes(byte) if sock.recv_into(byte) else b""


def _framed(value: Any) -> bytes:
    body = msgpack.encode(value)
    return _LENGTH.pack(len(body)) + body


def _read(sock: socket.socket) -> Any:
    (size,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return msgpack.decode(_exactly(sock, size), copy=True)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view.nbytes:
        count = sock.recv_into(view)
        if not count:
            raise ConnectionResetError("the process has ended")
        view = view[count:]
    return data


def _work(
    there: socket.socket,
    here: socket.socket,
    makes: Sequence[Make],
    recipe: Callable[[], Shared],
    mode: str,
    spin: float,
) -> None:
    """Make the environments and serve requests until the socket is closed."""
    here.close()  # a forked copy would keep the socket open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles Ctrl-C
    with (
        contextlib.ExitStack() as undo,
        contextlib.suppress(ConnectionError),
        _shared(there, server_side=True, spin=spin) as there,
    ):
        try:
            environments = [undo.enter_context(contextlib.closing(make())) for make in makes]
            batch = Batch(environments, recipe(), mode)
            if mode == "NextStep":
                batch.over = [True] * batch.size  # a replacement starts with resets
        except Exception as error:
            _fail(there, error)
            return
        there.sendall(_DONE)
        told: set[str] = set()
        while what := _one(there):
            try:
                if what == _STEP:
                    infos = batch.step()
                elif what == _RESET:
                    infos = batch.reset(*_read(there))
                else:
                    there.sendall(_MORE + _framed(batch.call(*_read(there))))
                    continue
                sent = [[place, sendable(info, told)] for place, info in infos]
                answer = _MORE + _framed(sent) if sent else _DONE
            except Exception as error:
                _fail(there, error)
                continue
            there.sendall(answer)


def _fail(there: socket.socket, error: Exception) -> None:
    trace = "".join(traceback.format_exception(error))
    there.sendall(_FAILED + _framed([type(error).__name__, str(error), trace]))

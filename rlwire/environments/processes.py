"""`WorkerPart`: a `Batch` in a process of its own, with its columns in shared memory.

A step exchanges one byte each way, through shared memory where the system supports it. Infos,
attributes and errors follow as MessagePack. If a process dies, its environments' episodes are
truncated, and a new process replaces it; if that dies before its first reply, the call fails.
"""

from __future__ import annotations

import contextlib
import json
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
from rlwire.environments.infos import InfoCodec
from rlwire.environments.spaces import describe, space_of
from rlwire.errors import ConnectionClosed, PeerError, RlwireError, encodable, on_error, text_of
from rlwire.limits import Limits
from rlwire.transports.forking import not_ours, track
from rlwire.transports.shm import ShmSocket
from rlwire.transports.shm_calls import AVAILABLE
from rlwire.transports.sockets import receive_exactly

logger = logging.getLogger(__name__)

Make = Callable[[], Any]
"""Makes an environment; picklable unless processes are forked."""

_LENGTH = struct.Struct("<Q")
_DONE, _MORE, _FAILED = b"d", b"m", b"f"  # replies; a value follows the last two
_STEP, _RESET, _CALL = b"s", b"r", b"c"  # requests; a value follows the last two
_JOIN = 5.0  # seconds for a process to end after its socket
_INTEGER, _SPACE = 101, 102  # MessagePack's extensions: an integer of more than 64 bits, a space


def _extended(value: Any) -> Any:
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        return msgpack.ExtType(_INTEGER, value.to_bytes(size, "big", signed=True))
    if hasattr(value, "sample") and hasattr(value, "contains"):
        return msgpack.ExtType(_SPACE, json.dumps(describe(value)).encode())
    return msgpack.decode(msgpack.encode(value), copy=False)  # another package's array


def _restored(code: int, data: bytes) -> Any:
    if code == _INTEGER:
        return int.from_bytes(data, "big", signed=True)
    return space_of(json.loads(data), _OWN) if code == _SPACE else msgpack.ExtType(code, data)


# Both ends are this program: only recursion needs a limit.
_OWN = Limits(message=2**59, depth=500, items=2**59, string=2**32, expanded=2**59, keys=2**59)
_codec = InfoCodec(_OWN, _extended, _restored)


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


@dataclass(eq=False)
class WorkerPart:
    """A `Batch` in another process."""

    makes: Sequence[Make]
    shared: Shared
    recipe: Callable[[], Shared]
    mode: str
    context: Any
    start: int  # number of the first environment
    spin: float = 0.0  # seconds that the worker spins
    caller_spin: float = 0.0  # seconds that the caller spins

    def __post_init__(self) -> None:
        self.size = len(self.makes)
        self._process: BaseProcess | None = None
        self._socket: socket.socket | None = None
        self._requested = b""
        self._reset: tuple[Any, ...] = ()  # arguments of the last one
        self._busy = False  # whether a reply is pending
        self._replaced = False  # whether the process is another's successor, without a reply yet
        ended = f"the process of environments {self._which} has been closed"
        self._why_closed: RlwireError = ConnectionClosed(ended)
        track(self)
        self._start()

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        if self._busy and self._process:  # Ctrl-C interrupted the last request
            logger.warning(
                "process %s of environments %s: the last request was interrupted; starting another",
                self._process.pid, self._which,
            )  # fmt: skip
            self.close()
            self._start()
        self._reset = list(seeds), options, [bool(each) for each in mask]
        self._send(_RESET, _framed(self._reset))

    def begin_step(self) -> None:
        self._send(_STEP)

    def finish(self) -> Infos:
        try:
            found = self._reply()
        except OSError:
            return self._replace()
        return [(index, _codec.decode(info), last) for index, info, last in found or ()]

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        plain = [each and [list(each[0]), dict(each[1])] for each in arguments]
        self._send(_CALL, _framed([name, plain]))
        found: list[Any] = self._reply()
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
        self._socket, self._process, self._busy = None, None, False
        # Another process would write into the parent's memory.
        self._why_closed = not_ours(f"environments {self._which}")

    @property
    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise self._why_closed.with_traceback(None)
        return self._socket

    @property
    def _which(self) -> str:
        return f"{self.start} to {self.start + self.size - 1}"

    def _start(self) -> None:
        own_end, worker_end = socket.socketpair()
        process = self.context.Process(
            target=_work,
            args=(worker_end, own_end, self.makes, self.recipe, self.mode, self.spin),
            name=f"rlwire environments {self._which}",
            daemon=True,
        )
        with worker_end, on_error(own_end.close):
            process.start()
        self._process, self._socket = process, own_end
        with on_error(self.close):
            with contextlib.suppress(OSError):  # the process died; `_reply` reports it
                self._socket = _shared(own_end, server_side=False, spin=self.caller_spin)
            try:
                self._reply()  # waits until the environments are made
            except ConnectionClosed:
                raise PeerError(self._cause()) from None

    def _cause(self) -> str:
        """Return how the process died."""
        process = self._process
        if process is None:
            return f"environments {self._which} have no process"
        process.join(_JOIN)
        return (
            f"process {process.pid} of environments {self._which} died with exit code "
            f"{process.exitcode}; its stderr may say why"
        )

    def _replace(self) -> Infos:
        """Replace a process that died, once; truncate its environments' episodes."""
        cause, again = self._cause(), self._replaced
        self._replaced = False  # the next call starts another
        if again:
            raise PeerError(f"{cause}; so did the process before it")
        logger.error("%s: truncating their episodes and starting another", cause)
        self.close()
        self._start()
        self._replaced = True
        died: dict[str, Any] = {"died": True}
        if self._requested == _RESET:
            seeds, options, mask = self._reset
            lost = [(index, died, False) for index, requested in enumerate(mask) if not requested]
            return lost + self._reset_all(seeds, options)
        shared = self.shared
        shared.observations.copy_previous()
        same = self.mode == "SameStep"
        infos: Infos = [(index, died, same) for index in range(self.size)]
        if same:
            for index in range(self.size):
                shared.finals.write(index, shared.observations.read(index))
            infos += self._reset_all([None] * self.size, None)
        shared.rewards[:] = 0.0
        shared.terminations[:] = False
        shared.truncations[:] = True
        return infos

    def _reset_all(self, seeds: Sequence[int | None], options: Any) -> Infos:
        self.begin_reset(seeds, options, [True] * self.size)
        return self.finish()

    def _send(self, what: bytes, framed: bytes = b"") -> None:
        self._requested, self._busy = what, True
        with contextlib.suppress(OSError):  # the process died; `_reply` reports it
            self._open_socket.sendall(what + framed)

    def _reply(self) -> Any:
        sock = self._open_socket
        try:
            reply = receive_exactly(sock, 1)
            value: Any = None if reply == _DONE else _read(sock)
        except OSError:
            self._busy = False
            died = f"the process of environments {self._which} died; a step or reset starts another"
            raise ConnectionClosed(died) from None
        self._busy = self._replaced = False
        if reply != _FAILED:
            return value
        index, kind, text, trace = value
        failed = f"environment {self.start + index} failed in its process"
        logger.error("%s:\n%s", failed, trace)
        raise PeerError(f"{failed}: {kind}: {text}")


def _shared(sock: socket.socket, *, server_side: bool, spin: float) -> socket.socket:
    """Return the socket, or one over shared memory where the system supports it."""
    if not AVAILABLE:
        return sock
    shared = ShmSocket(sock, server_side=server_side)
    with on_error(shared.close):
        shared.handshake(None)
    shared.spin = spin
    return shared


def _framed(value: Any) -> bytes:
    body = _codec.checked(value)
    return _LENGTH.pack(len(body)) + body


def _read(sock: socket.socket) -> Any:
    (size,) = _LENGTH.unpack(receive_exactly(sock, _LENGTH.size))
    return _codec.decode(receive_exactly(sock, size))


def _work(
    worker_end: socket.socket,
    own_end: socket.socket,
    makes: Sequence[Make],
    recipe: Callable[[], Shared],
    mode: str,
    spin: float,
) -> None:
    """Make the environments and serve requests."""
    own_end.close()  # a forked copy would keep the socket open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles Ctrl-C
    with (
        contextlib.ExitStack() as undo,
        contextlib.suppress(ConnectionError),
        _shared(worker_end, server_side=True, spin=spin) as worker_end,
    ):
        environments: list[Any] = []
        try:
            for make in makes:
                environments.append(undo.enter_context(contextlib.closing(make())))
            batch = Batch(environments, recipe(), mode)
            if mode == "NextStep":
                batch.ended = [True] * batch.size  # a replacement starts with resets
        except BaseException as error:  # also SystemExit
            _fail(worker_end, len(environments), error)
            return
        worker_end.sendall(_DONE)
        while True:  # until the socket is closed
            what = receive_exactly(worker_end, 1)
            try:
                if what == _STEP:
                    infos = batch.step()
                elif what == _RESET:
                    infos = batch.reset(*_read(worker_end))
                else:
                    worker_end.sendall(_MORE + _framed(batch.call(*_read(worker_end))))
                    continue
                sent = [[index, _codec.encode(info), last] for index, info, last in infos]
                reply = _MORE + _framed(sent) if sent else _DONE
            except BaseException as error:
                _fail(worker_end, batch.index, error)
                continue
            worker_end.sendall(reply)


def _fail(worker_end: socket.socket, index: int, error: BaseException) -> None:
    trace = encodable("".join(traceback.format_exception(error)))
    worker_end.sendall(_FAILED + _framed([index, type(error).__name__, text_of(error), trace]))

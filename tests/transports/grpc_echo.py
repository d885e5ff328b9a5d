"""What the gRPC tests share: a session of plain bytes, who answers, and how to find them.

Test files load it with `importlib`, as nothing in `tests` is a package.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from typing import Any, ClassVar

from rlwire.errors import (
    ConnectionClosed,
    DecodeError,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.transports.interface import Buffer

METHOD = "/rlwire.test.Echo/Talk"


def noise(size: int) -> bytes:
    """Bytes without an order, and without a special word in front."""
    return b"-" + os.urandom(size)


class Session:
    """Messages are the events. Some are special, on the way in: see `receive`."""

    def __init__(self) -> None:
        self.closed = False
        self.refused: list[Exception] = []

    def next_deadline(self) -> float | None:
        return None

    def receive(self, message: Buffer) -> list[Any]:
        word = bytes(message[:10])
        if word.startswith(b"\xff"):
            raise DecodeError("no message begins with ff")
        if word == b"turn":
            raise RemoteProtocolError("not now")
        if word == b"nothing":
            return []
        if word == b"twice":
            return [b"one", b"two"]
        self.closed = self.closed or word == b"end"
        return [message]

    def send(self, event: Any) -> list[Buffer]:
        if event is None:
            raise LocalProtocolError("nothing to say")
        if event == b"cannot":
            raise EncodeError("cannot be encoded")
        if isinstance(event, list):
            return event
        return [event]

    def refuse(self, error: Exception) -> list[Buffer]:
        self.refused.append(error)
        self.closed = not isinstance(error, RemoteProtocolError)
        return [f"refused: {error}".encode()]


class Responder:
    """Answers with what it is told, but for some words.

    Attributes:
        all: every one that was made since the last `reset`.
    """

    all: ClassVar[list[Responder]] = []
    go_on: ClassVar[threading.Event] = threading.Event()

    def __init__(self, caller: Any) -> None:
        self.caller = caller
        self.closed = False
        self.answered: list[bytes] = []
        self.failures: list[Exception] = []
        self.future: Future[Any] | None = None
        Responder.all.append(self)

    @classmethod
    def reset(cls) -> None:
        cls.all = []
        cls.go_on = threading.Event()

    @classmethod
    def all_closed(cls) -> bool:
        """Whether all are, soon."""
        until = time.monotonic() + 10
        while time.monotonic() < until and not all(made.closed for made in cls.all):
            time.sleep(0.005)
        return all(made.closed for made in cls.all)

    def answer(self, event: Any) -> Any:
        self.answered.append(bytes(event[:20]))
        word, _, rest = bytes(event[:40]).partition(b" ")
        if word == b"boom":
            raise ValueError("boom")
        if word == b"lost":
            raise ConnectionClosed("the parameter server is lost")
        if word == b"large":
            return b"l" * int(rest)
        if word == b"cannot":
            return b"cannot"
        if word == b"sleep":
            time.sleep(float(rest))
        if word == b"stuck":
            Responder.go_on.wait(20)
        if word == b"future":
            self.future = Future()
            if rest == b"never":
                return self.future
            if rest == b"fails":
                self.future.set_exception(ValueError("the future failed"))
            elif rest == b"cancelled":
                self.future.cancel()
            elif rest == b"now":
                self.future.set_result(b"now")
            else:
                threading.Timer(float(rest), self.future.set_result, (b"later",)).start()
            return self.future
        return event

    def failure(self, event: Any, error: Exception) -> Any:
        self.failures.append(error)
        return f"failure: {error}".encode()

    def close(self) -> None:
        assert not self.closed
        self.closed = True

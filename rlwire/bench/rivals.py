"""Rows of other libraries that carry steps between two processes."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from rlwire.bench.payloads import BenchStep
from rlwire.bench.processes import BenchError, die_with_parent, ignoring_sigint, pin
from rlwire.bench.raw import Relay, Sizes, mean_size
from rlwire.bench.rows import Exchange, Row


class Rival(Row):
    """A row of another library, used as its own documentation does.

    It pickles into a pipe, where a relay cannot count bytes.
    """

    request: ClassVar[Any] = 1

    def reply(self, step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal

    def sizes(self) -> Sizes:
        replies = [ForkingPickler.dumps(self.reply(step)) for step in self.payload.steps]
        return Sizes(len(ForkingPickler.dumps(self.request)) + 4, mean_size(replies) + 4)

    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        ours, theirs = multiprocessing.Pipe()
        with self._other(_serve_pipe, theirs, self.payload.steps), ours:
            theirs.close()

            def ask(number: int) -> Any:
                ours.send(number)
                return ours.recv()

            yield Exchange(ask, lambda reply: reply[:2])


def _serve_pipe(
    report: Callable[[str], None], pipe: Connection, steps: Sequence[BenchStep]
) -> None:
    report("a pipe")
    while True:
        pipe.send(tuple(steps[pipe.recv()]))


class _Vector(Rival):
    """Gymnasium's `AsyncVectorEnv`, with observations in shared memory, or `SubprocVecEnv`."""

    request: ClassVar = ("step", np.int64(1))

    def reply(self, step: BenchStep) -> Any:
        if self.name == "AsyncVec":
            return (None, step.reward, step.terminal, False, {}), True
        return step.state, step.reward, step.terminal, {"TimeLimit.truncated": False}, {}

    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        with ignoring_sigint():
            make = functools.partial(_pinned, self.makes, self.cores.server)
            kind, options = _VECTORS[self.name]
            envs = resolve_name(kind)([make], **options)
        try:
            envs.reset()
            yield Exchange(
                lambda number: envs.step(np.array([number])),
                lambda outcome: (outcome[0][0], outcome[1][0]),
            )
        except EOFError as error:
            raise BenchError(f"{self.name}: the environment's process has ended") from error
        finally:
            for process in envs.processes:
                process.terminate()
                process.join()
            envs.closed = True  # else it waits for replies


def _pinned(make: Callable[[], Any], cores: list[int] | None) -> Any:
    pin(cores)
    die_with_parent()
    return make()


_VECTORS = {
    "AsyncVec": ("gymnasium.vector:AsyncVectorEnv", {"context": "spawn"}),
    "SubprocVec": ("stable_baselines3.common.vec_env:SubprocVecEnv", {"start_method": "spawn"}),
}


def missing(name: str) -> str:
    """Return why a rival cannot be measured; "" if it is installed."""
    try:
        if name in _VECTORS:
            resolve_name(_VECTORS[name][0])
    except ImportError as error:
        package = (error.name or "").partition(".")[0].replace("_", "-")
        return f"{error}: pip install {package}"
    return ""


RIVALS: dict[str, type[Rival]] = {"pipe": Rival, "AsyncVec": _Vector, "SubprocVec": _Vector}
"""Other libraries between an agent and an environment in another process, by name."""

"""Rows of other libraries that carry steps between two processes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from rlwire.bench.payloads import BenchStep
from rlwire.bench.processes import BenchError, deaf, die_with_parent, pin
from rlwire.bench.raw import Relay, Sizes, mean_size
from rlwire.bench.rows import Exchange, Row


class Rival(Row):
    """A row of another library, used as its own documentation does."""

    needs: ClassVar[dict[str, str]] = {}
    """Modules to import, and the package of each."""

    @classmethod
    def missing(cls) -> str:
        for module, package in cls.needs.items():
            try:
                importlib.import_module(module)
            except ImportError as error:
                return f"{error}: pip install {package}"
        return ""


class _Pickled(Rival):
    """A row that pickles into a pipe, where a relay cannot count bytes."""

    request: ClassVar[Any] = 1

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal

    def sizes(self) -> Sizes:
        replies = [ForkingPickler.dumps(self.reply(step)) for step in self.payload.steps]
        return Sizes(len(ForkingPickler.dumps(self.request)) + 4, mean_size(replies) + 4)


def _serve_pipe(
    report: Callable[[str], None], pipe: Connection, steps: Sequence[BenchStep]
) -> None:
    report("a pipe")
    while True:
        pipe.send(tuple(steps[pipe.recv()]))


class _Pipe(_Pickled):
    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        ours, theirs = multiprocessing.Pipe()
        with self._other(_serve_pipe, theirs, self.payload.steps), ours:
            theirs.close()

            def ask(number: int) -> Any:
                ours.send(number)
                return ours.recv()

            yield Exchange(ask, lambda reply: reply[:2])


class _Vector(_Pickled):
    request: ClassVar = ("step", np.int64(1))
    kind: ClassVar[str]
    options: ClassVar[dict[str, str]]

    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        with deaf():
            make = functools.partial(_pinned, self.makes, self.cores.server)
            envs = resolve_name(self.kind)([make], **self.options)
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


class _AsyncVector(_Vector):
    """Gymnasium's `AsyncVectorEnv`, with observations in shared memory."""

    needs: ClassVar = {"gymnasium": "gymnasium"}
    kind = "gymnasium.vector:AsyncVectorEnv"
    options: ClassVar = {"context": "spawn"}

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return (None, step.reward, step.terminal, False, {}), True


class _SubprocVec(_Vector):
    needs: ClassVar = {"stable_baselines3": "stable-baselines3"}
    kind = "stable_baselines3.common.vec_env:SubprocVecEnv"
    options: ClassVar = {"start_method": "spawn"}

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal, {"TimeLimit.truncated": False}, {}


RIVALS: dict[str, type[Rival]] = {
    "pipe": _Pipe,
    "AsyncVec": _AsyncVector,
    "SubprocVec": _SubprocVec,
}
"""Other libraries between an agent and an environment in another process, by name."""

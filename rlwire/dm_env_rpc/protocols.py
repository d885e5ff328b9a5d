"""What the author of a world for dm_env_rpc writes, and how its errors reach a peer.

`rlwire.dm_env_rpc.worlds` is the face.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from rlwire.codecs.dm_env_rpc.values import (
    ActionObservationSpecs,
    AnyMessage,
    Settings,
    Status,
    StepResult,
)
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RlwireError, for_peer
from rlwire.sessions.dm_env_rpc.states import Code
from rlwire.transports.seldom_log import Log

_TEXT = 2000  # characters of an exception's text that a peer is told


class AgentEnvironment(Protocol):
    """One joined connection's view of a world. Called by one thread at a time.

    It may have a method ``request(names)``, which is told before a step which observations the
    agent will see, so that no others need be made. It may have a method ``whole()``, which is
    called once it has joined if the client is `rlwire.make`: `specs` and results may then have what
    only that reads, see `rlwire.dm_env_rpc.environments.View.whole`. `begin` and `step`
    may return a `concurrent.futures.Future` of the result, where agents wait for each other: see
    `World`.

    Attributes:
        specs: what the agent may do and see.
    """

    specs: ActionObservationSpecs

    def reset(self, settings: Settings) -> None:
        """End the sequence, if there is one; `specs` may change. `begin` comes next."""

    def begin(self) -> StepResult | Future[StepResult]:
        """Begin a sequence; maybe again, if the last beginning could not be sent.

        The state must be RUNNING; observations are by name.
        """

    def step(self, actions: dict[str, Any]) -> StepResult | Future[StepResult]:
        """Act, within a sequence. If the state is not RUNNING, `begin` or `reset` comes next."""

    def close(self) -> None:
        """The agent has left; nothing comes next."""


class World(Protocol):
    """What agents join.

    Neither it nor its agents are called by two threads at once. A world that sets
    ``parallel_agents = True`` says that different agents may be: for simulations that use the
    time, and for those in which an agent's step waits for the other agents'.

    Steps can wait for each other without a thread each: agents return futures, and the world
    fulfils them in a method ``settle()``, which is called after each call of it or its agents, by
    any thread and without a lock. Its `reset`, and the `close` of an agent, end what waits.

    A world that is served, or what makes worlds, may have a method ``is_accepted(name)``: of a
    setting for which it returns False no value is made, and it is None. The world refuses it then.
    """

    def join(self, settings: Settings) -> AgentEnvironment:
        """Take in one more agent, without waiting for others.

        Raises:
            Refusal, ValueError: these settings, or one agent more, will not do.
        """

    def reset(self, settings: Settings) -> None:
        """Begin anew, with all agents: each one's `reset` is called afterwards.

        Raises:
            Refusal, ValueError: these settings will not do.
        """

    def close(self) -> None:
        """The world is destroyed; no agent is in it any more."""


def is_world(value: object) -> bool:
    """Whether `value` is a `World`, or a class of worlds."""
    return all(hasattr(value, name) for name in ("join", "reset", "close"))


WorldFactory: TypeAlias = Callable[[Settings], World]
"""Makes a world from ``create_world``'s settings; several threads may call it at once."""

Extension: TypeAlias = Callable[[AnyMessage, "World | None"], AnyMessage]
"""Answers an extension's request, given the world that is joined."""


class Refusal(Exception):
    """Why a request is not carried out; the peer is told as a `Status`.

    Attributes:
        code: a `Code`.
        message: for a person; says what would do.
        details: for a program.
    """

    def __init__(self, code: int, message: str, details: Iterable[AnyMessage] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details = tuple(details)

    def __str__(self) -> str:
        return self.message


# The first that fits counts. The codec's own are ValueErrors, and not the peer's fault.
_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (LimitExceeded, Code.RESOURCE_EXHAUSTED),
    (EncodeError, Code.INTERNAL),
    (DecodeError, Code.INVALID_ARGUMENT),
    (ValueError, Code.INVALID_ARGUMENT),
    (NotImplementedError, Code.UNIMPLEMENTED),
    (PermissionError, Code.PERMISSION_DENIED),
    (TimeoutError, Code.DEADLINE_EXCEEDED),
    (MemoryError, Code.RESOURCE_EXHAUSTED),
)


def status_of(what: str, error: BaseException) -> Status:
    """Return what a peer is told about an exception."""
    if isinstance(error, Refusal):
        return Status(int(error.code), _fit(f"{what}: {error.message}"), error.details)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    if code == Code.INVALID_ARGUMENT:
        text = for_peer(error, "the server") or text
    return Status(code, _fit(f"{what}: {text}"))


def _fit(text: str) -> str:
    """Make a text fit to be sent: not too long, and with a UTF-8 form."""
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def report(log: Log, peer: object, what: str, error: BaseException) -> Status:
    """Log an exception, with its traceback if it is of the world's code; return its `status_of`.

    Outside of steps, a type of exception with a `Code` of its own refuses the request.
    """
    status = status_of(what, error)
    failed = status.code == Code.INTERNAL or (what == "step" and not isinstance(error, Refusal))
    own = failed and not isinstance(error, RlwireError)
    level = logging.ERROR if own or status.code == Code.INTERNAL else logging.WARNING
    log.log(level, "%s: %s", peer, status.message, exc_info=error if own else None)
    if not own and not isinstance(error, Refusal):
        log.debug("%s: traceback of the error", peer, exc_info=error)
    return status

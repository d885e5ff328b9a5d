"""`Host`: what runs a parameter server, wherever its home is.

It runs one op at a time, saves checkpoints, and knows a call that is sent again. Not here: the
homes and the ways to them (`rlwire.adapters.relaax.homes`).
"""

from __future__ import annotations

import logging
import threading
import traceback
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwire.adapters.relaax.metrics import Metrics
from rlwire.adapters.relaax.parameter_server import ParameterServer, ParameterServerError, op
from rlwire.checkpoints import Aside, Checkpoints
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, describe
from rlwire.sessions.calls import Answer, Call

if TYPE_CHECKING:
    from rlwire.adapters.relaax.algorithm import Algorithm

__all__ = ["Host", "Waiting", "called"]

logger = logging.getLogger(__name__)

_CLIENTS = 4096  # whose last answers are remembered
_METRICS = 10_000  # measurements that wait for an answer to go with
_AGAIN = 60.0  # seconds until a checkpoint that could not be saved is tried again


class Host:
    """Runs a parameter server: its ops one at a time, its checkpoints, each call once.

    What went wrong while it was made is the answer to all calls.

    Args:
        algorithm: whose parameter server.
        checkpoints: where they are kept; None for nowhere.
        metrics: where its measurements go.

    Attributes:
        config: the algorithm's settings.
    """

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics
    ) -> None:
        self.config = algorithm.config
        self._name = uuid.uuid4().hex
        self._algorithm = algorithm.name
        self._checkpoints = checkpoints
        self._aside = None if checkpoints is None else Aside(checkpoints, self._not_kept)
        self._restored: int | None = None
        self._again = 0.0
        self._turn = threading.Condition(threading.Lock())  # an op's
        self._answers: OrderedDict[str, tuple[int, Answer | None]] = OrderedDict()
        self._metrics = metrics
        self._server: ParameterServer | None = None
        self._ending = False
        self._failure: BaseException | None = None
        try:
            self._server = self._made(algorithm)
        except Exception as error:
            self._failure = error

    def _made(self, algorithm: Algorithm) -> ParameterServer:
        server: ParameterServer = algorithm.parameter_server(algorithm.config, self._metrics)
        server.wait_at_home = self._wait_for
        if self._checkpoints is not None:
            found = self._checkpoints.restore(self._algorithm, server.version)
            if found is not None:
                self._restored, state = found
                server.restore_checkpoint(state)
            self._checkpoints.due(server.n_step())
        return server

    def check(self) -> None:
        """Raise what went wrong while it was made."""
        if self._failure is not None:
            raise _failed("the parameter server", self._failure) from self._failure

    def run(self, names: Sequence[str], args: Any, kwargs: Any, deadline: float) -> Any:
        """Return what an op returns; for agents in this process. Errors as of `Handle`."""
        if not self._turn.acquire(timeout=deadline):
            raise DeadlineExceeded(
                f"{called(names)}: other ops took longer than deadline={deadline} s; it was not "
                "called"
            )
        try:
            return self._perform(names, args, kwargs)
        except Exception as error:
            raise _failed(called(names), error) from error
        finally:
            self._turn.release()

    def answer(self, call: Call) -> Answer:
        """Return the answer to a call from elsewhere, the last one if it came again."""
        with self._turn:
            if call.server is not None and call.server != self._name:
                return Answer(self._name, call.number, "lost", self._restored, self._measured())
            number, answer = self._answers.get(call.client, (0, None))
            if number < call.number:
                self._answers[call.client] = call.number, None  # it may wait while others run
                self._answers.move_to_end(call.client)
                if len(self._answers) > _CLIENTS:
                    self._answers.popitem(last=False)
                answer = self._answer(call)
                if self._answers.get(call.client, (0, None))[0] == call.number:
                    self._answers[call.client] = call.number, answer
                self._turn.notify_all()
                return answer
            while number == call.number and answer is None:
                self._turn.wait()
                number, answer = self._answers.get(call.client, (0, None))
            if answer is None or number != call.number:
                # Its client waits no longer, and has asked for more.
                error = LocalProtocolError("a call of before came late, and was not made")
                answer = self._failed(call, error)
            return answer

    def unsendable(self, call: Call, error: Exception) -> Answer:
        """Return the answer instead of one that cannot be sent."""
        text = f"{called(call.names)}: it was called, and what it returned cannot be sent: {error}"
        return Answer(self._name, call.number, "error", [text, ""], [])

    def end_waits(self) -> None:
        """End the ops that wait for others, which cannot come: the parameter server is closed."""
        with self._turn:
            self._ending = True
            self._turn.notify_all()

    def close(self) -> None:
        """Save a last checkpoint and close the parameter server; errors are logged."""
        self.end_waits()
        with self._turn:
            server, self._server = self._server, None
            self._failure = self._failure or LocalProtocolError("it has been closed")
            if server is None:
                return
            try:
                if self._aside is not None:
                    self._aside.wait()
                self._keep(server, closing=True)
                if self._aside is not None:
                    self._aside.wait()
                server.close()
            except Exception:
                logger.exception("closing the parameter server of %s failed", self._algorithm)

    def _answer(self, call: Call) -> Answer:
        try:
            value = self._perform(call.names, call.args, call.kwargs)
        except BaseException as error:  # SystemExit included: an op must not end the server
            return self._failed(call, error)
        return Answer(self._name, call.number, "value", value, self._measured())

    def _failed(self, call: Call, error: BaseException) -> Answer:
        text = f"{called(call.names)}: {describe(error)}"
        logger.debug("%s", text, exc_info=error)
        where = "".join(traceback.format_exception(error))
        return Answer(self._name, call.number, "error", [text, where], self._measured())

    def _perform(self, names: Sequence[str], args: Any, kwargs: Any) -> Any:
        server = self._server
        if server is None:
            assert self._failure is not None
            raise self._failure
        if not names:
            return server.n_step()
        value = op(server.session, names)(*args, **kwargs)
        self._turn.notify_all()
        self._keep(server)
        return value

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._turn.wait_for(lambda: self._ending or condition(), seconds)
        if condition():
            return True
        if self._ending:
            raise ConnectionClosed("the parameter server is closed, and no other agent comes")
        return False

    def _keep(self, server: ParameterServer, closing: bool = False) -> None:
        """Save a checkpoint if one is due; that a disk is full does not stop the learning."""
        checkpoints, aside = self._checkpoints, self._aside
        if checkpoints is None or aside is None or (monotonic() < self._again and not closing):
            return
        try:
            step = int(server.n_step())
            if not (not checkpoints.saved(step) if closing else checkpoints.due(step)):
                return
            score = server.score()
            scored = score is not None
            state = server.create_scored_checkpoint() if scored else server.create_checkpoint()
            aside.save(step, state, score, self._algorithm, server.version)
        except Exception as error:
            self._not_kept(error)

    def _not_kept(self, error: Exception) -> None:
        self._again = monotonic() + _AGAIN
        logger.error(
            "no checkpoint of %s; the next try is in %g s",
            self._algorithm,
            _AGAIN,
            exc_info=error,
        )

    def _measured(self) -> list[Any]:
        return self._metrics.taken() if isinstance(self._metrics, Waiting) else []


class Waiting(Metrics):
    """Measurements that go with the next answer; of too many the oldest are dropped."""

    def __init__(self) -> None:
        self._entries: deque[list[Any]] = deque(maxlen=_METRICS)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Keep one number."""
        self._keep("scalar", name, y, x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Keep many numbers."""
        self._keep("histogram", name, y, x)

    def _keep(self, method: str, name: str, y: Any, x: Any) -> None:
        # A tensor, or what else has numbers, could not be sent as it is.
        y = y if isinstance(y, (int, float, str)) else np.array(y)
        self._entries.append([method, str(name), y, None if x is None else int(x)])

    def taken(self) -> list[list[Any]]:
        """Return those since the last call."""
        entries = self._entries
        return [entries.popleft() for _ in range(len(entries))] if entries else []


def called(names: Sequence[str]) -> str:
    """Return what errors call an op, by its path; the step has none."""
    return ".".join(["session", *names]) if names else "n_step"


def _failed(what: str, error: BaseException) -> ParameterServerError:
    where = "".join(traceback.format_exception(error))
    return ParameterServerError(f"{what}: {describe(error)}", where)

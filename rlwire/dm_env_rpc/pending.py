"""`Pending` and `AsyncPending`: answers that are under way, of requests that were submitted.

Clients make them (`rlwire.dm_env_rpc.client`), and receive for them.
"""

from __future__ import annotations

from typing import Any

from rlwire.codecs.dm_env_rpc import Request, Response, Status, Step, StepResult
from rlwire.dm_env_rpc.status import StatusError
from rlwire.errors import RlwireError
from rlwire.transports import waits
from rlwire.transports.waits import Asyncio, Blocking, Waits, driven


class PendingBase(waits.Client):
    """What a `Pending` and an `AsyncPending` are made of."""

    __slots__ = ("_client", "_error", "_reply", "request")

    def __init__(self, client: Any, request: Request | Step) -> None:
        self.request = request
        self._client = client
        self._reply: Response | StepResult | None = None
        self._error: RlwireError | OSError | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self._reply is not None or self._error is not None

    @driven
    def result(self) -> Waits[Any]:
        """Return the response, after waiting for it and for those before it.

        Raises:
            StatusError: the server answered with an error.
            ConnectionClosed, DeadlineExceeded: the answer is lost.
        """
        return (yield from self._wait())

    def _wait(self) -> Waits[Any]:
        while self._reply is None and self._error is None:
            yield from self._client._receive_one(self)
        return self._take()

    def _take(self) -> Any:
        if self._error is not None:
            raise self._error
        if isinstance(self._reply, Status):
            raise StatusError.of(self._reply)
        return self._reply

    def _settle(self, reply: Any, error: RlwireError | OSError | None = None) -> None:
        self._reply, self._error = reply, error
        if type(reply) is not StepResult and error is None and not isinstance(reply, Status):
            self._client._way.note(self.request, reply)


class Pending(Blocking, PendingBase):
    """The answer to a request that was submitted; `result` waits for it."""

    __slots__ = ()

    def result(self) -> Any:
        """Return the response; as `PendingBase.result`."""
        # The hot path, therefore without a generator.
        client = self._client
        while self._reply is None and self._error is None:
            try:
                reply = client._connected().receive()
            except BaseException as error:
                client._not_received(error)
            else:
                client._pending.popleft()._settle(reply)
        return self._take()


class AsyncPending(Asyncio, PendingBase):
    """`Pending`, for tasks of an event loop."""

    __slots__ = ()

"""`PolicyClient`: a policy on a server, as a program with observations sees it.

It speaks to `rlwire.adapters.openpi.PolicyServer` and to openpi's own server. Not here: what is
said (`rlwire.sessions.openpi`).
"""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any

from rlwire.adapters.websocket import connect
from rlwire.errors import ConnectionClosed, PeerError
from rlwire.limits import Limits
from rlwire.sessions.openpi import Client, Dialect, Failure
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tcp import Connection

__all__ = ["PolicyClient"]


class PolicyClient:
    """A policy on a server; blocking, for one thread.

    ::

        with PolicyClient("localhost:8000") as policy:
            action = policy.infer({"image": frame, "state": state, "prompt": "fold the towel"})

    Args:
        where: ``"host:port"``, or a URL: ``ws://host:port/path``, or ``wss`` for TLS.
        api_key: what the server wants as ``Authorization: Api-Key``.
        arrays: how arrays are written; both dialects are read.
        reconnect: whether an observation that meets a closed connection is sent again over a new
            one, once. A server closes after an error of its policy, and may close a client that
            was silent for long. The policy may then see an observation twice.
        timeouts: by default `Timeouts()`; its `idle` is how long a policy may think.
        backoff: how often and when to try to reach the server; by default once.
        tls: for ``wss``; by default a context that trusts the system's authorities.
        limits: maxima for messages.

    Attributes:
        metadata: what the server says about its policy.

    Raises:
        ValueError: there is no such address.
        OSError: the server cannot be reached.
        rlwire.sessions.websocket.Refused: it does not want us, such as for a wrong key.
        PeerError, RlwireError: it says something else than a policy server does.
    """

    def __init__(
        self,
        where: str,
        *,
        api_key: str | None = None,
        arrays: Dialect = "openpi",
        reconnect: bool = True,
        timeouts: Timeouts | None = None,
        backoff: Backoff | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._url = where if "://" in where else f"ws://{where}"
        self._session: dict[str, Any] = {"arrays": arrays, "limits": limits}
        self._options: dict[str, Any] = {
            "timeouts": timeouts,
            "backoff": backoff,
            "tls": tls,
            "limits": limits,
            "headers": [] if api_key is None else [("Authorization", f"Api-Key {api_key}")],
        }
        self._reconnect = reconnect
        self._closed = False
        self._connection = self._connect()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PolicyClient of {self._url}>"

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the policy's action for an observation.

        Raises:
            PeerError: the policy failed, with the server's words.
            EncodeError, LimitExceeded: the observation cannot be sent; nothing was.
            DeadlineExceeded: no action came in time; the connection is closed.
            ConnectionClosed, OSError: the connection is lost, and cannot be made again.
        """
        if self._closed:
            raise ConnectionClosed(f"{self} is closed")
        try:
            action = self._exchange(observation)
        except ConnectionClosed:
            if not self._reconnect:
                raise
            self._connection = self._connect()
            action = self._exchange(observation)
        if isinstance(action, Failure):
            raise PeerError(action.text)
        return action

    def get_server_metadata(self) -> dict[str, Any]:
        """Return `metadata`, by the name that openpi's client has for it."""
        return self.metadata

    def reset(self) -> None:
        """Do nothing: the protocol has no words for it. openpi's policies have this method."""

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._connection.close()

    def _connect(self) -> Connection:
        self._inner = Client(**self._session)
        connection = connect(self._url, self._inner, **self._options)
        try:
            metadata = connection.receive()
            if isinstance(metadata, Failure):
                raise PeerError(metadata.text)
        except BaseException:
            connection.close()
            raise
        self.metadata: dict[str, Any] = metadata
        return connection

    def _exchange(self, observation: dict[str, Any]) -> dict[str, Any] | Failure:
        connection, session = self._connection, self._inner
        if connection.closed:
            raise ConnectionClosed(f"the connection to {connection.peer} is closed")
        try:
            answer: dict[str, Any] | Failure = connection.exchange(observation)
        except BaseException:
            if session.asked:
                # The action may still come, and would be taken for the next one's.
                connection.close()
            raise
        return answer

"""Who may open a WebSocket: how a server refuses, and what a refused client is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlwire.codecs.websocket_handshake import Request, basic_credentials
from rlwire.errors import PeerError

__all__ = ["Check", "Refusal", "Refused", "basic_authorization"]


class Refused(PeerError):
    """The server answered the handshake with something else than 101.

    Attributes:
        status: HTTP's status, such as 401 or 403.
        reason: the words behind it, the server's own or those of HTTP.
    """

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(f"the server refused the WebSocket: {status} {reason}".rstrip())
        self.status = status
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.reason)


@dataclass(frozen=True)
class Refusal:
    """How a server answers a request that it does not accept.

    Attributes:
        status: HTTP's status, from 400 on.
        text: words for the peer.
        headers: further header lines.
    """

    status: int
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not 400 <= self.status < 600:
            raise ValueError(f"a refusal has a status from 400 to 599, not {self.status}")


Check: TypeAlias = Callable[[Request], "Refusal | None"]
"""Looks at a request that is otherwise in order; None accepts it."""


def basic_authorization(check: Callable[[str, str], bool], realm: str = "rlwire") -> Check:
    """Return a `Check` that demands Basic credentials.

    Args:
        check: called with user name and password; compares with
            `rlwire.codecs.websocket_handshake.same_secret`.
        realm: what a browser shows when it asks for them.
    """

    def authorize(request: Request) -> Refusal | None:
        given = basic_credentials(request.headers.get("Authorization"))
        if given is not None and check(*given):
            return None
        challenge = f'Basic realm="{realm}", charset="UTF-8"'
        why = "credentials are needed" if given is None else "the credentials are wrong"
        return Refusal(401, why, (("WWW-Authenticate", challenge),))

    return authorize

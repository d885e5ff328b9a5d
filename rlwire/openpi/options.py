"""Options of openpi."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

from rlwire import _options
from rlwire.codecs.websocket.handshake import UpgradeRequest, same_secret
from rlwire.limits import DEFAULT
from rlwire.sessions.openpi import Dialect
from rlwire.sessions.websocket import Check, HttpRefusal, health
from rlwire.urls import Where

PORT: Final = 8000
"""openpi's port."""


def api_key_check(key: str) -> Check:
    """Return a check for ``Authorization: Api-Key`` with this key.

    Raises:
        ValueError: the key is empty.
    """
    if not key:
        raise ValueError("the API key is empty: it would accept clients without one")

    def check(request: UpgradeRequest) -> HttpRefusal | None:
        scheme, _, given = (request.headers.get("Authorization") or "").partition(" ")
        # Always compared: the time must not reveal whether scheme or key is wrong.
        same = same_secret(given.strip(), key)
        sent = scheme.lower() == "api-key"
        if sent and same:
            return None
        why = "the API key is wrong" if sent else "an API key is needed, and none was sent"
        return HttpRefusal(401, why, (("WWW-Authenticate", "Api-Key"),))

    return check


@dataclass(frozen=True, kw_only=True)
class _ArrayOptions(_options.SecretOptions):
    """Options of clients and servers.

    Attributes:
        auth: the key in ``Authorization: Api-Key``, which clients send and servers check.
        arrays: dialect of encoded arrays; both dialects are decoded.
    """

    arrays: Dialect = "openpi"


@dataclass(frozen=True)
class _PolicyOptions(_options.OriginOptions, _ArrayOptions, _options.StreamServerOptions):
    """Options of servers and trainers.

    Attributes:
        metadata: dict for clients that connect (default: the policy's own).
    """

    address: Where = f"localhost:{PORT}"
    _: KW_ONLY
    metadata: Any = None

    @property
    def socket(self) -> dict[str, Any]:
        """Arguments of a `WebSocketServerSession`."""
        check = None if self.auth is None else api_key_check(self.auth)
        limits = self.limits or DEFAULT
        return {"pages": health, "check": check, "origins": self.origins, "limits": limits}


@dataclass(frozen=True, kw_only=True)
class OpenPIListenerOptions(_PolicyOptions):
    """Options of a trainer that environments connect to.

    Attributes:
        horizon: actions per chunk (default: single actions without chunks).
    """

    horizon: _options.Positive | None = None


@dataclass(frozen=True, kw_only=True)
class OpenPIServerOptions(_PolicyOptions):
    """Options of `rlwire.openpi.Server`.

    Attributes:
        workers: one event loop for all clients, or a thread per client, which calls the policy
            under a lock: the fastest for few clients. Pings wait for the policy then, and openpi's
            own client leaves 20 s after one that is not answered.
        threads: threads that call the policy, beside the event loop. With 1 all calls come from
            the same thread, as accelerator libraries need; 0 calls it on the event loop, for
            policies that take microseconds.
        timing: add the policy's time to each action, as server_timing in milliseconds.
    """

    workers: Literal["threads", "asyncio"] = "asyncio"
    threads: _options.Natural = 1
    timing: bool = True


@dataclass(frozen=True, kw_only=True)
class OpenPIServeOptions(_options.LearningOptions, OpenPIServerOptions):
    """Options of a policy server."""


@dataclass(frozen=True, kw_only=True)
class OpenPIClientOptions(_ArrayOptions, _options.StreamClientOptions):
    """Options of a client: a robot or an environment.

    Attributes:
        address: ``"host:port"``, ``"unix:/path"``, or a URL; ``wss://host:port/path`` uses TLS.
        reconnect: after a lost connection, reconnect and send the observation again, once. Servers
            close the connection after a policy error, and after long silence. The policy may see an
            observation twice.
    """

    reconnect: bool = True


@dataclass(frozen=True, kw_only=True)
class OpenPIPlayerOptions(_options.PlayerOptions, OpenPIClientOptions):
    """Options of `rlwire.play`."""


OPTIONS: Final[_options.Kinds] = {
    "server": OpenPIServeOptions,
    "listener": OpenPIListenerOptions,
    "client": OpenPIClientOptions,
    "player": OpenPIPlayerOptions,
}

"""What client and server of a gRPC call share: its method, TLS, token and size of messages."""

from __future__ import annotations

import hmac
import logging
import re
import ssl
from collections.abc import Iterable
from typing import Final

from rlwire.limits import Limits
from rlwire.transports.address import Address
from rlwire.transports.tls import TLS, context_of

logger = logging.getLogger(__name__)

METHOD: Final = "/dm_env_rpc.v1.Environment/Process"
"""The only method of the protocol's gRPC service."""


def http2_context(tls: TLS) -> ssl.SSLContext | None:
    context = context_of(tls)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context


def authorization(token: str) -> tuple[str, str]:
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("a token must be printable ASCII characters without spaces, at least one")
    return "authorization", f"Bearer {token}"


def warn_of_plain_token(where: Address) -> None:
    """Warn if a token is sent over a network in plain text."""
    if not where.loopback:
        logger.warning("%s: the token is sent over the network without TLS", where)


def most_sent(limits: Limits, max_sent: int | None) -> int:
    """Return the maximum size of a sent message, by default that of a received one."""
    if max_sent is None:
        return min(limits.received, limits.message)
    if max_sent >= 2**31:
        raise ValueError(f"max_sent must be less than 2**31, not {max_sent}")
    return max_sent


def refusal(expected: tuple[str, str], metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return why a call without the expected token is rejected; compares in constant time."""
    name, value = expected
    sent = [str(given).encode() for key, given in metadata if key == name]
    if any([hmac.compare_digest(given, value.encode()) for given in sent]):
        return ""
    return "the token is wrong" if sent else "a token is needed, and none was sent"

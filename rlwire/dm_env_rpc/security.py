"""TLS for HTTP/2, and bearer tokens: what keeps strangers out of a dm_env_rpc server."""

from __future__ import annotations

import hmac
import logging
import re
import ssl
from collections.abc import Iterable

from rlwire.transports.address import Address
from rlwire.transports.reception import TLS
from rlwire.transports.tls import ClientSide, context_of

logger = logging.getLogger(__name__)


def http2_context(tls: ClientSide | TLS) -> ssl.SSLContext | None:
    """Return the context, which offers HTTP/2."""
    context = context_of(tls)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata that carries a bearer token."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("a token has one or more printable ASCII characters and no spaces")
    return "authorization", f"Bearer {token}"


def authorized(expected: tuple[str, str], metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether a call's metadata carries the expected token."""
    name, value = expected
    right = False
    for key, given in metadata:
        if key == name:
            data = given.encode() if isinstance(given, str) else given
            # In constant time; and all are looked at, for the same reason.
            right |= hmac.compare_digest(data, value.encode())
    return right


def warn_of_plain_token(where: Address) -> None:
    """Put a line in the log if a token would cross a network readable by anybody."""
    if not where.loopback:
        logger.warning("%s: the token goes over the network without TLS", where)

"""Files for TLS, and bearer tokens: what keeps strangers out of a dm_env_rpc server."""

from __future__ import annotations

import hmac
import logging
import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rlwire.transports.address import Address
from rlwire.transports.tls import client_context, server_context

__all__ = ["ClientTLS", "ServerTLS", "authorization", "authorized", "warn_of_plain_token"]

logger = logging.getLogger(__name__)

_Path: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class ClientTLS:
    """A client's files for TLS, all PEM. A server's certificate is always checked.

    Attributes:
        ca: certificates of the authorities to trust; None for the system's.
        cert: our own certificate, for a server that asks for one (mutual TLS).
        key: its key; None if it is in the same file.
        server_hostname: the name that the server's certificate must have, if not the address's.
    """

    ca: _Path | None = None
    cert: _Path | None = None
    key: _Path | None = None
    server_hostname: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            OSError: a file cannot be read.
            ssl.SSLError: a file is not what it should be.
        """
        return _for_http2(client_context(self.ca, self.cert, self.key))


@dataclass(frozen=True)
class ServerTLS:
    """A server's files for TLS, all PEM.

    Attributes:
        cert: the server's certificate, with the chain above it.
        key: its key; None if it is in the same file.
        client_ca: if given, clients must show a certificate of these authorities (mutual TLS).
    """

    cert: _Path
    key: _Path | None = None
    client_ca: _Path | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files; errors as `ClientTLS.context`."""
        return _for_http2(server_context(self.cert, self.key, self.client_ca))


def _for_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2"])
    return context


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata that carries a bearer token.

    Raises:
        ValueError: it cannot stand in a header.
    """
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

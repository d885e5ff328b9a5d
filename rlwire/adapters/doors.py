"""What the doors of several protocols share: TLS and WebSockets by URL, settings.

A door is a protocol's module for `rlwire.protocols.Protocol.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlwire.adapters.websocket import url_of
from rlwire.environments.driver import maker
from rlwire.protocols import URL
from rlwire.transports.tls import ClientSide, ClientTLS

__all__ = ["calling", "check_server_tls", "client_tls", "websocket_url", "with_settings"]


def client_tls(url: URL, tls: ClientSide) -> ClientSide:
    """Return what is given for a client, or for ``+tls`` the system's authorities."""
    return ClientTLS() if tls is None and url.tls else tls


def calling(url: URL, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's options, with the TLS that the URL asks for."""
    return {**options, "tls": client_tls(url, options.get("tls"))}


def check_server_tls(url: URL, tls: Any) -> None:
    """Refuse to serve without TLS what the URL says is served with it.

    Raises:
        ValueError: ``+tls``, and no certificate.
    """
    if url.tls and tls is None:
        raise ValueError(f"{url}: +tls needs a certificate: give tls=, or tls_cert as text")


def websocket_url(url: URL, tls: ClientSide) -> str:
    """Return the URL of the WebSocket that a URL means."""
    return url_of(url.address, tls, f"/{url.path}" if url.protocol.path == "path" else "/")


def with_settings(thing: Any, settings: Mapping[str, Any] | None) -> Any:
    """Return what makes environments with these settings, or an environment as it is.

    Raises:
        ValueError: settings for what is made already.
    """
    if not settings:
        return thing
    made, make = maker(thing, settings)
    return made if make is None else make

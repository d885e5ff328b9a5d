"""What the doors of several protocols share: clients, TLS and WebSockets by URL, settings.

A door is a protocol's module for `rlwire.protocols.Protocol.parts`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from rlwire.environments.driver import is_environment, maker
from rlwire.environments.loading import load
from rlwire.protocols import URL
from rlwire.transports.tls import ClientSide, ClientTLS
from rlwire.transports.waits import Waits, drive, drive_async
from rlwire.websocket import url_of

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""A client's, by place and by name."""


def client_tls(url: URL, tls: ClientSide) -> ClientSide:
    """Return what is given for a client, or for ``+tls`` the system's authorities."""
    return ClientTLS() if tls is None and url.tls else tls


def calling(url: URL, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's options, with the TLS that the URL asks for."""
    return {**options, "tls": client_tls(url, options.get("tls"))}


def by_address(url: URL, options: dict[str, Any]) -> Arguments:
    """Return the arguments of a client that takes an address."""
    return (url.address,), calling(url, options)


def by_websocket(url: URL, options: dict[str, Any]) -> Arguments:
    """Return the arguments of a client that takes a WebSocket's URL."""
    options = calling(url, options)
    return (websocket_url(url, options["tls"]),), options


def clients(
    blocking: type,
    looped: type,
    means: Callable[[URL, dict[str, Any]], Arguments] = by_address,
    then: Callable[[Any, URL], Waits[None]] | None = None,
) -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    """Return a door's ``client`` and ``async_client``, which return clients that are connected."""

    def begin(kind: type, url: URL, options: dict[str, Any]) -> Waits[Any]:
        where, named = means(url, options)
        connection = kind(*where, **named)
        yield from connection._enter()
        if then is not None:
            try:
                yield from then(connection, url)
            except BaseException:
                yield connection.close()
                raise
        return connection

    def client(url: URL, **options: Any) -> Any:
        return drive(begin(blocking, url, options))

    async def async_client(url: URL, **options: Any) -> Any:
        return await drive_async(begin(looped, url, options))

    return client, async_client


def websocket_url(url: URL, tls: ClientSide) -> str:
    """Return the URL of the WebSocket that a URL means."""
    return url_of(url.address, tls, f"/{url.path}" if url.protocol.path == "path" else "/")


def with_settings(thing: Any, settings: Mapping[str, Any] | None) -> Any:
    """Return what makes environments with these settings, or an environment as it is."""
    if not settings:
        return thing
    made, make = maker(thing, settings)
    return made if make is None else make


def with_pictures(thing: Any, settings: Mapping[str, Any] | None) -> Any:
    """Return what `with_settings` does, made to render if its class says that it can."""
    modes = (getattr(thing, "metadata", None) or {}).get("render_modes") or ()
    made = is_environment(thing) and not isinstance(thing, type)
    if "rgb_array" in modes and not made and "render_mode" in inspect.signature(thing).parameters:
        settings = {"render_mode": "rgb_array", **(settings or {})}
    return with_settings(thing, settings)


def check_no_environment(thing: Any, url: URL) -> None:
    """Refuse to serve an environment by a protocol in which environments call."""
    name, found = getattr(thing, "__name__", type(thing).__name__), thing
    if isinstance(thing, str):
        name, found = thing, None
        with contextlib.suppress(Exception):  # which who loads it raises again
            found = load(thing)
    if is_environment(found) or name.startswith("gym:") or "://" in name:
        raise TypeError(
            f"{url.scheme}:// serves {url.protocol.served}, and {name} is an environment: "
            f"`rlwire play {name} {url}`, or rlwire.play, takes it to such a server"
        )

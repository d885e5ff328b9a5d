"""Universe by URL: what the front door calls; see `rlwire.protocols`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlwire.adapters.doors import check_server_tls, client_tls, websocket_url, with_settings
from rlwire.adapters.rewarder.client import RewarderClient
from rlwire.adapters.rewarder.client_asyncio import AsyncRewarderClient
from rlwire.adapters.rewarder.endpoint import RewarderEndpoint
from rlwire.adapters.rewarder.environments import EnvironmentRewarder
from rlwire.adapters.rewarder.server import TIMEOUTS
from rlwire.protocols import URL

__all__ = ["TIMEOUTS", "async_client", "client", "endpoint", "server"]


def server(
    environment: Any,
    url: URL,
    *,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    rate: float = 60,
    **options: Any,
) -> EnvironmentRewarder:
    """Return a server of an environment in real time; not started.

    Args:
        environment: as `EnvironmentRewarder` takes it.
        url: where to listen; its path is the environment's id.
        settings: keyword arguments for what makes the environment.
        name: the environment's id, where the URL has none; by default its own.
        rate: steps a second.
        options: `EnvironmentRewarder`'s; ``auth`` is the password.

    Raises:
        TypeError, ValueError, ImportError, AttributeError: what is wrong with the arguments.
    """
    _without_pixels(url)
    check_server_tls(url, options.get("tls"))
    return EnvironmentRewarder(
        with_settings(environment, settings),
        url.address,
        env_id=url.path or name,
        fps=rate,
        **options,
    )


def client(url: URL, **options: Any) -> RewarderClient:
    """Return a connected client. Which environment it wants, it says in its resets.

    Raises:
        What `RewarderClient.connect` raises.
    """
    connection = RewarderClient(_calling(url, options), **options)
    connection.connect()
    return connection


async def async_client(url: URL, **options: Any) -> AsyncRewarderClient:
    """Return a client, as `client`."""
    connection = AsyncRewarderClient(_calling(url, options), **options)
    await connection.connect()
    return connection


def endpoint(url: URL, *, copy: bool = True, **options: Any) -> RewarderEndpoint:
    """Return the environment that the URL names, or the one that runs.

    Args:
        url: of the rewarder.
        copy: of no use: observations are read from text.
        options: `RewarderEndpoint`'s; ``auth`` is the password.

    Raises:
        What `RewarderEndpoint` raises.
    """
    return RewarderEndpoint(_calling(url, options), env_id=url.path or None, **options)


def _calling(url: URL, options: dict[str, Any]) -> str:
    """Return where to connect, and make of `options` what the client takes."""
    _without_pixels(url)
    tls = options["tls"] = client_tls(url, options.get("tls"))
    return websocket_url(url, tls)


def _without_pixels(url: URL) -> None:
    if url.pixels is not None:
        raise ValueError(f"{url}: pixels are not carried yet, only the rewarder: {url.host}:+PORT")

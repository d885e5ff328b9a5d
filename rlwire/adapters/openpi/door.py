"""openpi's policies by URL: what the front door calls; see `rlwire.protocols`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rlwire.adapters.agents import served
from rlwire.adapters.doors import check_server_tls, client_tls, websocket_url
from rlwire.adapters.openpi.client import AsyncPolicyClient, PolicyClient
from rlwire.adapters.openpi.server import PolicyServer
from rlwire.adapters.serving import BackgroundServer
from rlwire.environments.loading import load
from rlwire.protocols import URL

if TYPE_CHECKING:
    from rlwire.environments.called import Callers

__all__ = ["async_client", "client", "listen", "play", "server"]


def server(policy: Any, url: URL, **options: Any) -> BackgroundServer:
    """Return a server of a policy; not started.

    Args:
        policy: as `PolicyServer` takes it; a class of policies, or ``"module:policy"``; or a name
            with a prefix of `rlwire.adapters.agents.SERVED`.
        url: where to listen.
        options: `PolicyServer`'s, or those of what has the prefix; ``auth`` is the API key.

    Raises:
        TypeError, ValueError, ImportError, AttributeError: what is wrong with the arguments.
    """
    check_server_tls(url, options.get("tls"))
    whole = served(policy, url, options)
    if whole is not None:
        return whole
    policy = load(policy, "'module:policy'") if isinstance(policy, str) else policy
    if inspect.isclass(policy):
        policy = policy()
    return PolicyServer(policy, url.address, **options)


def client(url: URL, **options: Any) -> PolicyClient:
    """Return a connected client.

    Raises:
        What `PolicyClient.connect` raises.
    """
    return PolicyClient(_calling(url, options), **options)


async def async_client(url: URL, **options: Any) -> AsyncPolicyClient:
    """Return a client, as `client`."""
    connection = AsyncPolicyClient(_calling(url, options), **options)
    await connection.connect()
    return connection


def listen(url: URL, num_envs: int, **options: Any) -> Callers:
    """Return places for environments that call; arguments as of `called.listen`."""
    from rlwire.adapters.openpi import called  # needs Gymnasium

    check_server_tls(url, options.get("tls"))
    return called.listen(url.address, num_envs, **options)


def play(environment: Any, url: URL, **options: Any) -> list[float]:
    """Have an environment call; arguments as of `called.play`."""
    from rlwire.adapters.openpi import called  # needs Gymnasium

    return called.play(environment, _calling(url, options), **options)


def _calling(url: URL, options: dict[str, Any]) -> str:
    """Return where to connect, and make of `options` what the client takes."""
    tls = options["tls"] = client_tls(url, options.get("tls"))
    return websocket_url(url, tls)

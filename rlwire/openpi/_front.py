"""openpi's policies by URL: what the front door calls; see `rlwire.registry`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rlwire.environments.loading import load
from rlwire.openpi.client import AsyncClient, Client
from rlwire.openpi.options import OPTIONS
from rlwire.openpi.server import Server
from rlwire.registry import URL
from rlwire.serving.fronts import clients, served
from rlwire.serving.serving import BackgroundServer

if TYPE_CHECKING:
    from rlwire.environments.called import Callers

__all__ = ["OPTIONS", "async_client", "client", "listen", "play", "server"]


def server(policy: Any, url: URL, **options: Any) -> BackgroundServer:
    """Return a server, not started, of a policy, of a class of policies, or of ``"module:policy"``.

    A name with a prefix of `rlwire.serving.fronts.SERVED` is served instead.
    """
    whole = served(policy, url, options)
    if whole is not None:
        return whole
    policy = load(policy, "'module:policy'") if isinstance(policy, str) else policy
    if inspect.isclass(policy):
        policy = policy()
    return Server(policy, url.address, **options)


client, async_client = clients(Client, AsyncClient)


def listen(url: URL, num_envs: int, **options: Any) -> Callers:
    """Return places for environments that call; the options are those of `called.listen`."""
    from rlwire.openpi import environment as called  # needs Gymnasium

    return called.listen(url.address, num_envs, **options)


def play(environment: Any, url: URL, **options: Any) -> list[float]:
    """Have an environment call; the options are those of `called.play`."""
    from rlwire.openpi import environment as called  # needs Gymnasium

    return called.play(environment, str(url), **options)

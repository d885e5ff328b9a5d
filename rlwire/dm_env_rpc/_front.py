"""dm_env_rpc by URL, for the front door; see `rlwire.registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlwire.dm_env_rpc.client import AsyncClient, Client
from rlwire.dm_env_rpc.environment import DmEnvRpcEndpoint
from rlwire.dm_env_rpc.environment_worlds import EnvironmentWorlds
from rlwire.dm_env_rpc.options import OPTIONS as OPTIONS
from rlwire.dm_env_rpc.server import Server
from rlwire.dm_env_rpc.step_converter import Names
from rlwire.dm_env_rpc.world import is_world
from rlwire.environments.loading import load_environment
from rlwire.registry import URL
from rlwire.serving.fronts import clients, rendering


def server(
    environment: Any,
    url: URL,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    accepts: Collection[str] = (),
    names: Names | None = None,
    reward: str = "reward",
    discount: str = "discount",
    default_actions: Mapping[str, Any] | None = None,
    infos: bool = True,
    keep_abandoned: bool = False,
    **options: Any,
) -> Server:
    if url.path:
        raise ValueError(f"{url}: remove the path: the server names worlds when it creates them")
    worlds = load_environment(environment) if isinstance(environment, str) else environment
    if not (is_world(worlds) or isinstance(worlds, EnvironmentWorlds)):
        worlds = EnvironmentWorlds(
            rendering(worlds, env_kwargs, declared=True),
            names=names or Names(reward=reward or None, discount=discount or None),
            default_actions=default_actions,
            infos=infos,
            accepts=accepts,
        )
        sample = worlds.sample()
        if sample is not None and sample.shared:
            worlds = sample  # the agents share this world
        elif sample is not None:
            sample.close()
    elif env_kwargs or accepts:
        raise ValueError("env_kwargs, accepts: a World class checks all its settings itself")
    return Server(worlds, url.address, keep_abandoned=keep_abandoned, **options)


client, async_client = clients(Client, AsyncClient)
dissector = "rlwire.dm_env_rpc.dissector:DmEnvRpcDissector"


def endpoint(url: URL, **options: Any) -> DmEnvRpcEndpoint:
    """Return an agent in the URL's world, or in a new one."""
    return DmEnvRpcEndpoint(str(url), **options)

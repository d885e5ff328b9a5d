"""dm_env_rpc by URL, for the front door; see `rlwire.registry`."""

from __future__ import annotations

from typing import Any

from rlwire._options import given
from rlwire.dm_env_rpc.client import AsyncClient, Client
from rlwire.dm_env_rpc.environment import DmEnvRpcEndpoint
from rlwire.dm_env_rpc.environment_world import EnvironmentWorlds
from rlwire.dm_env_rpc.options import OPTIONS as OPTIONS
from rlwire.dm_env_rpc.options import DmEnvRpcServeOptions, DmEnvRpcServerOptions
from rlwire.dm_env_rpc.server import Server
from rlwire.dm_env_rpc.world import is_world
from rlwire.environments.loading import load_environment
from rlwire.serving.fronts import rendering
from rlwire.urls import URL


def server(environment: Any, url: URL, **given_options: Any) -> Server:
    options = DmEnvRpcServeOptions(url, **given_options)
    if url.path:
        raise ValueError(f"{url}: remove the path: the server names worlds when it creates them")
    worlds = load_environment(environment) if isinstance(environment, str) else environment
    if not (is_world(worlds) or isinstance(worlds, EnvironmentWorlds)):
        worlds = EnvironmentWorlds(
            rendering(worlds, options.env_kwargs, declared=True),
            reward=options.reward,
            discount=options.discount,
            default_actions=options.default_actions,
            infos=options.infos,
            accepts=options.accepts,
        )
        if not worlds.needs_settings:
            sample = worlds({})
            worlds.sampled = True
            if sample.shared:
                worlds = sample  # the agents share this world
            else:
                sample.close()
    elif options.env_kwargs or options.accepts:
        raise ValueError("env_kwargs, accepts: a World class checks all its settings itself")
    return Server(worlds, **given(options, DmEnvRpcServerOptions))


client, async_client = Client, AsyncClient
endpoint = DmEnvRpcEndpoint
dissector = "rlwire.dm_env_rpc.dissector:DmEnvRpcDissector"

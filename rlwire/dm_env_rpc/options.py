"""Options of dm_env_rpc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True, kw_only=True)
class _CallOptions(_options.SecretOptions):
    """Options of clients and servers.

    Attributes:
        auth: the bearer token, which clients send and servers check.
        max_sent: maximum size of a sent message (default: limits.received).
        check_bounds: reject actions outside their bounds; a client before it sends them.
    """

    max_sent: _options.Bytes | None = None
    check_bounds: bool = True


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcServerOptions(_CallOptions, _options.StreamServerOptions):
    """Options of `rlwire.dm_env_rpc.Server`.

    Attributes:
        workers: a thread per connection, or one event loop for all connections (environments that
            step fast).
        max_connections: concurrent calls; twice as many TCP connections may be open.
        max_worlds: maximum number of worlds at once; further ones are rejected.
        keep_abandoned: keep a world after its creator has disconnected and all agents have left.
        properties: the server's, for the properties extension; a world has its own as an attribute
            ``properties``.
        extensions: handlers of other extensions' requests, by type URL.
    """

    workers: Literal["threads", "asyncio"] = "threads"
    max_worlds: _options.Positive = 1000
    keep_abandoned: bool = True
    properties: Any = None
    extensions: Any = None


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcServeOptions(_options.MakingOptions, DmEnvRpcServerOptions):
    """Options of a server of an environment, or of worlds.

    Attributes:
        reward: name of the observation that carries the reward; '' omits it.
        discount: name of the observation that carries the discount; '' omits it.
        accepts: argument of the environment's class or function that clients may set, or 'options'
            for the options of a Gymnasium reset (default: only the seed).
        infos: send info dicts to rlwire's clients.
        default_actions: see `rlwire.dm_env_rpc.EnvironmentWorlds`.
    """

    keep_abandoned: bool = False
    reward: _options.Name = "reward"
    discount: _options.Name = "discount"
    accepts: tuple[_options.Name, ...] = ()
    infos: bool = True
    default_actions: Any = None


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcClientOptions(_CallOptions, _options.StreamClientOptions):
    """Options of an agent.

    Attributes:
        max_pending: requests sent without waiting for their replies, at most.
        metadata: pairs of names and values, sent as gRPC metadata.
        copy: True for observations of your own, writable and never overwritten, False for views of
            received messages where possible, None for views only where they are aligned. Without
            True, a broadcast (one element that fills a shape) is a read-only view of that element.
    """

    max_pending: _options.Positive = 64
    metadata: Any = ()
    copy: Any = True


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcEnvironmentOptions(DmEnvRpcClientOptions):
    """Options of `rlwire.make`.

    Attributes:
        settings: create a world with this setting.
        join_settings: join the world with this setting.
        agent: name of the agent to join as, in a world with several agents.
        reward: name of the observation that carries the reward.
        discount: name of the observation that carries the discount.
        reconnect: a `Backoff` for lost connections (default: 20 attempts within 60 seconds).
    """

    settings: _options.Settings | None = None
    join_settings: _options.Settings | None = None
    agent: _options.Name | None = None
    reward: _options.Name = "reward"
    discount: _options.Name = "discount"
    reconnect: Any = None


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcEndpointOptions(DmEnvRpcEnvironmentOptions):
    """Options of a `DmEnvRpcEndpoint`.

    Attributes:
        observation_space: overrides the server's.
        action_space: overrides the server's.
    """

    observation_space: Any = None
    action_space: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": DmEnvRpcServeOptions,
    "client": DmEnvRpcClientOptions,
    "environment": DmEnvRpcEnvironmentOptions,
}

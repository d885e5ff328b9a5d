"""Options of dm_env_rpc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcServerOptions(
    _options.MakingOptions, _options.SecretOptions, _options.StreamServerOptions
):
    """Options of a server of an environment, or of worlds.

    Attributes:
        workers: a thread per connection, or one event loop for all connections (environments that
            step fast).
        max_worlds: maximum number of worlds at once; further ones are rejected.
        reward: name of the observation that carries the reward; '' omits it.
        discount: name of the observation that carries the discount; '' omits it.
        accepts: argument of the environment's class or function that clients may set, or 'options'
            for the options of a Gymnasium reset (default: only the seed).
        infos: send info dicts to rlwire's clients.
        keep_abandoned: keep a world after its creator has disconnected and all agents have left.
        check_bounds: reject actions outside their bounds.
        max_sent: maximum size of a sent message (default: limits.received).
        names: see `rlwire.dm_env_rpc.EnvironmentWorlds`.
        default_actions: as `names`.
        properties: the server's, for the properties extension; a world has its own as an attribute
            ``properties``.
        extensions: handlers of other extensions' requests, by type URL.
    """

    workers: Literal["threads", "asyncio"] = "threads"
    max_worlds: _options.Positive = 1000
    reward: _options.Name = "reward"
    discount: _options.Name = "discount"
    accepts: tuple[_options.Name, ...] = ()
    infos: bool = True
    keep_abandoned: bool = False
    check_bounds: bool = True
    max_sent: _options.Bytes | None = None
    names: Any = None
    default_actions: Any = None
    properties: Any = None
    extensions: Any = None


@dataclass(frozen=True, kw_only=True)
class DmEnvRpcClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Options of an agent.

    Attributes:
        max_sent: maximum size of a sent message (default: limits.received).
        max_pending: requests sent without waiting for their replies, at most.
        check_bounds: reject actions outside their bounds before they are sent.
        metadata: pairs of names and values, sent as gRPC metadata.
        copy: False for read-only views of received messages, None for aligned views.
    """

    max_sent: _options.Bytes | None = None
    max_pending: _options.Positive = 64
    check_bounds: bool = True
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


OPTIONS: Final[_options.Kinds] = {
    "server": DmEnvRpcServerOptions,
    "client": DmEnvRpcClientOptions,
    "environment": DmEnvRpcEnvironmentOptions,
}

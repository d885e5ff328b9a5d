"""Options of dm_env_rpc; those without a help text are for Python only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True)
class DmEnvRpcServerOptions(
    _options.MakingOptions, _options.SecretOptions, _options.StreamServerOptions
):
    """Of a server of an environment, or of worlds.

    Attributes:
        workers: a thread for each connection, or one event loop for all of them (environments
            that step at once).
        max_worlds: how many worlds may exist at once; further ones are refused.
        reward: the observation that the reward is; '' leaves it out.
        discount: the same for the discount.
        accepts: let clients choose this argument of the class or function by a setting, or
            'options' of a Gymnasium environment's reset (default: only the seed).
        infos: send infos to rlwire's clients.
        keep_abandoned: keep worlds that no agent is in any more.
        check_bounds: refuse actions beyond their bounds.
        max_sent: bytes of the longest message that is sent.
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


@dataclass(frozen=True)
class DmEnvRpcClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Of an agent.

    Attributes:
        max_sent: bytes of the longest message that is sent.
    """

    max_sent: _options.Bytes | None = None
    metadata: Any = ()
    copy: Any = True


@dataclass(frozen=True)
class DmEnvRpcEnvironmentOptions(DmEnvRpcClientOptions):
    """Of `rlwire.make` over dm_env_rpc.

    Attributes:
        settings: for a world that is created for this.
        join_settings: for joining the world.
        agent: which agent of the world to be.
        reward: the observation that is the reward.
        discount: the observation that is the discount.
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

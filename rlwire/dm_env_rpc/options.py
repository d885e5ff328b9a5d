"""Options of dm_env_rpc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire._options import (
    Bytes,
    MakingOptions,
    Name,
    Positive,
    SecretOptions,
    Side,
    StreamClientOptions,
    StreamServerOptions,
)


@dataclass(frozen=True)
class DmEnvRpcServerOptions(MakingOptions, SecretOptions, StreamServerOptions):
    """Of a server of an environment, or of worlds.

    Attributes:
        workers: a thread for each connection, or one event loop for all of them (environments
            that step at once).
        agents: how many agents may join one world, each with an environment of its own.
        max_worlds: how many worlds may exist at once; further ones are refused.
        reward: the observation that the reward is; '' leaves it out.
        discount: the same for the discount.
        names: a `Names`, what things are called on the wire.
        accepts: let clients choose this argument of the class or function by a setting, or
            'options' of a Gymnasium environment's reset (default: only the seed).
        default_actions: by name, for actions that a request leaves out.
        infos: send infos to rlwire's clients.
        keep_abandoned: keep worlds that no agent is in any more.
        properties: a `Properties`, what clients may read and write.
        extensions: extensions of the protocol, by the name of their message.
        check_bounds: refuse actions beyond their bounds.
        max_sent: bytes of the longest message that is sent.
        copy: give worlds actions of their own instead of views.
    """

    workers: Literal["threads", "asyncio"] = "threads"
    agents: Positive = 1
    max_worlds: Positive = 1000
    reward: Name = "reward"
    discount: Name = "discount"
    names: Any = None
    accepts: tuple[Name, ...] = ()
    default_actions: Any = None
    infos: bool = True
    keep_abandoned: bool = False
    properties: Any = None
    extensions: Any = None
    check_bounds: bool = True
    max_sent: Bytes | None = None
    copy: Any = True


@dataclass(frozen=True)
class DmEnvRpcClientOptions(SecretOptions, StreamClientOptions):
    """Of an agent.

    Attributes:
        max_sent: bytes of the longest message that is sent.
        metadata: pairs of names and values that go with each call.
        copy: give arrays of their own instead of views.
        ahead: how many requests may be sent before their replies have come.
    """

    max_sent: Bytes | None = None
    metadata: Any = ()
    copy: Any = True
    ahead: Positive = 64


@dataclass(frozen=True)
class DmEnvRpcEnvironmentOptions(DmEnvRpcClientOptions):
    """Of `rlwire.make` over dm_env_rpc.

    Attributes:
        settings: for a world that is created for this.
        join_settings: for joining the world.
        agent: which agent of the world to be.
        reward: the observation that is the reward.
        discount: the observation that is the discount.
        reconnect: a `Backoff`, the waits between attempts to come back.
    """

    settings: Any = None
    join_settings: Any = None
    agent: Name | None = None
    reward: Name = "reward"
    discount: Name = "discount"
    reconnect: Any = None


OPTIONS: Final[Mapping[Side, type]] = {
    "server": DmEnvRpcServerOptions,
    "client": DmEnvRpcClientOptions,
    "environment": DmEnvRpcEnvironmentOptions,
}

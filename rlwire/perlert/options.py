"""Options of PERLERT; `rlwire.perlert.Server.add` describes those without help here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from rlwire import _options
from rlwire.transports.datagram_cipher import load_key

_KeyFile = Annotated[bytes, _options.Reads(load_key, "FILE")]


@dataclass(frozen=True)
class _KeyOptions(_options.LimitOptions):
    """Of both sides; `auth` is the key itself.

    Attributes:
        auth_file: encipher and authenticate all datagrams with the key in this file, 32 bytes in
            hexadecimal, the same at both ends.
    """

    auth: Any = None
    auth_file: Annotated[_KeyFile | None, _options.Into("auth")] = None


@dataclass(frozen=True)
class PerlertServerOptions(_options.MakingOptions, _KeyOptions):
    """Of a server of an environment in real time.

    Attributes:
        rollout_port: the rollouts' port (default: the port after the lobby's).
        name: the instances' name (default: the environment's).
        number: the first instance's number.
        instances: how many runs can go on at once, each in an environment of its own.
        players: how many ready agents begin a run (default: all that the environment has).
        rate: steps a second.
        frames: the most steps a second that an agent is sent.
        decimals: decimals of numbers (default: all that they have).
        threads: threads that step environments, for slow ones; 0 for the event loop.
        seed: the seed of all seeds.
    """

    rollout_port: _options.Natural | None = None
    name: _options.Name | None = None
    number: _options.Natural = 0
    instances: _options.Positive = 1
    players: _options.Positive | None = None
    rate: _options.Hz = 30.0
    frames: _options.Hz = 30.0
    decimals: _options.Natural | None = None
    threads: _options.Natural = 0
    seed: int | None = None
    default_action: Any = None
    extra: Any = None
    loop_factory: Any = None


@dataclass(frozen=True)
class PerlertClientOptions(_KeyOptions):
    """Of an agent.

    Attributes:
        tag: the agent's name in the lobby (default: a random one).
    """

    tag: _options.Name | None = None


@dataclass(frozen=True)
class PerlertEnvironmentOptions(PerlertClientOptions):
    """Of `rlwire.make` over PERLERT.

    Attributes:
        agent: the slot to play (default: the first that is open).
        timeout: how long to wait for the next frame.
        start_timeout: how long to wait for others to register and be ready.
    """

    agent: _options.Name | None = None
    timeout: float = 10.0
    start_timeout: float | None = 60.0


OPTIONS: Final[_options.Kinds] = {
    "server": PerlertServerOptions,
    "client": PerlertClientOptions,
    "environment": PerlertEnvironmentOptions,
}

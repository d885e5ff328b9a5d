"""Options of PERLERT; those without a text are as of `rlwire.perlert.Server.add`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from rlwire import _options
from rlwire.transports.datagram_cipher import load_key

_KeyFile = Annotated[bytes, _options.Reads(load_key, "FILE")]


@dataclass(frozen=True)
class _KeyOptions(_options.LimitOptions):
    """Of both sides; `auth` is the key itself, or a `DatagramCipher`.

    Attributes:
        auth_file: encipher and authenticate all datagrams with the key in this file, 32 bytes in
            hexadecimal, which agents need as well.
    """

    auth: Any = None
    auth_file: Annotated[_KeyFile | None, _options.Into("auth")] = None


@dataclass(frozen=True)
class PerlertServerOptions(_options.MakingOptions, _KeyOptions):
    """Of a server of an environment in real time.

    Attributes:
        rollout_port: where rollouts listen (default: the port after the lobby's).
        name: what it is called (default: its own name).
        number: of the first instance.
        instances: how many runs can go on at once, each in an environment of its own, numbered
            from 0.
        players: how many agents it takes to begin (default: all that the environment has).
        rate: steps a second.
        frames: how many steps a second an agent is told of, at most.
        decimals: to which numbers are rounded (default: all that they have).
        threads: how many step environments, for slow ones; 0 steps all of them on the event loop.
        seed: from which all seeds are made.
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
        tag: what others see in the lobby (default: a random one).
    """

    tag: _options.Name | None = None


@dataclass(frozen=True)
class PerlertEnvironmentOptions(PerlertClientOptions):
    """Of `rlwire.make` over PERLERT.

    Attributes:
        agent: the slot to have (default: the first that is open).
        timeout: how long the next frame may take.
        start_timeout: how long others may take to register and be ready.
    """

    agent: _options.Name | None = None
    timeout: float = 10.0
    start_timeout: float | None = 60.0


OPTIONS: Final[_options.Kinds] = {
    "server": PerlertServerOptions,
    "client": PerlertClientOptions,
    "environment": PerlertEnvironmentOptions,
}

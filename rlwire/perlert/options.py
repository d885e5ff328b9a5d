"""Options of PERLERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from rlwire._options import (
    Hz,
    Into,
    LimitOptions,
    MakingOptions,
    Name,
    Natural,
    Positive,
    Reads,
    Seconds,
    Side,
)
from rlwire.transports.datagram_cipher import load_key


@dataclass(frozen=True)
class _KeyOptions(LimitOptions):
    """Of both sides.

    Attributes:
        auth: the key of the datagrams, 32 bytes, or a `DatagramCipher`.
        auth_file: encipher and authenticate all datagrams with the key in this file, 32 bytes in
            hexadecimal, which agents need as well.
    """

    auth: Any = None
    auth_file: Annotated[Annotated[bytes, Reads(load_key, "FILE")] | None, Into("auth")] = None


@dataclass(frozen=True)
class PerlertServerOptions(MakingOptions, _KeyOptions):
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
        default_action: of slots without an agent, and of agents that have said nothing yet.
        extra: makes the extra text of a frame.
        threads: how many step environments, for slow ones; 0 steps all of them on the event loop.
        seed: from which all seeds are made.
        loop_factory: makes the event loop, such as uvloop.new_event_loop.
    """

    rollout_port: Natural | None = None
    name: Name | None = None
    number: Natural = 0
    instances: Positive = 1
    players: Positive | None = None
    rate: Hz = 30.0
    frames: Hz = 30.0
    decimals: Natural | None = None
    default_action: Any = None
    extra: Any = None
    threads: Natural = 0
    seed: int | None = None
    loop_factory: Any = None


@dataclass(frozen=True)
class PerlertClientOptions(_KeyOptions):
    """Of an agent.

    Attributes:
        tag: what others see in the lobby (default: a random one).
    """

    tag: Name | None = None


@dataclass(frozen=True)
class PerlertEnvironmentOptions(PerlertClientOptions):
    """Of `rlwire.make` over PERLERT.

    Attributes:
        agent: the slot to have (default: the first that is open).
        timeout: how long the next frame may take.
        start_timeout: how long others may take to register and be ready.
    """

    agent: Name | None = None
    timeout: Seconds = 10.0
    start_timeout: Seconds | None = 60.0


OPTIONS: Final[Mapping[Side, type]] = {
    "server": PerlertServerOptions,
    "client": PerlertClientOptions,
    "environment": PerlertEnvironmentOptions,
}

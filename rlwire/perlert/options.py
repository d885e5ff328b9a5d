"""Options of PERLERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from rlwire import _options
from rlwire.perlert.cipher import load_key
from rlwire.sessions.perlert.lobby import IDLE
from rlwire.sessions.perlert.server import UNHEARD

_KeyFile = Annotated[bytes, _options.Parser(load_key, "FILE")]


@dataclass(frozen=True, kw_only=True)
class _KeyOptions(_options.LimitOptions):
    """Options of both sides.

    Attributes:
        auth: the key itself, 32 bytes.
        auth_file: file with the key that encrypts and authenticates all datagrams: 32 bytes in
            hexadecimal, the same at both ends.
    """

    auth: Any = None
    auth_file: Annotated[_KeyFile | None, _options.Sets("auth")] = None


@dataclass(frozen=True, kw_only=True)
class PerlertServerOptions(_options.MakingOptions, _KeyOptions):
    """Options of a real-time server of an environment.

    Attributes:
        rollout_port: UDP port for rollouts (default: the lobby's port plus 1).
        name: instance name (default: the environment's name).
        number: number of the first instance.
        instances: number of concurrent runs, each in an environment of its own.
        players: number of ready agents that starts a run (default: all of the environment's).
        rate: steps per second.
        frames: maximum steps per second sent to an agent.
        decimals: decimal places of sent numbers (default: enough to restore the same number).
        threads: number of threads that step slow environments, each always the same ones; 0 steps
            on the event loop.
        seed: number from which each run's seed is derived.
        idle_timeout: silence after which a client loses its slot or its part in a run.
        unheard_timeout: a client that has sent nothing for this time after the start gets one step
            per second, since its address may be forged; None, as for idle_timeout, for no limit.
        totals: send the sum of rewards with each step, to all clients or to none (default: to
            rlwire's, whose tags begin with rlwire-).
        keys: AGENT_KEY of an agent.
        kinds: AGENT_KIND of an agent, by its key.
        actions: name of the next action of a Discrete space.
        default_action: see `rlwire.perlert.Server.add`.
        extra: as `default_action`.
        loop_factory: function that makes the event loop, such as uvloop.new_event_loop.
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
    idle_timeout: _options.Seconds | None = IDLE
    unheard_timeout: _options.Seconds | None = UNHEARD
    totals: bool | None = None
    keys: _options.Settings | None = None
    kinds: _options.Settings | None = None
    actions: tuple[_options.Name, ...] = ()
    default_action: Any = None
    extra: Any = None
    loop_factory: Any = None


@dataclass(frozen=True, kw_only=True)
class PerlertClientOptions(_KeyOptions):
    """Options of an agent.

    Attributes:
        tag: unique name of the agent in the lobby (default: random).
    """

    tag: _options.Name | None = None


@dataclass(frozen=True, kw_only=True)
class PerlertEnvironmentOptions(PerlertClientOptions):
    """Options of `rlwire.make` over PERLERT.

    Attributes:
        agent: slot to play (default: the first open one).
        actions: name of the next action of a Discrete space, as the server has it.
        timeout: time to wait for the next frame.
        start_timeout: time to wait for a slot, and then until all clients are ready.
    """

    agent: _options.Name | None = None
    actions: tuple[_options.Name, ...] = ()
    timeout: float = 10.0
    start_timeout: float | None = 60.0


OPTIONS: Final[_options.Kinds] = {
    "server": PerlertServerOptions,
    "client": PerlertClientOptions,
    "environment": PerlertEnvironmentOptions,
}

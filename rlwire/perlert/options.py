"""Options of PERLERT."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from rlwire import _options
from rlwire.perlert.cipher import load_key
from rlwire.sessions.perlert.lobby import IDLE
from rlwire.sessions.perlert.server import FRAMES, UNHEARD
from rlwire.urls import Where

PORT: Final = 32322
"""The lobby port of the draft's example; no port is assigned to PERLERT."""

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
class PerlertInstanceOptions(_options.MakingOptions, _options.Options):
    """Options of the instances of one environment, as for `rlwire.perlert.Server.add`.

    Attributes:
        name: instance name (default: the environment's name).
        number: number of the first instance.
        instances: number of concurrent runs, each in an environment of its own.
        players: number of ready agents that starts a run (default: all of the environment's).
        rate: steps per second.
        decimals: decimal places of sent numbers (default: enough to restore the same number).
        seed: number from which each run's seed is derived (default: a random one).
        totals: send the sum of rewards with each step, to all clients or to none (default: to
            rlwire's, whose tags begin with rlwire-).
        keys: AGENT_KEY of an agent, in Python a dict, or a text for a single agent; others keep
            their names.
        kinds: AGENT_KIND of an agent, by its key; in Python a dict, or a text for all.
        actions: name of the next action of a Discrete space; numbers are accepted too.
        default_action: action of agents whose client is absent or has sent none, or a function that
            returns it for the agent's key and last observation (default: the one nearest to zero).
        extra: called with an agent's key and the environment's info; returns entries for EXTRA.
    """

    name: _options.Name | None = None
    number: _options.Natural = 0
    instances: _options.Positive = 1
    players: _options.Positive | None = None
    rate: _options.Hz = 30.0
    decimals: _options.Natural | None = None
    seed: int | None = None
    totals: bool | None = None
    keys: _options.Settings | str | None = None
    kinds: _options.Settings | str | None = None
    actions: tuple[_options.Name, ...] = ()
    default_action: Any = None
    extra: Any = None


@dataclass(frozen=True)
class PerlertServerOptions(PerlertInstanceOptions, _KeyOptions):
    """Options of a real-time server of an environment.

    Attributes:
        address: the lobby's, ``"host:port"``, ``"[ipv6]:port"``, ``(host, port)`` or a URL; with
            port 0 the system chooses one.
        rollout_port: UDP port for rollouts (default: the lobby's port plus 1).
        frames: maximum steps per second sent to an agent.
        threads: number of threads that step slow environments, each always the same ones; 0 steps
            one after another on the event loop, which suits steps well under a period.
        idle_timeout: silence after which a client loses its slot or its part in a run.
        unheard_timeout: a client that has sent nothing for this time after the start gets one step
            per second, since its address may be forged; None, as for idle_timeout, for no limit.
        loop_factory: function that makes the event loop, such as uvloop.new_event_loop.
    """

    address: Where = f"127.0.0.1:{PORT}"
    _: KW_ONLY
    rollout_port: _options.Natural | None = None
    frames: _options.Hz = FRAMES
    threads: _options.Natural = 0
    idle_timeout: _options.Seconds | None = IDLE
    unheard_timeout: _options.Seconds | None = UNHEARD
    loop_factory: Any = None


@dataclass(frozen=True)
class PerlertClientOptions(_KeyOptions):
    """Options of an agent.

    Attributes:
        address: the server's lobby, ``"host:port"``, ``"[ipv6]:port"``, ``(host, port)`` or a URL.
        instance: ``"name"`` or ``"name:number"``, number 0 by default (default: the URL's path).
        tag: unique name of the agent in the lobby (default: random).
    """

    address: Where
    instance: str = ""
    _: KW_ONLY
    tag: _options.Name | None = None


@dataclass(frozen=True, kw_only=True)
class PerlertEnvironmentOptions(PerlertClientOptions):
    """Options of `rlwire.make` over PERLERT.

    Attributes:
        agent: slot to play (default: the first open one).
        actions: name of the next action of a Discrete space, as the server has it.
        timeout: time to wait for the next frame, and for a reply.
        start_timeout: time to wait for a slot, for the end of a run, and until all clients are
            ready for the next.
    """

    agent: _options.Name | None = None
    actions: tuple[_options.Name, ...] = ()
    timeout: float = 10.0
    start_timeout: float | None = 60.0


@dataclass(frozen=True, kw_only=True)
class PerlertEndpointOptions(PerlertEnvironmentOptions):
    """Options of a `PerlertEndpoint`.

    Attributes:
        observation_space: overrides the server's.
        action_space: overrides the server's.
    """

    observation_space: Any = None
    action_space: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": PerlertServerOptions,
    "client": PerlertClientOptions,
    "environment": PerlertEnvironmentOptions,
}

"""The registry of protocols, and entry points for other packages.

A record describes a protocol without importing it. Nothing here opens a socket.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, Final, Literal, TypeAlias

__all__ = ["LEARNERS", "PROTOCOLS", "Protocol", "Side", "examples", "protocol"]

Side: TypeAlias = Literal["server", "client", "environment", "listener", "player"]
"""Whose options: those of `rlwire.serve`, `connect`, `make`, `listen` and `play`."""


@dataclass(frozen=True)
class Protocol:
    """A protocol's record.

    Attributes:
        scheme: scheme of its URLs.
        port: default port.
        caller: the side that connects: the trainer to an environment, or the environment to an
            agent or policy.
        front: dotted name of the module that the front door calls. If the trainer connects, it has
            ``server(environment, url, **options)``, ``client(url, **options)``, ``async_client(url,
            **options)`` and ``endpoint(url, **options)``. If the environment connects, it has
            ``server(agent_or_policy, url, ...)``, both clients, ``listen(url, num_envs, ...)`` and
            ``play(environment, url, ...)``. A client connects when its ``with`` or ``async with``
            begins. A function may be missing, or be a name,
            ``"package.module:name"``, which is imported on its first call. ``OPTIONS`` maps each
            side (server, client, environment, listener, player) to its dataclass of options.
            ``dissector`` is a `rlwire.recording.dissecting.Dissector`, for `rlwire inspect`.
        summary: one line of help.
        served: what a server serves, for help and errors.
        path: what a URL's path names, such as ``"world"``; "" if URLs have no path.
        version: of the protocol, for recordings.
        carriers: which of ``+tls``, ``+unix`` and ``+shm`` a URL may have, without the plus.
        plus: whether a URL's port follows a plus, because the port of pixels may precede it.
    """

    scheme: str
    port: int
    caller: Literal["trainer", "environment"]
    front: str
    summary: str
    served: str = "an environment"
    path: str = ""
    version: str = ""
    carriers: tuple[str, ...] = ("tls", "unix", "shm")
    plus: bool = False

    @property
    def example(self) -> str:
        """A URL with the default port, as an example."""
        return f"{self.scheme}://localhost:{'+' if self.plus else ''}{self.port}"

    def entry(self, name: str) -> Any:
        """Return a function of `front`, such as `server`; ValueError if it has none."""
        found = getattr(importlib.import_module(self.front), name, None)
        if found is None:
            instead = _INSTEAD.get((self.caller, name))
            why = f"has no {name.replace('async_', '')} in Python"
            if instead:
                call = "make" if name == "endpoint" else name
                why = f"is not for rlwire.{call}, because the {self.caller} connects: {instead}"
            raise ValueError(f"{self.scheme}:// {why}")
        return resolve_name(found) if isinstance(found, str) else found

    @property
    def options(self) -> Mapping[Side, type]:
        """The dataclasses of options, by side."""
        front = importlib.import_module(self.front)
        found: Mapping[Side, type] = getattr(front, "OPTIONS", {})
        return found


_INSTEAD: Final = {
    ("trainer", "listen"): "use `rlwire.make(url)`",
    ("trainer", "play"): "use `rlwire.serve(environment, url)`",
    ("environment", "endpoint"): "use `rlwire.listen(url)`",
}


LEARNERS: Final[dict[str, str]] = {
    "algorithm": "rlwire.relaax.server",
    "rllib": "rlwire.rllib._front",
}
"""Each prefix of a name that `rlwire.serve` accepts for an agent, such as ``rllib:PPO``, and the
module whose ``server(name, url, **options)`` returns an idle server."""


def protocol(scheme: str) -> Protocol:
    """Return the record of a scheme: rlwire's, or an installed package's.

    A package registers a protocol by an entry point of the group ``rlwire.protocols``, whose name
    is the scheme and whose object is the `Protocol`.
    """
    record = PROTOCOLS.get(scheme)
    if record is not None:
        return record
    if scheme in _registered():
        return _loaded(scheme)
    near = difflib.get_close_matches(scheme, [*PROTOCOLS, *_registered()], 1)
    hint = f"did you mean {near[0]}://? Expected" if near else "expected"
    raise ValueError(f"no protocol {scheme!r} is installed; {hint} a URL such as {examples()}")


@functools.cache
def _registered() -> Mapping[str, EntryPoint]:
    found = {entry.name: entry for entry in entry_points(group="rlwire.protocols")}
    return {scheme: entry for scheme, entry in found.items() if scheme not in PROTOCOLS}


@functools.cache
def _loaded(scheme: str) -> Protocol:
    entry = _registered()[scheme]
    record = entry.load()
    if not isinstance(record, Protocol) or record.scheme != scheme:
        raise TypeError(
            f"entry point {entry.value}: expected a rlwire.registry.Protocol with the scheme "
            f"{scheme!r}, not {record!r}"
        )
    return record


def examples() -> str:
    """Return a URL of each protocol, for an error's text."""
    *others, last = [record.example for record in PROTOCOLS.values()]
    return f"{', '.join(others)} or {last}"


PROTOCOLS: Final[dict[str, Protocol]] = {
    record.scheme: record
    for record in (
        Protocol(
            "rlx",
            7001,
            "environment",
            "rlwire.rlx._front",
            "RELAAX's protocol: each environment that connects gets an agent",
            served="an agent, such as my_agents:Agent",
            version="1.1.0",
        ),
        Protocol(
            "rlx-ws",
            9000,
            "environment",
            "rlwire.rlx.page",
            "RLX for browsers: JSON over WebSocket",
            served="an agent, such as my_agents:Agent, or the URL of an RLX server",
            version="1.1.0",
        ),
        Protocol(
            "dm-env-rpc",
            9911,
            "trainer",
            "rlwire.dm_env_rpc._front",
            "DeepMind's dm_env_rpc over gRPC: agents create and join worlds",
            served="an environment of dm_env or Gymnasium, or a class of worlds",
            path="world",
            version="1",
        ),
        Protocol(
            "perlert",
            32322,
            "trainer",
            "rlwire.perlert._front",
            "PERLERT over UDP: several agents in one environment in real time",
            path="instance",
            version="00",
            carriers=(),
        ),
        Protocol(
            "universe",
            15900,
            "trainer",
            "rlwire.universe._front",
            "OpenAI Universe: a real-time environment's rewards; with host:5900+15900, also pixels",
            path="environment",
            version="0.21.3",
            plus=True,
        ),
        Protocol(
            "openpi",
            8000,
            "environment",
            "rlwire.openpi._front",
            "Physical Intelligence's openpi over WebSocket: a policy server",
            served="a policy, such as my_policies:Policy",
            version="0.1.2",
        ),
        Protocol(
            "rllink",
            5555,
            "environment",
            "rlwire.rllink._front",
            "RLlib's RLlink: simulators send episodes and receive weights",
            served="a learner, such as my_learners:Learner",
            version="2.60",
        ),
    )
}

"""The options of each of rlwire's own protocols, as text: what `Protocol.options` lists.

What several have stands in `rlwire.options`; which keyword of a server or client each becomes is
said here, what it does there is said by the server or client.
"""

from __future__ import annotations

import json
from typing import Any, Final

from rlwire import options as texts
from rlwire.options import Option


def _key_file(path: str) -> bytes:
    from rlwire.transports.datagram_cipher import load_key

    return load_key(path)


def _workers(written: str) -> str | int:
    if written in ("threads", "asyncio"):
        return written
    if not written.lstrip("-").isdecimal():
        raise ValueError(f"expected threads, asyncio or a number of processes, not {written!r}")
    return texts.positive(written)


def _metric(written: str) -> tuple[str, str]:
    name, _, where = written.partition(":")
    if written != "logging" and not (name == "tensorboard" and where):
        raise ValueError(f"expected logging or tensorboard:DIR, not {written!r}")
    return name, where


def _key_action(written: str) -> tuple[str, Any]:
    keys, _, action = written.rpartition("=")
    try:
        return keys, json.loads(action)
    except ValueError:
        raise ValueError(f"expected KEYS=ACTION, the action in JSON, not {written!r}") from None


_STREAM: Final = (*texts.LISTENING, *texts.CALLING)
_PLAYED: Final = (
    Option("seed", "of the first episode that is played", texts.number, "N", sides=("player",)),
)
_NAME: Final = Option("name", "what it is called (default: its own name)", texts.text, "NAME")
_SEED: Final = Option("seed", "from which all seeds are made", texts.number, "N")


def _rate(default: int) -> Option:
    return Option("rate", f"steps a second (default: {default})", texts.positive_float, "HZ")


RLLIB: Final = (
    Option(
        "like",
        "of rllib:NAME, takes the spaces from the environment of this name",
        texts.text,
        "CartPole-v1|MODULE:NAME",
    ),
    Option(
        "observation_space",
        'of rllib:NAME, in JSON, such as {"discrete": 2}, or by name',
        texts.text,
        "JSON|MODULE:NAME",
    ),
    Option("action_space", "the same of actions", texts.text, "JSON|MODULE:NAME"),
    Option(
        "runners",
        "of rllib:NAME: how many, each on its own port from the URL's on (default: 1)",
        texts.natural,
        "N",
    ),
    Option(
        "ray_address",
        "of rllib:NAME: the cluster to join (default: Ray is begun here)",
        texts.text,
        "auto|HOST:PORT",
    ),
    Option(
        "iterations",
        "of rllib:NAME: after which the server stops (default: never)",
        texts.positive,
        "N",
    ),
)

RLX: Final = (
    Option(
        "workers",
        "a thread for each connection, one event loop for all of them (agents that answer at "
        "once), or N processes with threads (default: threads)",
        _workers,
        "threads|asyncio|N",
    ),
    Option(
        "parameter_server",
        "of algorithm:NAME, where it lives: in this process, or on Ray, there one for all servers "
        "that say the same name (default: server); of another agent, what is "
        "called once in each process, and its result given to every agent",
        texts.text,
        "server|ray[:NAME]|MODULE:FACTORY",
    ),
    Option(
        "config",
        "the settings of algorithm:NAME or rllib:NAME, in a file of YAML (its section: algorithm)",
        texts.text,
        "FILE[:SECTION]",
    ),
    Option(
        "checkpoints",
        "where algorithm:NAME or rllib:NAME keeps what it has learned, and begins with the latest "
        "(default: nowhere)",
        texts.text,
        "DIR",
    ),
    Option(
        "metrics",
        "where metrics go: a log, or TensorBoard's files (default: logging)",
        _metric,
        "logging|tensorboard:DIR",
        many=True,
    ),
    Option("exploit", "ask the agent not to explore or learn", None, sides=("player",)),
    *RLLIB,
    *_PLAYED,
    *_STREAM,
)

RLX_WS: Final = (
    Option(
        "arrays",
        "what lists of numbers in a state become (default: lists)",
        texts.choice("lists", "float32", "float64"),
        "lists|float32|float64",
    ),
    Option("max_sids", "how many environments one WebSocket may have", texts.positive, "N"),
    Option(
        "max_pending",
        "how many commands of one environment may wait for their answers",
        texts.positive,
        "N",
    ),
    *texts.ORIGINS,
    *texts.LISTENING,
)

DM_ENV_RPC: Final = (
    Option(
        "workers",
        "a thread for each connection, or one event loop for all of them (environments that "
        "step at once) (default: threads)",
        texts.choice("threads", "asyncio"),
        "threads|asyncio",
    ),
    Option(
        "agents",
        "how many agents may join one world, each with an environment of its own (default: 1)",
        texts.positive,
        "N",
    ),
    Option(
        "max_worlds",
        "how many worlds may exist at once; further ones are refused",
        texts.positive,
        "N",
    ),
    Option("reward", "the observation that the reward is; '' leaves it out", str, "NAME"),
    Option("discount", "the same for the discount", str, "NAME"),
    Option(
        "accept",
        "let clients choose this argument of the class or function by a setting, or 'options' "
        "of a Gymnasium environment's reset (default: only the seed)",
        texts.text,
        "NAME",
        "accepts",
        many=True,
    ),
    *texts.SETTINGS,
    *texts.AUTH,
    *_STREAM,
)

PERLERT: Final = (
    Option(
        "rollout_port",
        "where rollouts listen (default: the port after the lobby's)",
        texts.natural,
        "PORT",
    ),
    _NAME,
    Option(
        "instances",
        "how many runs can go on at once, each in an environment of its own, numbered from 0 "
        "(default: 1)",
        texts.positive,
        "N",
    ),
    Option(
        "players",
        "how many agents it takes to begin (default: all that the environment has)",
        texts.positive,
        "N",
    ),
    _rate(30),
    Option(
        "frames",
        "how many steps a second an agent is told of, at most (default: 30)",
        texts.positive_float,
        "HZ",
    ),
    Option(
        "decimals",
        "to which numbers are rounded (default: all that they have)",
        texts.natural,
        "N",
    ),
    Option(
        "max_datagram",
        "the longest datagram, up to 65507 (default: 1200)",
        texts.positive,
        "BYTES",
        "limits.datagram",
        sides=("server", "client"),
    ),
    Option(
        "threads",
        "how many step environments, for slow ones; 0 steps all of them on the event loop "
        "(default: 0)",
        texts.natural,
        "N",
    ),
    Option(
        "auth_file",
        "encipher and authenticate all datagrams with the key in this file, 32 bytes in "
        "hexadecimal, which agents need as well",
        _key_file,
        "FILE",
        "auth",
        sides=("server", "client"),
    ),
    _SEED,
    *texts.SETTINGS,
    *texts.LIMITS,
)

UNIVERSE: Final = (
    _rate(60),
    Option(
        "key",
        "the action, in JSON, of keys and buttons that a viewer holds down, such as Left=3, "
        "Left+space=5 or Button1=1 (default: those that the environment has for people)",
        _key_action,
        "KEYS=ACTION",
        "keys",
        many=True,
    ),
    Option(
        "frames",
        "what viewers see (default: the observation if it is a picture in colour, or else what "
        "the environment renders)",
        texts.choice("observation", "render"),
        "observation|render",
    ),
    Option("page", "also serve a page for browsers, on port 6080 of the same host", None),
    Option("page_port", "the same, on another port", texts.natural, "PORT", "page"),
    Option(
        "novnc",
        "the folder of npm's @novnc/novnc, which the page needs (default: "
        "node_modules/@novnc/novnc)",
        texts.text,
        "PATH",
    ),
    Option(
        "view_auth_file",
        "the secret in this file: VNC's viewers that have it look on, and cannot play",
        texts.AUTH[0].kind,
        "FILE",
        "view_auth",
    ),
    Option(
        "password",
        "the secret itself, as the original's URLs have it; others may see it there",
        texts.text,
        "SECRET",
        "auth",
        sides=("server", "client"),
    ),
    Option("lockstep", "make one step for each action instead", None),
    _NAME,
    _SEED,
    *texts.SETTINGS,
    *texts.ORIGINS,
    *texts.AUTH,
    *_STREAM,
)

OPENPI: Final = (
    Option(
        "workers",
        "one event loop for all clients, or a thread for each, in which the policy is called "
        "once at a time (default: asyncio)",
        texts.choice("threads", "asyncio"),
        "threads|asyncio",
    ),
    Option(
        "threads",
        "how many the policy thinks in beside the event loop; 0 calls it on the loop, for "
        "policies that answer at once (default: 1)",
        texts.natural,
        "N",
    ),
    Option(
        "arrays",
        "how arrays are written; both are read (default: openpi)",
        texts.choice("openpi", "msgpack_numpy"),
        "openpi|msgpack_numpy",
        sides=("server", "client"),
    ),
    Option("tracebacks", "tell clients where an error arose", None),
    *RLLIB,
    *_PLAYED,
    *texts.ORIGINS,
    *texts.AUTH,
    *_STREAM,
)

RLLINK: Final = (
    Option("steps", "that a message with episodes is to bring (default: 500)", texts.positive, "N"),
    Option(
        "batch",
        "steps that the learner is given at once, at least (default: what there is)",
        texts.positive,
        "N",
    ),
    Option(
        "backlog",
        "steps that may wait for the learner; who sends more is not heard meanwhile (default: "
        "1000000)",
        texts.positive,
        "N",
    ),
    Option(
        "policy",
        "what acts, with the weights that the trainer sends (default: it runs the ONNX that is "
        "sent)",
        texts.text,
        "MODULE:POLICY",
        sides=("player",),
    ),
    Option(
        "form",
        "of the messages that are sent; json for RLlib before 2.44 (default: msgpack)",
        texts.choice("msgpack", "json"),
        "msgpack|json",
        sides=("client",),
    ),
    Option(
        "compression",
        "compress messages, if the trainer supports it (default: none)",
        texts.choice("zstd"),
        "zstd",
        sides=("client",),
    ),
    *_PLAYED,
    *texts.AUTH,
    *_STREAM,
)

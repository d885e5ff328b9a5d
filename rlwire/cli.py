"""The command ``rlwire``: reads its arguments and calls what does the work.

``rlwire bench`` lives in `rlwire.bench.command`, ``rlwire serve`` in the adapters. Each is
imported only when it is asked for, because some need optional dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import rlwire
from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.transports.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS

if TYPE_CHECKING:
    from rlwire.adapters.dm_env_rpc import DmEnvRpcServer
    from rlwire.adapters.openpi import PolicyServer
    from rlwire.adapters.perlert import PerlertServer
    from rlwire.adapters.relaax import Metrics, RLXProxy, RLXServer
    from rlwire.adapters.rewarder.environments import EnvironmentRewarder
    from rlwire.adapters.serving import BackgroundServer
    from rlwire.transports.sockets import Timeouts

__all__ = ["main"]

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done, or stopped by SIGINT or SIGTERM. 1: it failed, for a reason that one line says. 2: the
    arguments are wrong; only then the usage is shown.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="rlwire", description="Codecs and transports for reinforcement learning protocols."
    )
    parser.add_argument("--version", action="version", version=f"rlwire {rlwire.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    bench = commands.add_parser(
        "bench", help="measure round trips with real observations against raw sockets"
    )
    if next((word for word in arguments if not word.startswith("-")), None) == "bench":
        from rlwire.bench import command

        command.add_arguments(bench)
        bench.set_defaults(run=command.run)
    _add_serve(commands.add_parser("serve", help="serve an agent or an environment"))
    given = parser.parse_args(arguments)
    try:
        return int(given.run(given) or 0)
    except (RlwireError, OSError, _Failed) as error:
        print(f"rlwire: {error}", file=sys.stderr)
        return 1


class _Failed(Exception):
    """What cannot be done, in words for the user."""


def _add_serve(parser: argparse.ArgumentParser) -> None:
    protocols = parser.add_subparsers(dest="protocol", metavar="PROTOCOL", required=True)
    for name, add, text, description in _PROTOCOLS:
        add(
            protocols.add_parser(
                name,
                help=text,
                description=f"{description} Ends with status 0 on SIGINT or SIGTERM.",
            )
        )


def _add(parser: argparse._ActionsContainer, *rows: tuple[Any, ...]) -> None:
    """Add options: name, type, what the value is called, help and, if not None, the default."""
    for name, kind, metavar, text, *default in rows:
        parser.add_argument(
            name, type=kind, metavar=metavar, help=text, default=default[0] if default else None
        )


# fmt: off

def _add_rlx(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="MODULE:AGENT",
                        help="class or factory of agents, such as my_agents:Agent")
    _add_address(parser, "localhost:7001")
    _add(
        parser,
        ("--workers", _workers, "threads|asyncio|N",
         "a thread for each connection, one event loop for all of them (agents that answer at "
         "once), or N processes with threads (default: %(default)s)", "threads"),
        ("--parameter-server", None, "MODULE:FACTORY",
         "called once in each process; its result is given to every agent"),
    )
    parser.add_argument("--metrics", action="append", type=_metric,
                        metavar="logging|tensorboard:DIR",
                        help="where metrics go; may be given more than once (default: logging)")
    _add_common(parser)
    parser.set_defaults(make=_make_rlx)


def _add_rlx_proxy(parser: argparse.ArgumentParser) -> None:
    _add(
        parser,
        ("--rlx", _address, "HOST:PORT",
         "the RLX server, or unix:/path (default: %(default)s)", "localhost:7001"),
        ("--max-sids", _positive_int, "N", "how many environments one WebSocket may have"),
        ("--max-pending", _positive_int, "N",
         "how many commands of one environment may wait for their answers"),
    )
    parser.add_argument("--arrays", choices=("lists", "float32", "float64"),
                        help="what lists of numbers in a state become (default: lists)")
    _add_address(parser, "localhost:9000")
    _add_origins(parser)
    _add_common(parser, message="the longest message that a page may send")
    parser.set_defaults(make=_make_rlx_proxy)


def _add_dm_env_rpc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "environment", metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class, function or instance, such as my_module:MyEnvironment; an environment "
        "registered with Gymnasium, such as gym:CartPole-v1 or gym:ale_py:ALE/Pong-v5; or a class "
        "of worlds",
    )
    _add_address(parser, "localhost:9911")
    parser.add_argument(
        "--workers", choices=("threads", "asyncio"), default="threads",
        help="a thread for each connection, or one event loop for all of them (environments that "
        "step at once) (default: %(default)s)",
    )
    _add(
        parser,
        ("--agents", _positive_int, "N",
         "how many agents may join one world, each with an environment of its own "
         "(default: %(default)s)", 1),
        ("--max-worlds", _positive_int, "N",
         "how many worlds may exist at once; further ones are refused"),
        ("--token-file", None, "FILE",
         "accept only clients that send the bearer token in this file"),
        *(
            (f"--{name}", None, "NAME",
             f"the observation that the {name} is; '' leaves it out (default: %(default)s)", name)
            for name in ("reward", "discount")
        ),
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="NAME",
        help="let clients choose this argument of the class or function by a setting, or 'options' "
        "of a Gymnasium environment's reset; may be given more than once (default: only the seed)",
    )
    _add_set(parser)
    _add_common(parser)
    parser.set_defaults(make=_make_dm_env_rpc)


def _add_perlert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "environment", metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class or function that makes environments, such as "
        "mpe2.simple_spread_v3:parallel_env, or an instance; or an environment registered with "
        "Gymnasium, such as gym:CartPole-v1",
    )
    _add_address(parser, "127.0.0.1:32322", "where the lobby listens")
    _add(
        parser,
        ("--rollout-port", int, "PORT",
         "where rollouts listen (default: the port after the lobby's)"),
        ("--name", None, None, "what it is called (default: the environment's own name)"),
        ("--instances", _positive_int, "N",
         "how many runs can go on at once, each in an environment of its own, numbered from 0 "
         "(default: %(default)s)", 1),
        ("--players", _positive_int, "N",
         "how many agents it takes to begin (default: all that the environment has)"),
        ("--rate", _positive_float, "HZ", "steps a second (default: %(default)s)", 30.0),
        ("--frames", _positive_float, "HZ",
         "how many steps a second an agent is told of, at most (default: 30)"),
        ("--decimals", int, "N", "to which numbers are rounded (default: all that they have)"),
        ("--max-datagram", _positive_int, "BYTES",
         "the longest datagram, up to 65507 (default: 1200)"),
        ("--workers", int, "N",
         "threads for environments that step slowly; 0 steps all of them on the event loop "
         "(default: %(default)s)", 0),
        ("--key-file", None, "FILE",
         "encipher and authenticate all datagrams with the key in this file, 64 hexadecimal "
         "digits or 32 bytes, which agents need as well"),
        ("--seed", int, None, "from which the seeds of all runs are made"),
    )
    _add_set(parser)
    _add_limits_and_log(parser)
    parser.set_defaults(make=_make_perlert, tls_cert=None, tls_key=None, tls_client_ca=None)


def _add_rewarder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "environment", metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class, function or instance, such as my_module:MyEnvironment; or an environment "
        "registered with Gymnasium, such as gym:CartPole-v1",
    )
    _add_address(parser, "127.0.0.1:15900")
    _add(
        parser.add_mutually_exclusive_group(),
        ("--password-file", None, "FILE",
         "accept only clients that know the password in this file"),
        ("--password-env", None, "NAME",
         "the same, with the password in this environment variable; without either it is "
         "Universe's, 'openai', which everybody knows"),
    )
    _add(
        parser,
        ("--fps", _positive_float, "HZ", "steps a second (default: %(default)s)", 60.0),
        ("--seed", int, None, "for the first episode"),
        ("--env-id", None, "NAME", "what it is called (default: the environment's own name)"),
    )
    parser.add_argument("--lockstep", action="store_true",
                        help="make one step for each action instead")
    _add_origins(parser)
    _add_common(parser, "stop after so long without an agent")
    parser.set_defaults(make=_make_rewarder)


def _add_openpi(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy", metavar="MODULE:POLICY",
        help="class or instance with a method infer, or function of an observation, such as "
        "my_policies:Policy",
    )
    _add_address(parser, "localhost:8000")
    _add(
        parser,
        ("--workers", _thinkers, "N|threads",
         "threads that the policy thinks in; 0 calls it on the event loop, for policies that "
         "answer at once; threads calls it in a thread of each client, once at a time "
         "(default: 1)"),
        ("--api-key-file", None, "FILE", "accept only clients that send the key in this file"),
    )
    parser.add_argument("--arrays", choices=("openpi", "msgpack_numpy"),
                        help="how arrays are written; both are read (default: openpi)")
    parser.add_argument("--tracebacks", action="store_true", default=None,
                        help="tell clients where an error arose")
    _add_common(parser)
    parser.set_defaults(make=_make_openpi)


def _add_address(
    parser: argparse.ArgumentParser, default: str, what: str = "where to listen, or unix:/path"
) -> None:
    _add(
        parser,
        ("--address", _address, "HOST:PORT",
         f"{what}; port 0 lets the system choose, and the log says which (default: %(default)s)",
         default),
    )


def _add_origins(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--origin", action="append", dest="origins", metavar="ORIGIN",
        help="pages whose scripts may connect, such as https://example.org; * for all; null for "
        "pages without an origin of their own, such as files: any page on the web can have that "
        "origin by way of a sandboxed frame, so it keeps out as few as *; may be given more than "
        "once (default: none)",
    )


def _add_common(
    parser: argparse.ArgumentParser,
    idle: str = "close a connection that sends nothing for so long",
    message: str = "the longest message that is received; the same as --limit received=BYTES",
) -> None:
    """What all protocols over a connection have."""
    _add(
        parser,
        ("--max-connections", _positive_int, "N",
         "how many connections are served at once (by each process); further ones are refused "
         f"(default: {MAX_CONNECTIONS})"),
        ("--max-connections-per-address", _positive_int, "N",
         f"how many of them from one address (default: {MAX_CONNECTIONS_PER_ADDRESS})"),
        ("--first-timeout", _positive_float, "SECONDS",
         "close a connection that has said nothing at all for so long"),
        ("--max-message", _positive_int, "BYTES", message),
        ("--idle-timeout", _positive_float, "SECONDS", idle),
        ("--tls-cert", None, "FILE", "serve TLS with this certificate chain (PEM)"),
        ("--tls-key", None, "FILE", "the certificate's private key (PEM)"),
        ("--tls-client-ca", None, "FILE", "accept only clients certified by this (PEM)"),
    )
    _add_limits_and_log(parser)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", type=_setting, default=[], metavar="NAME=VALUE",
        help="keyword argument for what makes environments, in JSON or as plain text; may be "
        "given more than once",
    )


def _add_limits_and_log(parser: argparse.ArgumentParser) -> None:
    """What all protocols have."""
    parser.add_argument(
        "--limit", action="append", type=_limit, default=[], metavar="NAME=N",
        help="raise or lower a limit on what is read and written: "
        + ", ".join(field.name for field in dataclasses.fields(Limits))
        + "; may be given more than once",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        help="what is logged, to standard error (default: %(default)s)",
    )
    parser.set_defaults(run=_serve, parser=parser)


_PROTOCOLS: Final = (
    ("rlx", _add_rlx, "an agent for RELAAX environments",
     "Serve an agent over RLX: one agent for each connection."),
    ("rlx-proxy", _add_rlx_proxy,
     "a WebSocket in front of an RLX server, for environments in JavaScript",
     "Let pages reach an RLX server by JSON over a WebSocket."),
    ("dm_env_rpc", _add_dm_env_rpc, "an environment for dm_env_rpc agents",
     "Serve an environment of dm_env or Gymnasium over dm_env_rpc: one environment for each "
     "agent."),
    ("perlert", _add_perlert, "an environment that agents play together in real time",
     "Serve an environment of Gymnasium or PettingZoo in real time over PERLERT, which is UDP."),
    ("rewarder", _add_rewarder, "an environment that a Universe agent resets and that rewards it",
     "Serve an environment of Gymnasium in real time over Universe's rewarder protocol, which is "
     "JSON over WebSocket."),
    ("openpi", _add_openpi, "a policy for openpi's clients",
     "Serve a policy to openpi's clients, which is msgpack with arrays over WebSocket."),
)
# fmt: on


def _serve(given: argparse.Namespace) -> int:
    """Make a server, see that what it serves can be made, and serve until a signal."""
    _set_up_log(given.log_level)
    # As `python -m` does: agents are usually a file in the directory that one works in.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    if (given.tls_key or given.tls_client_ca) and not given.tls_cert:
        given.parser.error("--tls-key and --tls-client-ca need --tls-cert")
    with _in_one_line():
        server: BackgroundServer = given.make(given)
        server.check()
        server.serve_forever()
    return 0


def _set_up_log(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    """Make a `_Failed` of whatever is wrong with what shall be served."""
    try:
        yield
    except (RlwireError, OSError):
        raise
    except Exception as error:
        logger.debug("where it failed", exc_info=True)
        text = " ".join(str(error).split())
        raise _Failed(f"{type(error).__name__}: {text}") from error


def _given(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were given, by name; those that were not have defaults elsewhere."""
    return {name: value for name in names if (value := getattr(given, name)) is not None}


def _serving(given: argparse.Namespace, times: Timeouts | None = None) -> dict[str, Any]:
    """Return the options that all servers of streams share, of those that were given.

    Args:
        given: the arguments.
        times: what the server has by default, if not `Timeouts()`.
    """
    from rlwire.transports import tls
    from rlwire.transports.sockets import Timeouts

    options = _given(given, "max_connections", "max_connections_per_address", "idle_timeout")
    if given.first_timeout is not None:
        options["timeouts"] = dataclasses.replace(times or Timeouts(), first=given.first_timeout)
    if given.tls_cert:
        files = (given.tls_cert, given.tls_key, given.tls_client_ca)
        options["tls"] = functools.partial(tls.server_context, *files)
    return options


def _limits(given: argparse.Namespace) -> dict[str, Any]:
    """Return ``limits``, if any were given."""
    chosen = dict(given.limit)
    for option, name in (("max_message", "received"), ("max_datagram", "datagram")):
        if getattr(given, option, None) is not None:
            chosen[name] = getattr(given, option)
    return {"limits": Limits(**chosen)} if chosen else {}


def _secret(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _make_rlx(given: argparse.Namespace) -> RLXServer:
    from rlwire.adapters.relaax import RLXServer

    return RLXServer(
        given.agent,
        given.address,
        parameter_server=given.parameter_server,
        metrics=_metrics(given.metrics or [("logging", "")]),
        workers=given.workers,
        worker_initializer=functools.partial(_set_up_log, given.log_level),
        **_serving(given),
        **_limits(given),
    )


def _make_rlx_proxy(given: argparse.Namespace) -> RLXProxy:
    from rlwire.adapters.relaax import RLXProxy

    options = _given(given, "origins", "arrays", "max_sids", "max_pending", "max_message")
    if given.limit:
        options["limits"] = Limits(**dict(given.limit))
    return RLXProxy(given.rlx, given.address, **options, **_serving(given))


def _make_dm_env_rpc(given: argparse.Namespace) -> DmEnvRpcServer:
    from rlwire.adapters.dm_env_rpc import (
        DmEnvRpcServer,
        EnvironmentWorlds,
        Names,
        ServerTLS,
    )
    from rlwire.adapters.dm_env_rpc.drivers import is_environment, is_world
    from rlwire.environments.loading import load_environment
    from rlwire.transports.sockets import Timeouts

    options = _given(given, "max_worlds", "max_connections", "max_connections_per_address")
    times = {"first": given.first_timeout, "idle": given.idle_timeout}
    options["timeouts"] = Timeouts(**{name: time for name, time in times.items() if time})
    if given.tls_cert:
        options["tls"] = ServerTLS(given.tls_cert, given.tls_key, given.tls_client_ca)
    if given.token_file is not None:
        options["token"] = _secret(given.token_file)
    worlds = load_environment(given.environment)
    if not is_world(worlds):
        if given.set:
            if is_environment(worlds) and not isinstance(worlds, type):
                raise ValueError("--set is for what makes environments; this one is made")
            worlds = functools.partial(worlds, **dict(given.set))
        worlds = EnvironmentWorlds(
            worlds,
            agents=given.agents,
            accepts=given.accept,
            names=Names(reward=given.reward or None, discount=given.discount or None),
        )
    elif given.accept or given.set:
        raise ValueError("--accept, --set: a class of worlds looks at all settings itself")
    return DmEnvRpcServer(
        worlds,
        given.address,
        workers=given.workers,
        keep_abandoned=False,
        **options,
        **_limits(given),
    )


def _make_perlert(given: argparse.Namespace) -> PerlertServer:
    from rlwire.adapters.perlert import PerlertServer, ServerSettings, load_key

    names = ("name", "instances", "players", "rate", "decimals", "workers", "seed", "rollout_port")
    options = _given(given, *names)
    if given.frames is not None:
        options["settings"] = ServerSettings(frames_per_second=given.frames)
    if given.key_file is not None:
        options["cipher"] = load_key(given.key_file)
    return PerlertServer(
        given.environment, given.address, make_with=dict(given.set), **options, **_limits(given)
    )


def _make_rewarder(given: argparse.Namespace) -> EnvironmentRewarder:
    from rlwire.adapters.rewarder.environments import EnvironmentRewarder
    from rlwire.adapters.rewarder.server import TIMEOUTS

    options = _given(given, "env_id", "seed") | _serving(given, TIMEOUTS)
    if given.password_file is not None:
        options["password"] = _secret(given.password_file)
    elif given.password_env is not None:
        if given.password_env not in os.environ:
            raise _Failed(f"--password-env: there is no variable {given.password_env}")
        options["password"] = os.environ[given.password_env]
    if not options.get("password", "openai"):
        raise _Failed("the password is empty")
    return EnvironmentRewarder(
        given.environment,
        given.address,
        fps=given.fps,
        lockstep=given.lockstep,
        origins=given.origins or (),
        **options,
        **_limits(given),
    )


def _make_openpi(given: argparse.Namespace) -> PolicyServer:
    import inspect

    from rlwire.adapters.openpi import PolicyServer
    from rlwire.environments.loading import load

    options = _given(given, "workers", "arrays", "tracebacks") | _serving(given)
    if given.api_key_file is not None:
        options["api_key"] = _secret(given.api_key_file)
    policy = load(given.policy, "module:policy")
    if inspect.isclass(policy):
        policy = policy()
    return PolicyServer(policy, given.address, **options, **_limits(given))


def _metrics(kinds: list[tuple[str, str]]) -> Metrics:
    from rlwire.adapters.relaax import LoggingMetrics, MultiMetrics, TensorBoardMetrics

    sinks: list[Metrics] = [
        TensorBoardMetrics(directory) if directory else LoggingMetrics() for _, directory in kinds
    ]
    return sinks[0] if len(sinks) == 1 else MultiMetrics(sinks)


def _metric(text: str) -> tuple[str, str]:
    name, _, directory = text.partition(":")
    if text != "logging" and not (name == "tensorboard" and directory):
        raise argparse.ArgumentTypeError(f"expected logging or tensorboard:DIR, not {text!r}")
    return name, directory


def _address(text: str) -> str:
    from rlwire.transports.address import parse

    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _limit(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    names = [field.name for field in dataclasses.fields(Limits)]
    if name not in names or not value.isdecimal():
        raise argparse.ArgumentTypeError(
            f"expected NAME=NUMBER with one of {', '.join(names)}, not {text!r}"
        )
    return name, int(value)


def _workers(text: str) -> str | int:
    if text in ("threads", "asyncio"):
        return text
    try:
        return _positive_int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected threads, asyncio or a number of processes, not {text!r}"
        ) from None


def _thinkers(text: str) -> str | int:
    return text if text == "threads" else _natural_int(text)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _natural_int(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected 0 or a positive number, not {text}")
    return number


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text}")
    return number


def _positive_float(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text}")
    return number

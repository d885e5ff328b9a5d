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
from typing import TYPE_CHECKING, Any

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
    _add_rlx(
        protocols.add_parser(
            "rlx",
            help="an agent for RELAAX environments",
            description="Serve an agent over RLX: one agent for each connection. "
            "Ends with status 0 on SIGINT or SIGTERM.",
        )
    )
    _add_rlx_proxy(
        protocols.add_parser(
            "rlx-proxy",
            help="a WebSocket in front of an RLX server, for environments in JavaScript",
            description="Let pages reach an RLX server by JSON over a WebSocket. "
            "Ends with status 0 on SIGINT or SIGTERM.",
        )
    )
    _add_dm_env_rpc(
        protocols.add_parser(
            "dm_env_rpc",
            help="an environment for dm_env_rpc agents",
            description="Serve an environment of dm_env or Gymnasium over dm_env_rpc: one "
            "environment for each agent. Ends with status 0 on SIGINT or SIGTERM.",
        )
    )
    _add_perlert(
        protocols.add_parser(
            "perlert",
            help="an environment that agents play together in real time",
            description="Serve an environment of Gymnasium or PettingZoo in real time over "
            "PERLERT, which is UDP. Ends with status 0 on SIGINT or SIGTERM.",
        )
    )
    _add_rewarder(
        protocols.add_parser(
            "rewarder",
            help="an environment that a Universe agent resets and that rewards it",
            description="Serve an environment of Gymnasium in real time over Universe's rewarder "
            "protocol, which is JSON over WebSocket. Ends with status 0 on SIGINT or SIGTERM.",
        )
    )
    _add_openpi(
        protocols.add_parser(
            "openpi",
            help="a policy for openpi's clients",
            description="Serve a policy to openpi's clients, which is msgpack with arrays over "
            "WebSocket. Ends with status 0 on SIGINT or SIGTERM.",
        )
    )


def _add_rlx(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("agent", metavar="MODULE:AGENT", help="class or factory of agents, such as my_agents:Agent")
    _add_address(parser, "localhost:7001")
    add(
        "--workers",
        type=_workers,
        default="threads",
        metavar="threads|asyncio|N",
        help="a thread for each connection, one event loop for all of them (agents that answer "
        "at once), or N processes with threads (default: %(default)s)",
    )
    _add_common(parser)
    add(
        "--metrics",
        action="append",
        type=_metric,
        default=None,
        metavar="logging|tensorboard:DIR",
        help="where metrics go; may be given more than once (default: logging)",
    )
    add(
        "--parameter-server",
        default=None,
        metavar="MODULE:FACTORY",
        help="called once in each process; its result is given to every agent",
    )
    parser.set_defaults(make=_make_rlx)


def _add_rlx_proxy(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--rlx",
        type=_address,
        default="localhost:7001",
        metavar="HOST:PORT",
        help="the RLX server, or unix:/path (default: %(default)s)",
    )
    _add_address(parser, "localhost:9000")
    _add_origins(parser)
    add(
        "--arrays",
        choices=("lists", "float32", "float64"),
        default=None,
        help="what lists of numbers in a state become (default: lists)",
    )
    for name, text in (
        ("sids", "how many environments one WebSocket may have"),
        ("pending", "how many commands of one environment may wait for their answers"),
    ):
        add(f"--max-{name}", type=_positive_int, default=None, metavar="N", help=text)
    _add_common(parser, message="the longest message that a page may send")
    parser.set_defaults(make=_make_rlx_proxy)


def _add_dm_env_rpc(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "environment",
        metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class, function or instance, such as my_module:MyEnvironment; an environment "
        "registered with Gymnasium, such as gym:CartPole-v1 or gym:ale_py:ALE/Pong-v5; or a class "
        "of worlds",
    )
    _add_address(parser, "localhost:9911")
    add(
        "--workers",
        choices=("threads", "asyncio"),
        default="threads",
        help="a thread for each connection, or one event loop for all of them (environments that "
        "step at once) (default: %(default)s)",
    )
    add(
        "--agents",
        type=_positive_int,
        default=1,
        metavar="N",
        help="how many agents may join one world, each with an environment of its own "
        "(default: %(default)s)",
    )
    _add_set(parser)
    add(
        "--accept",
        action="append",
        default=[],
        metavar="NAME",
        help="let clients choose this argument of the class or function by a setting, or 'options' "
        "of a Gymnasium environment's reset; may be given more than once (default: only the seed)",
    )
    add(
        "--max-worlds",
        type=_positive_int,
        default=None,
        metavar="N",
        help="how many worlds may exist at once; further ones are refused",
    )
    _add_common(parser)
    add(
        "--token-file",
        metavar="FILE",
        help="accept only clients that send the bearer token in this file",
    )
    for name in ("reward", "discount"):
        add(
            f"--{name}",
            default=name,
            metavar="NAME",
            help=f"the observation that the {name} is; '' leaves it out (default: %(default)s)",
        )
    parser.set_defaults(make=_make_dm_env_rpc)


def _add_perlert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "environment",
        metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class or function that makes environments, such as "
        "mpe2.simple_spread_v3:parallel_env, or an instance; or an environment registered with "
        "Gymnasium, such as gym:CartPole-v1",
    )
    _add_address(parser, "127.0.0.1:32322", "where the lobby listens")
    add(
        "--rollout-port",
        type=int,
        default=None,
        metavar="PORT",
        help="where rollouts listen (default: the port after the lobby's)",
    )
    add("--name", default=None, help="what it is called (default: the environment's own name)")
    add(
        "--instances",
        type=_positive_int,
        default=1,
        metavar="N",
        help="how many runs can go on at once, each in an environment of its own, numbered from 0 "
        "(default: %(default)s)",
    )
    add(
        "--players",
        type=_positive_int,
        default=None,
        metavar="N",
        help="how many agents it takes to begin (default: all that the environment has)",
    )
    add(
        "--rate",
        type=_positive_float,
        default=30.0,
        metavar="HZ",
        help="steps a second (default: %(default)s)",
    )
    add(
        "--frames",
        type=_positive_float,
        default=None,
        metavar="HZ",
        help="how many steps a second an agent is told of, at most (default: 30)",
    )
    add(
        "--decimals",
        type=int,
        default=None,
        metavar="N",
        help="to which numbers are rounded (default: all that they have)",
    )
    add(
        "--max-datagram",
        type=_positive_int,
        default=None,
        metavar="BYTES",
        help="the longest datagram, up to 65507 (default: 1200)",
    )
    add(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="threads for environments that step slowly; 0 steps all of them on the event loop "
        "(default: %(default)s)",
    )
    add(
        "--key-file",
        metavar="FILE",
        help="encipher and authenticate all datagrams with the key in this file, 64 hexadecimal "
        "digits or 32 bytes, which agents need as well",
    )
    add("--seed", type=int, default=None, help="from which the seeds of all runs are made")
    _add_set(parser)
    _add_limits_and_log(parser)
    parser.set_defaults(make=_make_perlert, tls_cert=None, tls_key=None, tls_client_ca=None)


def _add_rewarder(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "environment",
        metavar="MODULE:ENVIRONMENT|gym:ID",
        help="class, function or instance, such as my_module:MyEnvironment; or an environment "
        "registered with Gymnasium, such as gym:CartPole-v1",
    )
    _add_address(parser, "127.0.0.1:15900")
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument(
        "--password-file",
        metavar="FILE",
        help="accept only clients that know the password in this file",
    )
    secret.add_argument(
        "--password-env",
        metavar="NAME",
        help="the same, with the password in this environment variable; without either it is "
        "Universe's, 'openai', which everybody knows",
    )
    add(
        "--fps",
        type=_positive_float,
        default=60.0,
        metavar="HZ",
        help="steps a second (default: %(default)s)",
    )
    add("--lockstep", action="store_true", help="make one step for each action instead")
    add("--seed", type=int, default=None, help="for the first episode")
    add("--env-id", metavar="NAME", help="what it is called (default: the environment's own name)")
    _add_origins(parser)
    _add_common(parser, "stop after so long without an agent")
    parser.set_defaults(make=_make_rewarder)


def _add_openpi(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "policy",
        metavar="MODULE:POLICY",
        help="class or instance with a method infer, or function of an observation, such as "
        "my_policies:Policy",
    )
    _add_address(parser, "localhost:8000")
    add(
        "--workers",
        type=_natural_int,
        default=None,
        metavar="N",
        help="threads that the policy thinks in; 0 calls it on the event loop, for policies that "
        "answer at once (default: 1)",
    )
    add(
        "--api-key-file",
        metavar="FILE",
        help="accept only clients that send the key in this file",
    )
    add(
        "--arrays",
        choices=("openpi", "msgpack_numpy"),
        default=None,
        help="how arrays are written; both are read (default: openpi)",
    )
    add("--tracebacks", action="store_true", default=None, help="tell clients where an error arose")
    _add_common(parser)
    parser.set_defaults(make=_make_openpi)


def _add_address(
    parser: argparse.ArgumentParser, default: str, what: str = "where to listen, or unix:/path"
) -> None:
    parser.add_argument(
        "--address",
        type=_address,
        default=default,
        metavar="HOST:PORT",
        help=f"{what}; port 0 lets the system choose, and the log says which "
        "(default: %(default)s)",
    )


def _add_origins(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--origin",
        action="append",
        dest="origins",
        default=None,
        metavar="ORIGIN",
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
    add = parser.add_argument
    add(
        "--max-connections",
        type=_positive_int,
        default=None,
        metavar="N",
        help="how many connections are served at once (by each process); further ones are refused "
        f"(default: {MAX_CONNECTIONS})",
    )
    add(
        "--max-connections-per-address",
        type=_positive_int,
        default=None,
        metavar="N",
        help=f"how many of them from one address (default: {MAX_CONNECTIONS_PER_ADDRESS})",
    )
    add(
        "--first-timeout",
        type=_positive_float,
        default=None,
        metavar="SECONDS",
        help="close a connection that has said nothing at all for so long",
    )
    add(
        "--max-message",
        type=_positive_int,
        default=None,
        metavar="BYTES",
        help=message,
    )
    add("--idle-timeout", type=_positive_float, default=None, metavar="SECONDS", help=idle)
    add("--tls-cert", metavar="FILE", help="serve TLS with this certificate chain (PEM)")
    add("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    add("--tls-client-ca", metavar="FILE", help="accept only clients certified by this (PEM)")
    _add_limits_and_log(parser)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="keyword argument for what makes environments, in JSON or as plain text; may be "
        "given more than once",
    )


def _add_limits_and_log(parser: argparse.ArgumentParser) -> None:
    """What all protocols have."""
    parser.add_argument(
        "--limit",
        action="append",
        type=_limit,
        default=[],
        metavar="NAME=N",
        help="raise or lower a limit on what is read and written: "
        + ", ".join(field.name for field in dataclasses.fields(Limits))
        + "; may be given more than once",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        help="what is logged, to standard error (default: %(default)s)",
    )
    parser.set_defaults(run=_serve, parser=parser)


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
    from rlwire.adapters.dm_env_rpc import DmEnvRpcServer, EnvironmentWorlds, Names
    from rlwire.adapters.dm_env_rpc.drivers import is_environment, is_world
    from rlwire.adapters.loading import load_environment
    from rlwire.transports.grpc_options import ServerTLS
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
    from pkgutil import resolve_name

    from rlwire.adapters.openpi import PolicyServer

    options = _given(given, "workers", "arrays", "tracebacks") | _serving(given)
    if given.api_key_file is not None:
        options["api_key"] = _secret(given.api_key_file)
    if ":" not in given.policy:
        raise ValueError(f"expected module:policy, not {given.policy!r}")
    policy = resolve_name(given.policy)
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

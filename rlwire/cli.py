"""The command ``rlwire``.

Options of ``serve`` and ``play`` are those of the URL's protocol (`rlwire.registry`). Commands
import their modules late: some need optional dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import rlwire
from rlwire import _options
from rlwire.errors import RlwireError

if TYPE_CHECKING:
    from rlwire._options import Side
    from rlwire.registry import URL, Protocol

__all__ = ["main"]

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done, or a server was stopped by SIGINT or SIGTERM. 1: failed, with a line on standard error.
    2: invalid arguments. 130: a signal interrupted `play`.
    """
    try:
        given = _read(list(sys.argv[1:] if argv is None else argv))
        return int(given.run(given) or 0)
    except KeyboardInterrupt:
        print("rlwire: interrupted", file=sys.stderr)
        return 130
    except (RlwireError, OSError, _Failed) as error:
        print(f"rlwire: {error}", file=sys.stderr)
        return 1


def _read(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result is the command's function."""
    parser = argparse.ArgumentParser(
        prog="rlwire", description="Codecs and transports for reinforcement learning protocols."
    )
    parser.add_argument("--version", action="version", version=f"rlwire {rlwire.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command = next((word for word in arguments if not word.startswith("-")), None)
    bench = commands.add_parser(
        "bench", help="measure round trips with real observations against raw sockets"
    )
    if command == "bench":
        from rlwire import bench as benchmarks

        benchmarks.add_arguments(bench)
        bench.set_defaults(run=benchmarks.run)
    demo = commands.add_parser("demo", help="play a game in the browser")
    if command == "demo":
        from rlwire.universe import demo as game

        game.add_arguments(demo)
        demo.set_defaults(run=_demo)
    for name, side, run, text in (
        ("serve", "server", _serve, "serve an environment, an agent or a policy"),
        ("play", "player", _play, "play an environment with an agent or a policy at a URL"),
    ):
        its = commands.add_parser(
            name,
            help=text,
            usage=f"rlwire {name} [options] THING URL",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command == name:
            _add_url(its, arguments, cast("Side", side))
            its.set_defaults(run=run)
    for name, text in (
        ("new", "create an application: an environment, an algorithm, their servers"),
        ("generate", "add another environment or algorithm to an application"),
        ("config", "list configurations of algorithms, or apply one"),
        ("run", "run an application"),
    ):
        its = commands.add_parser(name, help=text)
        if command == name:
            from rlwire.relaax.applications.command import add_arguments

            add_arguments(its, name)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        its = getattr(given, "parser", parser)
        its.error(_unknown(given, unknown[0]))
    return given


class _Failed(Exception):
    """A failure, described for users."""


@dataclass(frozen=True)
class _CommandOptions:
    """Of the commands with a URL.

    Attributes:
        log_level: of the log on standard error.
    """

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"


@dataclass(frozen=True)
class _ServeOptions(_CommandOptions):
    """Of ``rlwire serve``.

    Attributes:
        drain: at the first signal accept no new clients, and let episodes end for so long; the
            second signal stops at once (default: the first does).
    """

    drain: _options.Seconds | None = None


@dataclass(frozen=True)
class _PlayOptions(_CommandOptions):
    """Of ``rlwire play``.

    Attributes:
        episodes: number of episodes.
    """

    episodes: _options.Positive = 1


_OWN: Final[_options.Kinds] = {"server": _ServeOptions, "player": _PlayOptions}


class _Said(argparse.Action):
    """Collects an option's name and text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        text = values if isinstance(values, str) else "true"
        namespace.said = [*namespace.said, (self.dest, text)]


def _add_url(parser: argparse.ArgumentParser, arguments: list[str], side: Side) -> None:
    """Add the arguments, and the options of the URL's protocol."""
    from rlwire.registry import protocols

    record = _protocol_of(arguments)
    served = "an environment, an agent or a policy" if record is None else record.served
    thing, where = served, "where to listen; port 0 lets the system choose"
    if side == "player":
        thing, where = "an environment", "of the agent or policy"
    parser.add_argument(
        "thing",
        metavar="THING",
        help=f"{thing}; as MODULE:NAME of a class, function or instance, or gym:ID of Gymnasium",
    )
    parser.add_argument("url", metavar="URL", help=f"{where}. Its query may have options as well")
    protocols_own = {} if record is None else record.options
    kinds = [_OWN[side], *([protocols_own[side]] if side in protocols_own else [])]
    for option in (each for kind in kinds for each in _options.options_of(kind).values()):
        if option.read is None:
            continue
        more = "; may be repeated" if option.many else ""
        takes: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"nargs": 0}
        parser.add_argument(
            option.flag,
            dest=option.name,
            action=_Said,
            default=argparse.SUPPRESS,
            help=(option.help + more).replace("%", "%%"),
            **takes,
        )
    shown = list(protocols().values()) if record is None else [record]
    if side == "player":
        shown = [each for each in shown if each.caller == "environment"]
    parser.epilog = "URLs:\n" + "\n".join(
        f"  {each.example}\n      {each.summary}" for each in shown
    )
    if record is None:
        parser.epilog += "\n\n--help after a URL shows the options of its protocol."
    parser.set_defaults(parser=parser, said=[], record=record, side=side)


def _unknown(given: argparse.Namespace, word: str) -> str:
    """Return the error text for an unknown option, or for an invalid URL."""
    from rlwire.registry import parse_url

    if "url" in given:
        try:
            parse_url(given.url)
        except ValueError as error:
            return str(error)
    if not word.startswith("--") or getattr(given, "record", None) is None:
        return f"{given.command} has no option {word}"
    name = word[2:].partition("=")[0].replace("-", "_")
    own = _options.options_of(_OWN[given.side])
    return _options.unknown(given.record.options, given.side, given.record.scheme, name, own)


def _protocol_of(arguments: list[str]) -> Protocol | None:
    """Return the protocol of the last URL in the arguments."""
    from rlwire.registry import protocol

    for word in reversed(arguments):
        found = re.match(r"([a-z][a-z0-9._-]*)(\+[a-z]+)*://", word)
        with contextlib.suppress(ValueError):
            if found is not None:
                return protocol(found[1])
    return None


def _demo(given: argparse.Namespace) -> None:
    from rlwire.universe import demo

    _set_up_log("ERROR")
    with _in_one_line("reset", "step"):
        demo.run(given)


def _serve(given: argparse.Namespace) -> None:
    """Serve until a signal."""
    make, url, keywords, own = _begin(given, "server")
    with _in_one_line("exec_module"):
        server = make(given.thing, url, **keywords)
        level = logging.getLevelName(logging.getLogger().level)
        server.initializer = functools.partial(_set_up_log, level)
        server.check()
        server.serve_forever(**own)


def _play(given: argparse.Namespace) -> int:
    """Play episodes, and log their mean reward."""
    from rlwire.serving.stopping import interrupting

    play, url, keywords, own = _begin(given, "player")
    try:
        with _in_one_line("reset", "step"), interrupting():
            totals = play(given.thing, url, **own, **keywords)
    except KeyboardInterrupt:
        logger.info("stopped by a signal")
        return 128 + signal.SIGINT
    mean = sum(totals) / len(totals)
    logger.info("played %d episodes, mean reward %g", len(totals), mean)
    return 0


def _begin(
    given: argparse.Namespace, side: Side
) -> tuple[Callable[..., Any], URL, dict[str, Any], dict[str, Any]]:
    """Return function, URL, its options and the command's own; set up log and ``sys.path``."""
    from rlwire.registry import parse_url, resolve

    # Agents are usually a file in the current folder.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # last: a `copy.py` there must not replace Python's own
    own = _options.options_of(_OWN[side])
    try:
        said = [pair for pair in given.said if pair[0] in own]
        command = _options.keywords(_OWN, side, "rlwire", said)
        _set_up_log(command.pop("log_level", "INFO"))
        url = parse_url(given.url)
        rest = [pair for pair in given.said if pair[0] not in own]
        found = resolve(url.replace(options=(*url.options, *rest)), side, {})
    except ValueError as error:
        given.parser.error(str(error))
    return *found, command


def _set_up_log(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@contextlib.contextmanager
def _in_one_line(*methods: str) -> Iterator[None]:
    """Turn exceptions of user code into a `_Failed`; log the traceback of `methods`."""
    try:
        yield
    except (RlwireError, OSError):
        raise
    except Exception as error:
        called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
        level = logging.ERROR if called.intersection(methods) else logging.DEBUG
        logger.log(level, "traceback", exc_info=True)
        text = " ".join(str(error).split())
        raise _Failed(f"{type(error).__name__}: {text}") from error

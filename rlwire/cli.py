"""The command ``rlwire``: reads its arguments and calls what does the work.

``rlwire bench`` lives in `rlwire.bench`; ``rlwire new``, ``generate``, ``config`` and
``run`` in `rlwire.relaax.applications`;
``rlwire serve`` and ``rlwire play`` take a URL, and their options are those of its protocol
(`rlwire.registry`). All import only what they are asked for, because some of it needs optional
dependencies.
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

    0: done, or a server was stopped by SIGINT or SIGTERM. 1: it failed, for a reason that one line
    says. 2: the arguments are wrong; only then the usage is shown. 130: a signal ended `play`
    before its episodes.
    """
    try:
        given = _read(list(sys.argv[1:] if argv is None else argv))
        return int(given.run(given) or 0)
    except KeyboardInterrupt:  # while modules were imported, for one
        print("rlwire: interrupted", file=sys.stderr)
        return 130
    except (RlwireError, OSError, _Failed) as error:
        print(f"rlwire: {error}", file=sys.stderr)
        return 1


def _read(arguments: list[str]) -> argparse.Namespace:
    """Return what the arguments mean, with the function that runs the command."""
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
    for name, side, run, text in (
        ("serve", "server", _serve, "serve an environment, an agent or a policy"),
        ("play", "player", _play, "let an agent or a policy somewhere play an environment"),
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
        ("new", "make an application: an environment, an algorithm, their servers"),
        ("generate", "give an application another environment, or an algorithm to change"),
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
    """What cannot be done, in words for the user."""


@dataclass(frozen=True)
class _CommandOptions:
    """Of the commands that take a URL.

    Attributes:
        log_level: what is logged, to standard error.
    """

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"


@dataclass(frozen=True)
class _ServeOptions(_CommandOptions):
    """Of ``rlwire serve``.

    Attributes:
        drain: at the first signal let nobody new in, and what is under way end for so long; the
            second stops at once (default: the first does).
    """

    drain: _options.Seconds | None = None


@dataclass(frozen=True)
class _PlayOptions(_CommandOptions):
    """Of ``rlwire play``.

    Attributes:
        episodes: how many to play.
    """

    episodes: _options.Positive = 1


_OWN: Final[_options.Kinds] = {"server": _ServeOptions, "player": _PlayOptions}


class _Said(argparse.Action):
    """Keeps an option's name and text, for its dataclass to make a value of."""

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
    """Add what is served or played, the URL, and the options that its protocol has."""
    from rlwire.registry import protocols

    record = _protocol_of(arguments)
    served = "an environment, an agent or a policy" if record is None else record.served
    thing, where = f"what is served: {served}", "where to listen; the system chooses a port for 0"
    if side == "player":
        thing, where = "what is played: an environment", "where the agent or policy is"
    parser.add_argument(
        "thing",
        metavar="THING",
        help=f"{thing}; as MODULE:NAME of a class, function or instance, or gym:ID of an "
        "environment that is registered with Gymnasium",
    )
    parser.add_argument(
        "url", metavar="URL", help=f"{where}. Options may stand in its query as well"
    )
    protocols_own = {} if record is None else record.options
    kinds = [_OWN[side], *([protocols_own[side]] if side in protocols_own else [])]
    for option in (each for kind in kinds for each in _options.options_of(kind).values()):
        if option.read is None:
            continue
        more = "; may be given more than once" if option.many else ""
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
        parser.epilog += "\n\nEach has options of its own, which --help after such a URL shows."
    parser.set_defaults(parser=parser, said=[], record=record, side=side)


def _unknown(given: argparse.Namespace, word: str) -> str:
    """Return what is said of an option that a command has not, or of its URL if that is none."""
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
    """Return the protocol of the last URL in the arguments, if there is one."""
    from rlwire.registry import protocol

    for word in reversed(arguments):
        found = re.match(r"([a-z][a-z0-9._-]*)(\+[a-z]+)*://", word)
        with contextlib.suppress(ValueError):
            if found is not None:
                return protocol(found[1])
    return None


def _serve(given: argparse.Namespace) -> None:
    """Make a server, see that what it serves can be made, and serve until a signal."""
    make, url, keywords, own = _begin(given, "server")
    with _in_one_line("exec_module"):
        server = make(given.thing, url, **keywords)
        level = logging.getLevelName(logging.getLogger().level)
        server.initializer = functools.partial(_set_up_log, level)
        server.check()
        server.serve_forever(**own)


def _play(given: argparse.Namespace) -> int:
    """Play episodes, and say what they came to; a signal ends them, and closes the environment."""
    from rlwire.serving.stopping import interrupting

    play, url, keywords, own = _begin(given, "player")
    try:
        with _in_one_line("reset", "step"), interrupting():
            totals = play(given.thing, url, **own, **keywords)
    except KeyboardInterrupt:
        logger.info("stopped by a signal")
        return 128 + signal.SIGINT
    mean = sum(totals) / len(totals)
    logger.info("played %d episodes, with a reward of %g in the mean", len(totals), mean)
    return 0


def _begin(
    given: argparse.Namespace, side: Side
) -> tuple[Callable[..., Any], URL, dict[str, Any], dict[str, Any]]:
    """Return what the URL and the options mean, with a log and the current folder's modules.

    Of the options, the command's own come last.
    """
    from rlwire.registry import parse_url, resolve

    # Agents are usually a file in the directory that one works in.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # a `copy.py` there does not stand for Python's own
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
    """Make a `_Failed` of whatever is wrong with what is named."""
    try:
        yield
    except (RlwireError, OSError):
        raise
    except Exception as error:
        called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
        level = logging.ERROR if called.intersection(methods) else logging.DEBUG
        logger.log(level, "where it failed", exc_info=True)
        text = " ".join(str(error).split())
        raise _Failed(f"{type(error).__name__}: {text}") from error

"""The command ``rlwire``: reads its arguments and calls what does the work.

``rlwire bench`` lives in `rlwire.bench.command`; ``rlwire serve`` takes a URL, and its options are
those of the URL's protocol (`rlwire.protocols`). Both import only what they are asked for, because
some of it needs optional dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import rlwire
from rlwire.errors import RlwireError

if TYPE_CHECKING:
    from rlwire.options import Side
    from rlwire.protocols import Protocol

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
    command = next((word for word in arguments if not word.startswith("-")), None)
    bench = commands.add_parser(
        "bench", help="measure round trips with real observations against raw sockets"
    )
    if command == "bench":
        from rlwire.bench import command as benchmarks

        benchmarks.add_arguments(bench)
        bench.set_defaults(run=benchmarks.run)
    serve = commands.add_parser(
        "serve",
        help="serve an environment, an agent or a policy",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if command == "serve":
        _add_url(serve, arguments, "server", "what is served: ")
        serve.set_defaults(run=_serve)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        of = getattr(given, "of", given.command)
        getattr(given, "parser", parser).error(f"{of} has no option {unknown[0]}")
    try:
        return int(given.run(given) or 0)
    except (RlwireError, OSError, _Failed) as error:
        print(f"rlwire: {error}", file=sys.stderr)
        return 1


class _Failed(Exception):
    """What cannot be done, in words for the user."""


class _Said(argparse.Action):
    """Keeps an option's name and text, for the protocol to make a value of."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        text = values if isinstance(values, str) else "true"
        namespace.said = [*namespace.said, (self.dest, text)]


def _add_url(parser: argparse.ArgumentParser, arguments: list[str], side: Side, thing: str) -> None:
    """Add what is served or played, the URL, and the options that its protocol has."""
    from rlwire.protocols import protocols

    records = protocols()
    record = _protocol_of(arguments, records)
    about = "an environment, an agent or a policy" if record is None else record.served
    parser.add_argument(
        "thing",
        metavar="THING",
        help=f"{thing}{about}: MODULE:NAME of a class, function or instance, or gym:ID of an "
        "environment that is registered with Gymnasium",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="where; with port 0 the system chooses one, and the log says which. Options may "
        "stand in its query as well",
    )
    for option in () if record is None else record.options_of(side):
        more = "; may be given more than once" if option.many else ""
        takes: dict[str, Any] = {"nargs": 0} if option.kind is None else {"metavar": option.metavar}
        parser.add_argument(
            option.flag,
            dest=option.name,
            action=_Said,
            default=argparse.SUPPRESS,
            help=(option.help + more).replace("%", "%%"),
            **takes,
        )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        help="what is logged, to standard error (default: %(default)s)",
    )
    lines = [
        f"  {each.example:<34} {each.summary}"
        for each in (records.values() if record is None else [record])
    ]
    more = "" if record else "\n\nEach has options of its own, which --help after such a URL shows."
    parser.epilog = "URLs:\n" + "\n".join(lines) + more
    of = "without a URL, the command" if record is None else f"a {side} of {record.scheme}://"
    parser.set_defaults(parser=parser, said=[], of=of)


def _protocol_of(arguments: list[str], records: dict[str, Protocol]) -> Protocol | None:
    """Return the protocol of the last URL in the arguments, which is where things are served."""
    for word in reversed(arguments):
        found = re.match(r"([a-z][a-z0-9.-]*)(\+[a-z]+)*://", word)
        if found and found[1] in records:
            return records[found[1]]
    return None


def _serve(given: argparse.Namespace) -> int:
    """Make a server, see that what it serves can be made, and serve until a signal."""
    from rlwire.protocols import parse_url, resolve

    _set_up_log(given.log_level)
    # As `python -m` does: agents are usually a file in the directory that one works in.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        url = parse_url(given.url)
        url, protocol, options = resolve(
            url.replace(options=(*url.options, *given.said)), "server", {}
        )
    except ValueError as error:
        given.parser.error(str(error))
    with _in_one_line():
        server = protocol.part("server")(given.thing, url, **options)
        server.initializer = functools.partial(_set_up_log, given.log_level)
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

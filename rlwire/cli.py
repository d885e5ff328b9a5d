"""The command ``rlwire``.

For completion: ``pip install argcomplete``, ``eval "$(register-python-argcomplete rlwire)"``.

``serve`` and ``play`` have the options of the URL's protocol (`rlwire.registry`). Commands import
their modules late, because some need optional dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import rlwire
from rlwire import _options
from rlwire.errors import RlwireError
from rlwire.registry import PROTOCOLS, Protocol, Side, protocol
from rlwire.serving.stopping import interrupting
from rlwire.urls import URL, parse_url

__all__ = ["main"]

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None, imported: Callable[[], object] = bool) -> int:
    """Run one command and return its exit status; call `imported` before it runs.

    0: success, also of a server that SIGINT or SIGTERM stopped. 1: failure, with one line on
    standard error. 2: invalid arguments. 130: interrupted by a signal.
    """
    try:
        given = _read(list(sys.argv[1:] if argv is None else argv))
        imported()
        return int(given.run(given) or 0)
    except KeyboardInterrupt:
        print("rlwire: interrupted", file=sys.stderr)
        return 130
    except (RlwireError, OSError) as error:
        print(f"rlwire: {error}", file=sys.stderr)
        return 1


def _read(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; the result's `run` is the command's function."""
    parser = argparse.ArgumentParser(
        prog="rlwire",
        description="Connect reinforcement-learning agents and environments across processes, "
        "machines and languages.",
        epilog="Options of a command: rlwire COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"rlwire {rlwire.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line
        arguments = os.environ.get("COMP_LINE", "").split()[1:]
    command = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module, level, text) in _MODULES.items():
        its = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if command == name:
            found = importlib.import_module(f"rlwire.{module}")
            found.add_arguments(its)
            its.set_defaults(run=functools.partial(_of_module, found.run, level))
    its = commands.add_parser("headers", help="print the C header of a protocol, alone in one file")
    its.add_argument("name", nargs="?", default="rlwire", metavar="PROTOCOL", help=_HEADERS)
    its.set_defaults(run=_headers)
    its = commands.add_parser("wireshark", help="print how to install Wireshark's dissectors")
    its.set_defaults(run=_wireshark)
    for name, side, run, text in (
        ("serve", "server", _serve, "serve an environment, an agent or a policy"),
        ("play", "player", _play, "play an environment with the agent or policy at a URL"),
    ):
        its = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            usage=f"rlwire {name} [options] TARGET URL",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command == name:
            importlib.import_module("numpy.random")  # Cython's code there ignores KeyboardInterrupt
            _add_url(its, arguments, cast("Side", side))
            its.set_defaults(run=run)
    if "_ARGCOMPLETE" in os.environ:
        importlib.import_module("argcomplete").autocomplete(parser)
    if not arguments:
        parser.exit(2, parser.format_help())
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        its = getattr(given, "parser", parser)
        its.error(_unknown(given, unknown[0]))
    return given


_APPLICATIONS: Final = "relaax.applications.command"
# The module with `add_arguments` and `run`, the log's level ("": errors have tracebacks), the help.
_MODULES: Final = {
    "bench": ("bench.command", "", "measure a step of each protocol against raw sockets"),
    "demo": ("demo", "ERROR", "play a game in the browser"),
    "inspect": (
        "recording.inspecting", "INFO", "show the messages of a recording or a connection"
    ),
    "replay": ("recording.replaying", "INFO", "replay a recording to a live server, and compare"),
    "new": (_APPLICATIONS, "", "create an application: environment, algorithm and servers"),
    "generate": (_APPLICATIONS, "", "add an environment or algorithm to an application"),
    "config": (_APPLICATIONS, "", "list configurations of algorithms, or apply one"),
    "run": (_APPLICATIONS, "", "run the processes of an application"),
}  # fmt: skip


_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_OWN: Final = {"server": ("drain", "log_level"), "player": ("episodes", "log_level")}
_DRAIN: Final = (
    "after SIGINT or SIGTERM, reject new clients and wait this long for episodes to end; a second "
    "signal stops at once (default: stop at once)"
)
_PUBLIC_HEADERS: Final = (
    *("dm_env_rpc", "http2", "msgpack", "perlert", "rfb", "rllink", "rlwire", "rlx", "shm"),
    "websocket",
)
_HEADERS: Final = (
    "such as rlx, rllink, dm-env-rpc or perlert (default: all). Numbers as text, for perlert, need "
    "C++17 once: define RLW_NUMBERS_IMPLEMENTATION before you include the header in one C++ file"
)


def _parsed(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_url(parser: argparse.ArgumentParser, arguments: list[str], side: Side) -> None:
    """Add the arguments, and the options of the URL's protocol."""
    record = _protocol_of(arguments)
    target = "an environment, an agent or a policy" if record is None else record.served
    where = "where to listen; port 0 lets the system choose"
    if side == "player":
        target, where = "an environment", "the server of the agent or policy"
    names = "MODULE:NAME of a class, function or instance"
    if side == "player" or record is None or record.caller == "trainer":
        names += ", gym:ID, or the URL of a served environment, which makes a gateway"
    elif issubclass(record.options.get(side, object), _options.LearningOptions):
        names += ", algorithm:NAME, or rllib:NAME"
    parser.add_argument("target", metavar="TARGET", help=f"{target}: {names}")
    parser.add_argument("url", metavar="URL", help=f"{where}; its query may have options too")
    levels = "level of the log on standard error (default: INFO)"
    for flag in ("--log-level", "--drain", "--episodes"):
        if sum(word.partition("=")[0] == flag for word in arguments) > 1:
            parser.error(f"{flag} is given twice")
    add = parser.add_argument
    add("--log-level", choices=_LEVELS, default="INFO", metavar="|".join(_LEVELS), help=levels)
    if side == "server":
        seconds = functools.partial(_parsed, _options.positive_float)
        add("--drain", type=seconds, metavar="SECONDS", help=_DRAIN)
    else:
        count = functools.partial(_parsed, _options.positive)
        number = "number of episodes (default: 1)"
        add("--episodes", type=count, default=1, metavar="N", help=number)
    scheme = "" if record is None else record.scheme
    own = _options.options_of(None if record is None else record.options.get(side))
    shared = {**_options.options_of(_options.StreamServerOptions)}
    shared |= _options.options_of(_options.StreamClientOptions)
    first = parser.add_argument_group(f"options of {scheme}://")
    last = parser.add_argument_group("limits, connections, timeouts and TLS")
    for option in own.values():
        if option.read is None:
            continue
        group = last if option.name in shared else first
        more = "; may be repeated" if option.many else ""
        takes: dict[str, Any] = {"action": "append_const", "const": (option.name, "true")}
        if option.metavar:
            named = functools.partial(lambda name, text: (name, text), option.name)
            takes = {"action": "append", "metavar": option.metavar, "type": named}
        text = (option.help + more).replace("%", "%%")
        group.add_argument(option.flag, dest="texts", help=text, **takes)
    shown = list(PROTOCOLS.values()) if record is None else [record]
    if side == "player":
        shown = [each for each in shown if each.caller == "environment" and side in each.options]
    parser.epilog = "URLs:\n" + "\n".join(
        f"  {each.example}\n      {each.summary}" for each in shown
    )
    if record is None:
        parser.epilog += f"\n\nOptions of a protocol: {parser.prog} {shown[0].scheme}:// --help"
    parser.set_defaults(parser=parser, texts=[], record=record, side=side)


def _unknown(given: argparse.Namespace, word: str) -> str:
    """Return the error text for an unknown option, or for an invalid URL."""
    if "url" in given:
        try:
            parse_url(given.url)
        except ValueError as error:
            return str(error)
    if not word.startswith("--") or getattr(given, "record", None) is None:
        return f"{given.command} has no option {word}"
    name = word[2:].partition("=")[0].replace("-", "_")
    own = _OWN[given.side]
    return _options.unknown(given.record.options, given.side, given.record.scheme, name, own)


def _protocol_of(arguments: list[str]) -> Protocol | None:
    """Return the protocol of the last URL in the arguments."""
    for word in reversed(arguments):
        found = re.match(r"([a-z][a-z0-9._-]*)(\+[a-z]+)*://", word)
        with contextlib.suppress(ValueError):
            if found is not None:
                return protocol(found[1])
    return None


def _headers(given: argparse.Namespace) -> None:
    folder = Path(rlwire.get_include(), "rlwire")
    done: set[str] = set()

    def read(name: str) -> str:
        if name in done:
            return ""
        done.add(name)
        text = (folder / name).read_text("utf-8")
        return re.sub(r'^#include "(.+)"\n', lambda found: read(found[1]), text, flags=re.MULTILINE)

    name = given.name.replace("-", "_").lower()
    if not (folder / f"{name}.h").is_file():
        known = ", ".join(_PUBLIC_HEADERS).replace("_", "-")
        raise RlwireError(f"no header {given.name!r}; expected one of {known}")
    text = read(f"{name}.h")
    if "numbers.h" in done:
        text += "\n#if defined(__cplusplus) && defined(RLW_NUMBERS_IMPLEMENTATION)\n"
        text += read("numbers.cpp") + "#endif\n"
    license = "Apache-2.0, see https://www.apache.org/licenses/LICENSE-2.0"
    sys.stdout.write(f"/* rlwire {rlwire.__version__}, {license} */\n{text}")


def _wireshark(given: argparse.Namespace) -> None:
    script = Path(rlwire.__file__).resolve().parent / "wireshark" / "rlwire.lua"
    sys.stdout.write(  # at once, for `head -n 1`
        f"{script}\n\n"
        f"Try it:     wireshark -X 'lua_script:{script}'\n"
        "Install it: copy or link it into the folder of personal Lua plugins:\n"
        "  Linux, macOS  ~/.local/lib/wireshark/plugins\n"
        "  Windows       %APPDATA%\\Wireshark\\plugins\n"
        "Help > About Wireshark > Folders, or tshark -G folders, names the folder of your system.\n"
    )


def _of_module(run: Callable[..., int | None], level: str, given: argparse.Namespace) -> int | None:
    if not level:
        return run(given)
    _set_up_log(level)
    with _in_one_line("reset", "step"):
        return run(given)


def _serve(given: argparse.Namespace) -> None:
    make, url, keywords = _begin(given, "server")
    with _in_one_line("exec_module"):
        server = make(given.target, url, **keywords)
        level = logging.getLevelName(logging.getLogger().level)
        server.initializer = functools.partial(_set_up_log, level)
        server.check()
        server.serve_forever(given.drain)


def _play(given: argparse.Namespace) -> int:
    play, url, keywords = _begin(given, "player")
    try:
        with _in_one_line("reset", "step"), interrupting():
            totals = play(given.target, url, episodes=given.episodes, **keywords)
    except KeyboardInterrupt:
        logger.info("stopped by a signal")
        return 128 + signal.SIGINT
    mean = sum(totals) / len(totals)
    logger.info("played %d episodes, mean reward %g", len(totals), mean)
    return 0


def _begin(given: argparse.Namespace, side: Side) -> tuple[Callable[..., Any], URL, dict[str, Any]]:
    """Set up the log and ``sys.path``; return the function, the URL and its options."""
    # For agents in the current folder; last, since a `copy.py` there must not replace Python's own.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    _set_up_log(given.log_level)
    try:
        url = parse_url(given.url)
        found = _options.resolve(url.replace(options=(*url.options, *given.texts)), side, {})
    except ValueError as error:
        given.parser.error(str(error))
    return found


def _set_up_log(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@contextlib.contextmanager
def _in_one_line(*methods: str) -> Iterator[None]:
    """Raise exceptions of user code as RlwireError; log tracebacks from `methods` as errors."""
    try:
        yield
    except (RlwireError, OSError):
        raise
    except Exception as error:
        called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
        level = logging.ERROR if called.intersection(methods) else logging.DEBUG
        logger.log(level, "traceback", exc_info=True)
        raise RlwireError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error

"""The command ``rlwire bench``: its options, and the order of a run.

Not here: measuring (`rlwire.bench.runner`) and showing (`rlwire.bench.report`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlwire.bench import plot, report
from rlwire.bench.machine import machine, versions
from rlwire.bench.payloads import PAYLOADS, Payload, made_by, played, record
from rlwire.bench.processes import BenchError, allowed_cores, pin
from rlwire.bench.provider import Absent, Cores, LeftOut, Row, Unfit
from rlwire.bench.providers import PROVIDERS, RIVALS, load
from rlwire.bench.runner import Result, measure
from rlwire.errors import MissingExtra

__all__ = ["add_arguments", "run"]

ROW_SECONDS = 4.0
RUN_SECONDS = 40.0  # of measuring by default; starting servers and recording take some more

INTERRUPTED = 130  # what shells report for a program that SIGINT ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``rlwire bench`` to its parser."""
    parser.description = (
        "Starts embedded servers, drives them with real observations from Gymnasium environments, "
        "checks every round trip for equality, and holds it against a raw socket exchange of as "
        "many bytes. A run with no options ends within a minute."
    )
    parser.add_argument(
        "--protocol",
        action="append",
        choices=sorted(PROVIDERS),
        help="measure this protocol only; may be given several times",
    )
    parser.add_argument(
        "--payload",
        action="append",
        type=_payload_name,
        metavar="{" + ",".join(PAYLOADS) + "}|MODULE:FUNCTION",
        help="send this payload only, or the observations that a function of yours gives: a list "
        "of arrays of one shape, or of triples of array, reward and whether it ends; may be given "
        "several times",
    )
    parser.add_argument(
        "--env",
        action="append",
        metavar="gym:ID|MODULE:FACTORY",
        help="send the observations of random play in this environment; may be given several times",
    )
    parser.add_argument(
        "--stages",
        action="store_true",
        help="say where the time of a step goes: encoding, the socket, decoding, sessions, the "
        "rest (takes twice as long)",
    )
    parser.add_argument(
        "--rivals",
        action="store_true",
        help=f"measure what else is used for this, where it is installed: {', '.join(RIVALS)}",
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        metavar="S",
        help=f"measuring time for each protocol and payload (default: {ROW_SECONDS:g}, less when "
        f"all of them would take more than {RUN_SECONDS:g})",
    )
    parser.add_argument(
        "--pin",
        choices=("none", "one-core", "two-cores"),
        default="one-core" if allowed_cores() else "none",
        help="keep client and server, and both ends of the raw exchange, on the same core, where "
        "the kernel's wake-ups cost least and differences show best, or on one each; with none the "
        "ratios are the scheduler's as much as the protocols' (default here: %(default)s)",
    )
    parser.add_argument(
        "--over",
        choices=("tcp", "unix", "shm"),
        default="tcp",
        help="have clients and servers speak over TCP, a unix socket or shared memory; the raw "
        "exchange, and what else is used, goes over TCP (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the results as JSON; - is standard output, and the tables go to standard error",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the results")


def run(args: argparse.Namespace) -> int:
    """Run the bench as `args` say and write the tables to standard output.

    With ``--json -`` only the JSON goes there, and the tables to standard error.

    Returns:
        0, or 130 after Ctrl-C.

    Raises:
        BenchError: there is nothing to measure, a server died, or something came back changed;
            what was measured before that has been shown.
        MissingExtra: Gymnasium, ale-py, rich or matplotlib is needed and not installed, or what
            a protocol needs that was asked for.
    """
    results: list[Result] = []
    left_out: list[LeftOut] = []
    if args.plot is not None:
        plot.require()
    json_to_stdout = args.json == Path("-")
    tables = sys.stderr if json_to_stdout else sys.stdout
    for path in (args.json, args.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise BenchError(f"{path} cannot be written: there is no directory {path.parent}")
    before, cores = allowed_cores(), replace(_cores(args.pin), over=args.over)
    packages = versions("rlwire", "numpy", "hpack", "gymnasium", "ale-py")
    outcome = report.Run(packages, machine(), args.pin, math.nan, results, left_out)
    try:
        pin(cores.client)
        outcome = replace(outcome, seconds=_measure(args, cores, results, left_out))
    except KeyboardInterrupt:
        sys.stderr.write("rlwire: interrupted\n")
        return INTERRUPTED
    except BaseException:
        if results:
            report.show(outcome, tables)
        raise
    finally:
        pin(before if cores.client else None)
    report.show(outcome, tables)
    if args.json is not None:
        text = json.dumps(report.as_json(outcome), indent=2) + "\n"
        if json_to_stdout:
            sys.stdout.write(text)
        else:
            args.json.write_text(text, "utf-8")
    if args.plot is not None:
        plot.save(outcome, args.plot)
    return 0


def _measure(
    args: argparse.Namespace, cores: Cores, results: list[Result], left_out: list[LeftOut]
) -> float:
    """Measure row after row into `results`; returns the seconds each had."""
    kinds = _kinds(args.protocol, args.rivals)
    environments = list(dict.fromkeys(args.env or ()))
    names = list(dict.fromkeys(args.payload or (() if environments else PAYLOADS)))
    # Standard error may be a terminal when standard output is not, and the other way round.
    with report.progress(sys.stderr) as tick:
        payloads: list[Payload] = []
        for name in names:
            tick(f"recording {name}", 0.0)
            payloads.append(made_by(name) if ":" in name else record(name))
        for name in environments:
            tick(f"playing {name}", 0.0)
            payloads.append(played(name))
        rows: list[Row] = []
        elsewhere = args.over != "tcp"
        for kind, payload in itertools.product(kinds, payloads):
            try:
                if elsewhere and kind.protocol in PROVIDERS and kind.datagrams:
                    raise Unfit("it goes over UDP")
                rows.append(kind(payload, cores))
                if elsewhere and kind.protocol in PROVIDERS:
                    rows[-1].protocol += f"+{args.over}"
                    rows[-1].raw = False
            except Unfit as error:
                left_out.append(LeftOut(kind.protocol, payload, str(error)))
        if not rows:
            raise BenchError(_nothing(kinds, left_out))
        seconds = args.seconds or min(ROW_SECONDS, RUN_SECONDS / len(rows))
        for number, row in enumerate(rows):
            label = f"{row.protocol}, {row.payload.name}"

            def part(done: float, label: str = label, number: int = number) -> None:
                tick(label, (number + done) / len(rows))

            results.append(measure(row, seconds, cores, part, stages=args.stages))
    return seconds


def _nothing(kinds: Sequence[type[Row]], left_out: Sequence[LeftOut]) -> str:
    """Why no row is left, and what could be asked for."""
    reasons = [
        f"{each.protocol} cannot carry {each.payload.name}: {each.reason}" for each in left_out
    ]
    if not kinds:
        reasons = ["no protocol can run here"]
    return (
        f"there is nothing to measure: {'; '.join(reasons)}; "
        f"--protocol may be {', '.join(sorted(PROVIDERS))}, --payload {', '.join(PAYLOADS)}"
    )


def _kinds(asked: list[str] | None, rivals: bool) -> list[type[Row]]:
    """Those that were asked for; else all that can run here, and a line for each that cannot."""
    kinds = [load(name) for name in dict.fromkeys(asked or ())]
    for name in (*(() if asked else PROVIDERS), *(RIVALS if rivals else ())):
        try:
            kinds.append(load(name))
        except (Absent, MissingExtra) as error:
            sys.stderr.write(f"rlwire: {name} is left out: {error}\n")
    return kinds


def _payload_name(text: str) -> str:
    if text not in PAYLOADS and ":" not in text:
        raise argparse.ArgumentTypeError(
            f"expected {', '.join(PAYLOADS)} or MODULE:FUNCTION, not {text}"
        )
    return text


def _cores(pinning: str) -> Cores:
    if pinning == "none":
        return Cores()
    allowed = allowed_cores()
    wanted = 1 if pinning == "one-core" else 2
    if len(allowed) < wanted:
        raise BenchError(
            f"--pin {pinning} needs {wanted} core(s) that this process may choose; "
            f"the system offers {len(allowed)}"
        )
    return Cores(client=[allowed[0]], server=[allowed[wanted - 1]])


def _positive(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text}")
    return seconds

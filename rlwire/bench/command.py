"""The command `rlwire bench`."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlwire.bench.measuring import LeftOut, measure
from rlwire.bench.payloads import PAYLOADS, played, record
from rlwire.bench.processes import BenchError, Cores, Unfit, allowed_cores, machine, pin, versions
from rlwire.bench.report import PINNING, Run, show
from rlwire.bench.rivals import RIVALS, missing
from rlwire.bench.rows import PROVIDERS, Row
from rlwire.errors import EncodeError, LimitExceeded

ROW_SECONDS = 4.0
RUN_SECONDS = 12.0  # of measuring by default; recording and starting servers add to it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Send recorded observations of Gymnasium environments through each protocol, check those "
        "that arrive, and compare the time of a step with that of a raw socket exchange of as many "
        "bytes. Without options this takes less than a minute."
    )
    add = parser.add_argument
    more: dict[str, Any] = {"action": "append"}
    text = "measure this protocol only; may be repeated"
    add("--protocol", **more, choices=sorted(PROVIDERS), help=text)
    text = "send these recorded observations only; may be repeated"
    add("--payload", **more, choices=PAYLOADS, help=text)
    text = "send observations of random play in this environment; may be repeated"
    add("--env", **more, metavar="gym:ID|MODULE:FACTORY", help=text)
    text = f"measure other libraries too: {', '.join(RIVALS)}; by default those that are "
    text += "installed, unless --protocol selects"
    add("--rivals", action=argparse.BooleanOptionalAction, help=text)
    table = parser.add_mutually_exclusive_group().add_argument
    text = "show the CPU time of client and server apart, in user code and in system calls"
    column: dict[str, Any] = {"action": "store_const", "dest": "columns"}
    table("--split", **column, const="split", default="short", help=text)
    text = "show quartiles, the raw exchange, steps a second and bytes too"
    table("--all", **column, const="all", help=text)
    text = f"measuring time of each protocol and payload (default: {ROW_SECONDS:g}, or less, so "
    text += f"that all take at most {RUN_SECONDS:g})"
    add("--seconds", type=_positive, metavar="SECONDS", help=text)
    text = "pin client and server to one core, where wake-ups cost least and differences show "
    text += "best, or to one each (default here: %(default)s)"
    core = "one-core" if allowed_cores() else "none"
    add("--pin", choices=tuple(PINNING), default=core, help=text)
    text = "transport of the protocols; the raw exchange and other libraries always use TCP "
    text += "(default: %(default)s)"
    add("--over", choices=("tcp", "unix", "shm"), default="tcp", help=text)
    text = "write results as JSON; with - to standard output, and the table to standard error"
    add("--json", type=Path, metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    if args.json is not None and not args.json.absolute().parent.is_dir():
        raise BenchError(f"cannot write {args.json}: there is no directory {args.json.parent}")
    table = sys.stderr if args.json == Path("-") else sys.stdout
    before, cores = allowed_cores(), _cores(args.pin)
    sys.path.append(os.getcwd())  # for --env, as `rlwire serve` does
    outcome = Run(
        versions("rlwire", "numpy", "hpack", "gymnasium", "ale-py"),
        machine(), args.pin, args.seconds or ROW_SECONDS, [], [],
    )  # fmt: skip
    try:
        pin(cores.client)
        _measure_all(args, cores, outcome)
    except BaseException:
        if outcome.rows:
            show(outcome, table, args.columns)
        raise
    finally:
        pin(before if cores.client else None)
    show(outcome, table, args.columns)
    if args.json is not None:
        text = json.dumps(asdict(outcome), indent=2) + "\n"
        _ = sys.stdout.write(text) if table is sys.stderr else args.json.write_text(text, "utf-8")
    return 0


def _measure_all(args: argparse.Namespace, cores: Cores, outcome: Run) -> None:
    environments = list(dict.fromkeys(args.env or ()))
    names = list(dict.fromkeys(args.payload or (() if environments else PAYLOADS)))
    kinds: dict[str, type[Row]] = {
        name: PROVIDERS[name] for name in dict.fromkeys(args.protocol or PROVIDERS)
    }
    wanted = not args.protocol if args.rivals is None else args.rivals
    for name, rival in RIVALS.items() if wanted else ():
        if not (why := missing(name)):
            kinds[name] = rival
        elif args.rivals:
            sys.stderr.write(f"rlwire: not measuring {name}: {why}\n")
    payloads = [*map(record, names), *map(played, environments)]
    pairs = list(itertools.product(kinds.items(), payloads))
    seconds = args.seconds or min(ROW_SECONDS, RUN_SECONDS / len(pairs))
    for (name, kind), payload in pairs:
        _progress(f"{name}, {payload.name}")
        over = "tcp" if name in RIVALS else args.over
        try:
            outcome.rows.append(measure(kind(name, payload, cores, over), seconds))
        except (Unfit, EncodeError, LimitExceeded) as error:
            outcome.left_out.append(LeftOut(name, payload.name, str(error)))
    _progress("")
    if not outcome.rows:
        raise BenchError(f"nothing to measure: {'; '.join(map(str, outcome.left_out))}")


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()


def _cores(pinning: str) -> Cores:
    if pinning == "none":
        return Cores()
    allowed = allowed_cores()
    wanted = 1 if pinning == "one-core" else 2
    if len(allowed) < wanted:
        raise BenchError(f"--pin {pinning} needs {wanted} core(s), {len(allowed)} are available")
    return Cores(client=[allowed[0]], server=[allowed[wanted - 1]])


def _positive(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text}")
    return seconds

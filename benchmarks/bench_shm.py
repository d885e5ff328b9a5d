"""Times shared memory against a raw TCP echo and unix sockets.

Servers are processes that echo. The raw echo uses Python's sockets and a known number of bytes, the
others a `Connection` and a session of frames, on one core and on two. By default a waiting end over
shared memory busy-waits for 50 microseconds on two cores; other rows have all or none busy-waiting.
CPU is that of both ends over a round trip, also of one whose reply comes after a millisecond. More
tables have RLX's update, dm_env_rpc's step, two threads at once, and reading an array in place, in
C (shm_in_place.c, needs `cc`).

RLWIRE_BENCH_SECONDS is how long the carriers of one table take turns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic, process_time_ns, sleep
from typing import Any

import numpy as np
from pairs import TINY, Line, print_head, print_lines, print_table
from rounds import Agent, Echo, World, take_turns

import rlwire
from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.bench.raw import Sizes, raw_exchange, raw_messages
from rlwire.codecs.dm_env_rpc import ActionObservationSpecs, make_spec
from rlwire.dm_env_rpc import Client, Server
from rlwire.rlx import AgentProxy
from rlwire.rlx import Server as RLXServer
from rlwire.sessions.layer import Layer
from rlwire.transports import tcp
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.transports.sockets import Timeouts

SECONDS = 0.05 if TINY else float(os.environ.get("RLWIRE_BENCH_SECONDS", "4"))
SIZES = {"64 B": 64} if TINY else {"64 B": 64, "1 MB": 1 << 20}
SPIN = 200e-6
ASLEEP = 1e-9  # seconds of busy-waiting
TARGETS = {"one core": 1.0, "two cores": 4.0, "two cores, all spinning": 4.0}
OVER = ("TCP", "unix", "shm")
LATE = b"later"
SIDE, TALL, WIDE = (8, 10, 12) if TINY else (84, 210, 160)


class Frames(Layer):
    """A session of frames: four bytes of length, then the body."""

    def frame_size(self, buffer: Any, start: int, end: int) -> int:
        return 4 + int.from_bytes(buffer[start : start + 4], "big") if end - start >= 4 else 0

    def data_offset(self, buffer: Any, start: int, end: int) -> int:
        return 4

    def receive(self, message: Any) -> list[Any]:
        return [message[4:]]

    def receive_whole(self, buffer: Any, size: int) -> list[Any] | None:
        whole = size >= 4 and self.frame_size(buffer, 0, size) == size
        return [bytes(buffer[4:size])] if whole else None

    def send(self, event: Any) -> list[Any]:
        head = len(event).to_bytes(4, "big")
        return [head + event] if len(event) < 4096 else [head, event]


class TimedEcho(Echo):
    """Echoes messages, `LATE` after a millisecond; replies to an empty one with its CPU time."""

    def answer(self, event: Any) -> Any:
        if event == LATE:
            sleep(0.001)
        return event if len(event) else process_time_ns().to_bytes(8, "big")


def world() -> World:
    """An environment with a constant frame."""
    frame = np.random.default_rng(7).integers(0, 256, (TALL, WIDE, 3), np.uint8)
    specs = ActionObservationSpecs(
        {1: make_spec("action", (), np.int32, 0, 3)},
        {1: make_spec("observation", (TALL, WIDE, 3), np.uint8)},
    )
    return World(specs, [{"observation": frame}])


def serve(report: Callable[[str], None], make: Any, *arguments: Any) -> None:
    server = make(*arguments)
    server.start()
    report(str(server.address))
    Event().wait()


def make_echo(address: str, spin: float | None) -> Any:
    settings = ServerSettings(timeout=Timeouts(spin=spin))
    return ThreadServer(address, Frames, make_handler=lambda _: TimedEcho(), settings=settings)


def make_rlx(address: str, spin: float | None) -> Any:
    return RLXServer(Agent, address, timeout=Timeouts(spin=spin))


def make_worlds(address: str, spin: float | None) -> Any:
    return Server(lambda settings: world(), address, timeout=Timeouts(spin=spin))


def started(
    stack: ExitStack, over: str, make: Any, spin: float | None, cores: list[int] | None
) -> str:
    """Start a server in a process, and return its address."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    address = "127.0.0.1:0" if over == "TCP" else f"{over}:{folder}/s"
    there = ServerProcess(over, serve, make, address, spin, cores=cores)
    found: str = stack.enter_context(there).address
    return found


def ask(
    stack: ExitStack, over: str, spin: float | None, cores: list[int] | None
) -> Callable[[bytes], Any]:
    """Return a function that sends bytes to an echo and returns the reply."""
    address = started(stack, over, make_echo, spin, cores)
    connection = tcp.connect(address, Frames(), timeout=Timeouts(spin=spin))
    return stack.enter_context(connection).exchange


def cpu_of(exchange: Callable[[bytes], Any], data: bytes, count: int) -> str:
    """Return the CPU microseconds of both ends in an exchange."""

    def spent() -> int:
        return process_time_ns() + int.from_bytes(exchange(b""), "big")

    begun = spent()
    for _ in range(count):
        exchange(data)
    return f"{(spent() - begun) / count / 1e3:,.1f}"


def ask_rlx(stack: ExitStack, over: str, spin: float | None, cores: Any) -> Callable[[], Any]:
    client = AgentProxy(started(stack, over, make_rlx, spin, cores), timeout=Timeouts(spin=spin))
    client.connect(retry=1)
    stack.callback(client.disconnect)
    client.init()
    state = np.random.default_rng(7).random((SIDE, SIDE, 4), np.float32)
    return lambda: client.update(1.0, state, False)


def ask_world(stack: ExitStack, over: str, spin: float | None, cores: Any) -> Callable[[], Any]:
    address = started(stack, over, make_worlds, spin, cores)
    client = stack.enter_context(Client(address, timeout=Timeouts(spin=spin)))
    client.connect()
    client.join_world()
    action = {"action": np.int32(1)}
    return lambda: client.step(action, ("observation",))


def echoes(lines: list[Line], costs: list[tuple[str, ...]]) -> None:
    cores = allowed_cores()
    for setting, target in list(TARGETS.items())[: 1 if TINY else None]:
        spin = SPIN if "spinning" in setting else None
        # On two cores both ends may use either; the system separates them.
        theirs = cores[:1] if setting == "one core" else cores
        pin(theirs)
        for name, size in SIZES.items():
            with ExitStack() as stack:
                sleeps, data = "shm, asleep", os.urandom(size)
                ends = {over: ask(stack, over, spin, theirs) for over in OVER}
                ends[sleeps] = ask(stack, "shm", ASLEEP, theirs)
                asking: dict[str, Callable[[], Any]]
                asking = {over: partial(exchange, data) for over, exchange in ends.items()}
                asking["raw TCP"] = stack.enter_context(
                    raw_exchange(raw_messages(Sizes(size, size)), theirs)
                )
                block = 20 if TINY or size > 4096 else 200
                times = take_turns(asking, SECONDS, block)
                what = f"{name}, {setting}"
                lines.append(
                    Line(f"{what}", times["shm"], "raw TCP", times["raw TCP"], target, faster=True)
                )
                lines.append(Line(what, times["shm"], "unix", times["unix"], 1.0, faster=True))
                lines.append(Line(what, times["shm"], "TCP", times["TCP"], None, faster=True))
                if spin is None:  # so that both sleep
                    lines.append(Line(f"{what}, asleep", times[sleeps], "unix", times["unix"]))
                asked = {what: data} if size > 4096 else {what: data, f"{what}, in a ms": LATE}
                for which, sent in asked.items():
                    for over in ("unix", "shm", sleeps):
                        costs.append((which, over, cpu_of(ends[over], sent, block)))
    pin(cores)


def beside() -> dict[str, float]:
    """Return exchanges a second of two threads of one process over both carriers at once."""
    turns = dict.fromkeys(("unix", "shm"), 0)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2 * len(turns)))
        asking = [(over, ask(stack, over, None, None)) for over in (*turns, *turns)]
        until = monotonic() + SECONDS

        def exchanges(exchange: Callable[[bytes], Any]) -> int:
            count = 0
            while monotonic() < until:
                exchange(bytes(64))
                count += 1
            return count

        for over, count in [(over, pool.submit(exchanges, each)) for over, each in asking]:
            turns[over] += count.result()
    return {over: count / SECONDS for over, count in turns.items()}


def protocols(lines: list[Line]) -> None:
    works = {
        f"RLX update, {SIDE}x{SIDE}x4 float32": ask_rlx,
        f"dm_env_rpc step, {TALL}x{WIDE}x3": ask_world,
    }
    for name, asks in works.items():
        for setting, spin in (("", None), (", all spinning", SPIN))[: 1 if TINY else None]:
            with ExitStack() as stack:
                asking = {over: asks(stack, over, spin, None) for over in OVER}
                times = take_turns(asking, SECONDS, 20 if TINY else 100)
            for over, target in (("TCP", 2.0), ("unix", 1.0)):
                lines.append(
                    Line(name + setting, times["shm"], over, times[over], target, faster=True)
                )


def in_place(size: int) -> list[tuple[str, ...]]:
    """Return the microseconds in C of a small request and an array, by how it is read."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(__file__).with_name("shm_in_place.c")
        program = Path(folder) / "shm_in_place"
        command = ["cc", "-O2", f"-I{rlwire.get_include()}", str(source), "-o", str(program)]
        subprocess.run(command, check=True)
        told = subprocess.run([program, str(size), str(SECONDS)], check=True, stdout=-1, text=True)
    return [(f"{size:,}", *line.split("\t")) for line in told.stdout.splitlines()]


def main() -> None:
    print_head("What does a connection over shared memory cost?")
    lines: list[Line] = []
    costs: list[tuple[str, ...]] = []
    echoes(lines, costs)
    protocols(lines)
    print_lines(lines)
    print()
    print_table(("round trip", "over", "CPU us of both"), costs)
    print()
    rates = [(over, f"{rate:,.0f}") for over, rate in beside().items()]
    print_table(("two threads of four, over", "round trips a second"), rates)
    print()
    if shutil.which("cc") is None:
        print("Reading in place was not tried: there is no compiler, cc")
        return
    rows = [row for size in (SIDE * SIDE * 16, TALL * WIDE * 3, 1 << 20) for row in in_place(size)]
    print_table(("bytes", "read", "ns in C"), rows)


if __name__ == "__main__":
    main()

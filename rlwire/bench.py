"""`rlwire bench`: the time of a step on this machine, per protocol and payload.

An environment in another process replays recorded observations, and the client compares them. A
relay counts the bytes of a step. Steps are timed in turn with raw socket exchanges of that size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import importlib
import itertools
import json
import math
import multiprocessing
import os
import platform
import signal
import socket
import sys
import tempfile
import textwrap
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pkgutil import resolve_name
from time import monotonic, perf_counter, perf_counter_ns, time
from typing import Any, ClassVar, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

import rlwire
from rlwire.environments.driver import drive
from rlwire.environments.loading import load
from rlwire.errors import EncodeError, LimitExceeded, MissingExtra, RlwireError, on_error, optional
from rlwire.registry import parse_url, protocol
from rlwire.transports.sockets import set_kernel_timeout


class BenchError(RlwireError):
    """The benchmark cannot continue, or measured something wrong."""


class Mismatch(BenchError):
    """An observation or a reward differs from the recorded one."""


class Unfit(BenchError):
    """A protocol cannot carry a payload."""


# ---- processes and cores -------------------------------------------------------------------------

START_SECONDS = 30.0
STOP_SECONDS = 5.0
ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Cores:
    """Cores for client and server; None lets the system choose."""

    client: list[int] | None = None
    server: list[int] | None = None


def allowed_cores() -> list[int]:
    """Return the cores that this process may run on; [] if the platform does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def pin(cores: list[int] | None) -> None:
    """Pin this process, and threads that it starts later, to `cores`."""
    if cores:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Ignore SIGINT inside the block, so that processes started there inherit that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


def die_with_parent() -> None:
    """Exit when the parent process has ended, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def _main(
    channel: Connection, cores: list[int] | None, serve: Callable[..., None], arguments: Any
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its servers
    pin(cores)
    die_with_parent()
    try:
        serve(lambda address: channel.send(("listening", address)), *arguments)
    except Exception as error:
        cannot = isinstance(error, (EncodeError, LimitExceeded, MissingExtra))
        kind = "unfit" if cannot else "failed"
        channel.send((kind, f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None


@functools.cache
def _processes() -> Any:
    """Return the context of processes: fresh ones, forked where possible from one with imports."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class ServerProcess:
    """A server in a process of its own, which ends with its parent."""

    def __init__(
        self,
        name: str,
        serve: Callable[..., None],
        *arguments: Any,
        cores: list[int] | None = None,
        has_children: bool = False,
    ) -> None:
        self.name = name
        self.address: Any = None
        context = _processes()
        self._channel, self._far_end = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main,
            args=(self._far_end, cores, serve, arguments),
            name=f"rlwire-bench-{name}",
            daemon=not has_children,
        )

    def __enter__(self) -> ServerProcess:
        with on_error(self.stop):
            with deaf():
                self._process.start()
            self._far_end.close()
            if not wait([self._channel, self._process.sentinel], START_SECONDS):
                raise BenchError(f"the {self.name} server did not listen in {START_SECONDS:.0f} s")
            try:
                kind, what = self._channel.recv()
            except EOFError:
                raise BenchError(self.epitaph() or f"the {self.name} server ended") from None
            if kind == "unfit":
                raise Unfit(what)
            if kind != "listening":
                raise BenchError(f"the {self.name} server did not start: {what}")
            self.address = what
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "enter the server first"
        return self._process.pid

    def epitaph(self) -> str | None:
        """Return a sentence about how the process ended; None while it runs."""
        # The reset of its connection arrives before the system reports the exit.
        self._process.join(0.2)
        code = self._process.exitcode
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        try:
            why = f": {self._channel.recv()[1]}" if self._channel.poll() else ""
        except (EOFError, OSError):
            why = ""
        return f"the {self.name} server process has ended with {how}{why}"

    def stop(self) -> None:
        if self._process.pid is not None:
            self._process.terminate()
            self._process.join(STOP_SECONDS)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
        self._channel.close()
        self._far_end.close()


# ---- the machine ---------------------------------------------------------------------------------


def versions(*packages: str) -> dict[str, str]:
    found = {platform.python_implementation(): platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine() -> dict[str, str | int]:
    """Return system, processor, number of usable cores, and TCP's congestion control.

    With ``bbr`` times of large messages vary, because the kernel paces even loopback by timers.
    """
    tcp = "unknown"
    if hasattr(socket, "TCP_CONGESTION"):
        with socket.socket() as plain:
            name = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        tcp = name.rstrip(b"\0").decode("ascii", "replace")
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(allowed_cores()) or os.cpu_count() or 1,
        "tcp": tcp,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return f"{value.strip()} {platform.machine()}"
    return platform.processor() or platform.machine()


# ---- payloads ------------------------------------------------------------------------------------

SEED = 20_180_131
OWN_STEPS = 64  # steps of random play with --env
STACKED = 4  # frames in one Atari observation, as for DQN


class BenchStep(NamedTuple):
    state: NDArray[Any]
    reward: float
    terminal: bool


@dataclass(frozen=True)
class Payload:
    """Recorded steps; all observations have the same shape and dtype."""

    name: str
    title: str
    steps: list[BenchStep]

    @property
    def array(self) -> str:
        state = self.steps[0].state
        return f"{'x'.join(map(str, state.shape)) or 'scalar'} {state.dtype}"


_RECORDED = {
    "cartpole": ("CartPole-v1", "CartPole", 256),
    "pong": ("ALE/Pong-v5", "Pong", 64),
    "pong-stack": ("ALE/Pong-v5", "Pong, four grey frames", 64),
}

PAYLOADS = tuple(_RECORDED)
"""The names for `record`, in the order of the report."""


def record(name: str, count: int | None = None) -> Payload:
    """Record `count` steps of the payload `name`; None for its default number."""
    environment, title, usual = _RECORDED[name]
    count = usual if count is None else count
    if environment.startswith("ALE/"):
        with optional("ale-py", "bench", "ale_py"):
            import ale_py
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else it prints a banner
    env = drive(f"gym:{environment}").one("the bench")
    if name.endswith("-stack"):
        return _payload(name, title, _stacked(_play(env, count + STACKED - 1, name)))
    return _payload(name, title, _play(env, count, name))


def played(environment: str, count: int = OWN_STEPS) -> Payload:
    """Record `count` steps of random play in ``gym:ID`` or ``module:factory``."""
    try:
        driven = drive(environment).one("the bench")
    except (ImportError, AttributeError, EncodeError, TypeError, ValueError) as error:
        raise BenchError(f"--env {environment}: {error}") from error
    name = environment.removeprefix("gym:")
    return _payload(name, name, _play(driven, count, f"--env {environment}"))


def made_by(function: str) -> Payload:
    """Return the steps from ``module:function``: states, or triples with reward and terminal."""
    asked = f"--payload {function}"
    try:
        given = list(load(function, "'module:function', such as 'my_frames:recorded'")())
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BenchError(f"{asked}: {error}") from error
    steps = []
    for each in given:
        state, reward, terminal = each if isinstance(each, tuple) else (each, 0.0, False)
        steps.append(BenchStep(_own_array(state, asked), float(reward), bool(terminal)))
    if not steps:
        raise BenchError(f"{asked}: the function returned no observations")
    return _payload(function, function, steps)


def _play(env: Any, count: int, asked: str) -> Iterator[BenchStep]:
    try:
        env.action_space.seed(SEED)
        state, _info = env.reset(seed=SEED)
        reward, terminal = 0.0, False
        for _ in range(count):
            yield BenchStep(_own_array(state, asked), float(reward), terminal)
            if terminal:
                state, _info = env.reset()
                reward, terminal = 0.0, False
            else:
                state, reward, ended, cut, _info = env.step(env.action_space.sample())
                terminal = bool(ended or cut)
    finally:
        env.close()


def _stacked(steps: Iterable[BenchStep]) -> Iterator[BenchStep]:
    from PIL import Image

    latest: deque[NDArray[np.float32]] = deque(maxlen=STACKED)
    for step in steps:
        grey = Image.fromarray(step.state).convert("L").resize((84, 84), Image.Resampling.BOX)
        latest.append(np.asarray(grey, dtype=np.float32) / np.float32(255.0))
        if len(latest) == STACKED:
            yield BenchStep(np.stack(latest, axis=-1), step.reward, step.terminal)


def _own_array(state: Any, asked: str) -> NDArray[Any]:
    try:
        array = np.array(state, order="C")
    except ValueError as error:
        raise BenchError(f"{asked}: an observation is no array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise BenchError(
            f"{asked}: observations must be arrays of numbers, not {type(state).__name__}; "
            "wrap environments with nested observations in Gymnasium's FlattenObservation"
        )
    return array


def _payload(name: str, title: str, recorded: Iterable[BenchStep]) -> Payload:
    steps = list(recorded)
    first = steps[0].state
    for step in steps:
        if (step.state.shape, step.state.dtype) != (first.shape, first.dtype):
            raise BenchError(
                f"{name}: all observations must have the same dtype and shape, not {first.dtype} "
                f"{first.shape} and then {step.state.dtype} {step.state.shape}"
            )
    return Payload(name, title, steps)


def replaying(steps: Sequence[BenchStep]) -> Any:
    """Make a Gymnasium environment whose action is the number of the recorded step to replay."""
    with optional("gymnasium", "bench"):
        import gymnasium
    state = steps[0].state
    low, high = (0.0, 1.0) if state.dtype.kind == "b" else (-np.inf, np.inf)
    if state.dtype.kind in "iu":
        low, high = np.iinfo(state.dtype).min, np.iinfo(state.dtype).max

    class Replay(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(low, high, state.shape, state.dtype)
        action_space = gymnasium.spaces.Discrete(len(steps))

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
            return state, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            shown = steps[int(action)]
            return shown.state, shown.reward, False, False, {}  # no reset in between

    return Replay()


# ---- the raw exchange, and the relay that counts bytes -------------------------------------------

_WAITALL = getattr(socket, "MSG_WAITALL", 0)


class Sizes(NamedTuple):
    """Bytes on the wire, with framing."""

    request: int
    reply: int


def _mean(messages: Sequence[bytes | memoryview]) -> int:
    return round(sum(map(len, messages)) / len(messages))


def _fill(peer: socket.socket, view: memoryview) -> bool:
    """Receive until `view` is full; return False at the end of the stream."""
    size = peer.recv_into(view, 0, _WAITALL)
    while 0 < size < len(view):  # a signal, a timeout, or a platform without MSG_WAITALL
        more = peer.recv_into(view[size:], 0, _WAITALL)
        if more == 0:
            return False
        size += more
    return size > 0


def serve_raw(report: Callable[[tuple[str, int]], None], sizes: Sizes) -> None:
    request, reply = memoryview(bytearray(sizes.request)), bytes(sizes.reply)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(listener.getsockname())
        while True:
            peer, _address = listener.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while _fill(peer, request):
                    peer.sendall(reply)


def serve_raw_datagrams(report: Callable[[tuple[str, int]], None], sizes: Sizes) -> None:
    reply = bytes(sizes.reply)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        report(server.getsockname())
        while True:
            _request, peer = server.recvfrom(sizes.request)
            server.sendto(reply, peer)


@contextlib.contextmanager
def raw_exchange(
    sizes: Sizes, cores: list[int] | None = None, *, datagrams: bool = False
) -> Iterator[Callable[..., None]]:
    """Start a raw server, connect, and yield a function that makes one blocking exchange."""
    request, reply = bytes(sizes.request), memoryview(bytearray(sizes.reply))
    serve = serve_raw_datagrams if datagrams else serve_raw
    with ServerProcess("raw echo", serve, sizes, cores=cores) as server:
        if datagrams:
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.connect(server.address)
        else:
            peer = socket.create_connection(server.address, timeout=ANSWER_SECONDS)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(None)  # Python's timeout costs a poll() per call
        set_kernel_timeout(peer, socket.SO_RCVTIMEO, ANSWER_SECONDS)

        def exchange(_number: int = 0) -> None:
            try:
                peer.sendall(request)
                if datagrams:
                    peer.recv_into(reply)
                elif not _fill(peer, reply):
                    raise BenchError("the raw echo server closed the connection")
            except (BenchError, OSError) as error:
                raise BenchError(server.epitaph() or f"raw exchange failed: {error}") from error

        with peer:
            yield exchange


class Relay:
    """Forwards TCP between a client and a server, and counts the bytes each way."""

    def __init__(self, host: str, port: int) -> None:
        self.sent = self.answered = 0
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = False
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                here, _address = self._listener.accept()
                if self._closed:
                    here.close()
                    return
                threading.Thread(target=self._relay, args=(here,), daemon=True).start()

    def _relay(self, here: socket.socket) -> None:
        with here, contextlib.suppress(OSError), socket.create_connection(self._target) as there:
            for each in (here, there):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pump, args=(there, here, "answered"), daemon=True)
            back.start()
            self._pump(here, there, "sent")
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop accepting; closing a socket would not wake the thread that accepts."""
        self._closed = True
        with contextlib.suppress(OSError):  # the thread has ended
            socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()


# ---- rows: one protocol with one payload ---------------------------------------------------------


class Exchange(NamedTuple):
    """A connection: `ask` takes a step, `seen` extracts observation and reward from its result."""

    ask: Callable[[int], Any]
    seen: Callable[[Any], tuple[Any, Any]]


@dataclass
class Row(ABC):
    """One protocol with one payload; `make` makes the environment that replays it."""

    name: str
    payload: Payload
    cores: Cores
    over: str = "tcp"
    make: Callable[[Sequence[BenchStep]], Any] = replaying
    datagrams: ClassVar = False

    @property
    def makes(self) -> Callable[[], Any]:
        return functools.partial(self.make, self.payload.steps)

    @abstractmethod
    def opened(self, relays: list[Relay] | None = None) -> AbstractContextManager[Exchange]:
        """Start the server and connect; with `relays`, through a new relay that is added there."""

    def sizes(self) -> Sizes:
        """Check each step twice, and return the mean bytes of a round trip."""
        relays: list[Relay] = []
        counted: list[tuple[int, int]] = []
        count = len(self.payload.steps)
        try:
            with self.opened(relays) as exchange:
                (relay,) = relays
                for number in [*range(count)] * 2:  # the first time with pings of a new connection
                    sent, answered = relay.sent, relay.answered
                    outcome = exchange.ask(number)
                    counted.append((relay.sent - sent, relay.answered - answered))
                    self.check(number, exchange.seen(outcome))
        except (EncodeError, LimitExceeded) as error:
            raise Unfit(str(error)) from error
        finally:
            for relay in relays:
                relay.close()
        return Sizes(*map(round, np.mean(counted[count:], axis=0)))

    def check(self, number: int, seen: tuple[Any, Any]) -> None:
        step = self.payload.steps[number]
        difference = array_difference(step.state, seen[0])
        if not difference and float(seen[1]) != step.reward:
            difference = f"reward {step.reward!r} came back as {seen[1]!r}"
        if difference:
            raise Mismatch(f"{self.name}, {self.payload.name}, step {number}: {difference}")

    @contextlib.contextmanager
    def _other(self, serve: Callable[..., None], *arguments: Any) -> Iterator[ServerProcess]:
        """Run `serve` in another process; if that ends, errors in the block name the reason."""
        with ServerProcess(self.name, serve, *arguments, cores=self.cores.server) as server:
            try:
                yield server
            except (Mismatch, Unfit, EncodeError, LimitExceeded):
                raise
            except (RlwireError, OSError, EOFError) as error:
                raise BenchError(server.epitaph() or f"{self.name}: {error}") from error


def _relayed(url: str, relays: list[Relay] | None) -> str:
    if relays is None:
        return url
    where = parse_url(url)
    relays.append(Relay(where.host, where.port))
    return str(where.replace(host="127.0.0.1", port=relays[-1].port))


def array_difference(sent: NDArray[Any], state: Any) -> str:
    """Describe the first difference between a sent array and a returned one; "" if equal."""
    state = np.asarray(state) if isinstance(state, np.generic) else state
    if not isinstance(state, np.ndarray):
        return f"the state came back as a {type(state).__name__}"
    if state.dtype != sent.dtype or state.shape != sent.shape:
        return f"a state of {sent.dtype} {sent.shape} came back as {state.dtype} {state.shape}"
    # Bytes, since NaN must equal NaN, and -0.0 differ from 0.0.
    both = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (sent, state))
    wrong = np.flatnonzero(np.not_equal(*both))
    return f"byte {wrong[0]} of the state differs, {wrong.size} in all" if wrong.size else ""


def _stepping(env: Any) -> Exchange:
    env.reset()
    return Exchange(env.step, lambda outcome: (outcome[0], outcome[1]))


def _serve(report: Callable[[str], None], make: Any, url: str, options: dict[str, Any]) -> None:
    with rlwire.serve(make, url, **options) as server:
        report(server.url)
        server.wait()


_numbers = itertools.count()
_folder = functools.cache(lambda: tempfile.TemporaryDirectory(prefix="rlwire-bench-"))


class _Door(Row):
    scheme: ClassVar = ""
    options: ClassVar[dict[str, Any]] = {}

    @property
    def serves(self) -> Callable[..., Any]:
        return self.makes

    def served(self, over: str) -> AbstractContextManager[ServerProcess]:
        """Start the server; its `address` is what `client` connects to."""
        scheme = self.scheme or self.name.replace("_", "-")
        if over == "tcp":
            url = f"{scheme}://127.0.0.1:{'+' if protocol(scheme).plus else ''}0"
        else:
            url = f"{scheme}+{over}://{_folder().name}/{next(_numbers)}"
        return self._other(_serve, self.serves, url, self.options)

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Exchange]:
        with closing(rlwire.make(url)) as env:
            yield _stepping(env)

    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        over = self.over if relays is None else "tcp"
        with self.served(over) as server, self.client(_relayed(server.address, relays)) as exchange:
            yield exchange


class _Rewarder(_Door):
    scheme = "universe"
    options: ClassVar = {"lockstep": True}


class _Perlert(_Door):
    """PERLERT, with a server that steps when an action arrives instead of at a fixed rate."""

    datagrams = True

    def sizes(self) -> Sizes:
        from rlwire.codecs import perlert

        if self.over != "tcp":
            raise Unfit("PERLERT uses UDP, pass --over tcp")
        if self.payload.steps[0].state.dtype.kind == "b":
            raise Unfit("PERLERT has no text form for booleans")
        now, writer = int(time() * 1000), perlert.StepWriter(_INSTANCE, 0)
        try:
            frames = [
                writer.write(now, number, step.state, step.reward, False, _told(number))
                for number, step in enumerate(self.payload.steps)
            ]
        except LimitExceeded as error:
            raise Unfit(f"{self.payload.array} as text: {error}") from error
        actions = [perlert.Action(_INSTANCE, 0, str(number)) for number in range(len(frames))]
        return Sizes(_mean([perlert.encode(action) for action in actions]), _mean(frames))

    def served(self, over: str) -> AbstractContextManager[ServerProcess]:
        return self._other(_serve_perlert, self.makes)

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Exchange]:
        from rlwire.codecs import perlert

        state = self.payload.steps[0].state
        with closing(rlwire.connect(url)) as client:
            client.register(_AGENT, timeout=ANSWER_SECONDS)
            client.ready()
            client.wait_start(ANSWER_SECONDS)
            client.frame(ANSWER_SECONDS)

            def ask(number: int) -> tuple[Any, Any]:
                client.act(str(number))
                frame = client.frame(ANSWER_SECONDS)
                while frame.extra != _told(number):  # an action sent twice takes two steps
                    frame = client.frame(ANSWER_SECONDS)
                text = frame.observation
                return perlert.text_to_array(text, state.dtype, shape=state.shape), frame.reward

            yield Exchange(ask, lambda seen: seen)


_INSTANCE, _AGENT = "bench", "agent0"


def _told(number: int) -> str:
    return f"told:{number}"


def _serve_perlert(report: Callable[[str], None], make: Callable[[], Any]) -> None:
    asyncio.run(_step_at_once(report, make()))


async def _step_at_once(report: Callable[[str], None], env: Any) -> None:
    from rlwire.sessions.perlert.server import PerlertServerSession
    from rlwire.transports import udp_asyncio

    session = PerlertServerSession(frames=1e9)
    instance = session.add_instance(_INSTANCE, 0, {_AGENT: "agent"})
    numbers = itertools.count()

    def publish(number: int, now: float) -> None:
        state, reward, *_ = env.step(number)
        shown = (state, float(reward), False, _told(number))
        instance.publish({_AGENT: shown}, next(numbers), int(time() * 1000), now)

    class Port:
        closed = False
        advance, next_deadline = session.rollout.advance, session.rollout.next_deadline
        datagrams = session.rollout.datagrams

        @staticmethod
        def receive(datagram: Any, peer: Any, now: float) -> list[Any]:
            events = session.rollout.receive(datagram, peer, now)
            action = instance.actions().get(_AGENT)
            if action is not None:
                publish(int(action), now)
            return events

    rollout = await udp_asyncio.serve("127.0.0.1:0", Port())
    session.rollout_port = rollout.address.port

    def begin() -> None:
        publish(0, monotonic())
        rollout.flush()

    def react(events: list[Any]) -> None:
        if instance.rollout is not None:
            # Later, since the client must receive the start first.
            asyncio.get_running_loop().call_soon(begin)

    lobby = await udp_asyncio.serve("127.0.0.1:0", session.lobby, on_events=react)
    report(f"perlert://{lobby.address}/{_INSTANCE}")
    await asyncio.Event().wait()


class Keeper:
    """An agent, policy and learner; replies to an empty message with the last one received."""

    def __init__(self, _parameter_server: Any = None) -> None:
        self.kept: Any = None

    def init(self, exploit: bool = False) -> bool:
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> Any:
        if state is None:
            return self.kept
        self.kept = [state, reward]
        return 0

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        if not observation:
            return {"kept": self.kept}
        self.kept = [observation["state"], observation["reward"]]
        return {"actions": 0}

    def get_state(self) -> Any:
        return _weights({})

    def learn(self, episodes: Sequence[Any]) -> Any:
        episode = episodes[-1]
        if episode.id == "back":
            return _weights({"kept": self.kept})
        self.kept = [episode.observations, float(episode.rewards[-1])]
        return _weights({})


def _weights(state: dict[str, Any]) -> Any:
    from rlwire.rllink import SetState

    return SetState(0, state)


class _Asking(_Door):
    """A row of a protocol where the environment connects: `rlwire.serve` and `rlwire.connect`."""

    serves = Keeper

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Exchange]:
        client = rlwire.connect(url)
        with contextlib.ExitStack() as stack:
            stack.callback(client.disconnect if self.name == "rlx" else client.close)
            yield self.exchange(client, self.payload.steps)

    @abstractmethod
    def exchange(self, client: Any, steps: Sequence[BenchStep]) -> Exchange:
        """Return a connected client's `Exchange`."""


class _RLX(_Asking):
    def exchange(self, client: Any, steps: Sequence[BenchStep]) -> Exchange:
        client.init()
        update = client.update
        return Exchange(
            lambda number: update(
                steps[number].reward, steps[number].state, steps[number].terminal
            ),
            lambda _reply: update(),
        )


class _Openpi(_Asking):
    options: ClassVar = {"workers": "threads", "timing": False}

    def exchange(self, client: Any, steps: Sequence[BenchStep]) -> Exchange:
        messages = [{"state": step.state, "reward": step.reward} for step in steps]
        return Exchange(
            lambda number: client.infer(messages[number]), lambda _reply: client.infer({})["kept"]
        )


class _RLlink(_Asking):
    """RLlink: a simulator sends an episode, an array of its steps, and waits for weights."""

    def exchange(self, client: Any, steps: Sequence[BenchStep]) -> Exchange:
        from rlwire.rllink import Episode

        episodes = []
        for state, reward, terminal in steps:
            if state.ndim == 0 or len(state) < 2:
                raise Unfit(f"RLlink carries episodes of one step or more, not {state.shape}")
            count = len(state) - 1
            actions, rewards = np.zeros(count, np.int64), np.full(count, reward)
            episodes.append(Episode(state, actions, rewards, terminal))
        back = Episode(np.zeros(2), np.zeros(1), np.zeros(1), id="back")
        return Exchange(
            lambda number: client.send([episodes[number]], wait=True),
            lambda _reply: client.send([back], wait=True).state["kept"],
        )


PROVIDERS: dict[str, type[Row]] = {
    "dm_env_rpc": _Door,
    "rlx": _RLX,
    "perlert": _Perlert,
    "rewarder": _Rewarder,
    "openpi": _Openpi,
    "rllink": _RLlink,
}
"""The protocols by name, in the order of the report."""


# ---- rivals: other libraries that carry steps between two processes ------------------------------


class _Rival(Row):
    """A row of another library, used as its own documentation does."""

    needs: ClassVar[dict[str, str]] = {}
    """Modules to import, and the package of each."""

    @classmethod
    def missing(cls) -> str:
        for module, package in cls.needs.items():
            try:
                importlib.import_module(module)
            except ImportError as error:
                return f"{error}: pip install {package}"
        return ""


class _Pickled(_Rival):
    """A row that pickles into a pipe, where a relay cannot count bytes."""

    request: ClassVar[Any] = 1

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal

    def sizes(self) -> Sizes:
        replies = [ForkingPickler.dumps(self.reply(step)) for step in self.payload.steps]
        return Sizes(len(ForkingPickler.dumps(self.request)) + 4, _mean(replies) + 4)


def _serve_pipe(
    report: Callable[[str], None], pipe: Connection, steps: Sequence[BenchStep]
) -> None:
    report("a pipe")
    while True:
        pipe.send(tuple(steps[pipe.recv()]))


class _Pipe(_Pickled):
    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        ours, theirs = multiprocessing.Pipe()
        with self._other(_serve_pipe, theirs, self.payload.steps), ours:
            theirs.close()

            def ask(number: int) -> Any:
                ours.send(number)
                return ours.recv()

            yield Exchange(ask, lambda reply: reply[:2])


class _Vector(_Pickled):
    request: ClassVar = ("step", np.int64(1))
    kind: ClassVar[str]
    options: ClassVar[dict[str, str]]

    @contextlib.contextmanager
    def opened(self, relays: list[Relay] | None = None) -> Iterator[Exchange]:
        with deaf():
            make = functools.partial(_pinned, self.makes, self.cores.server)
            envs = resolve_name(self.kind)([make], **self.options)
        try:
            envs.reset()
            yield Exchange(
                lambda number: envs.step(np.array([number])),
                lambda outcome: (outcome[0][0], outcome[1][0]),
            )
        except EOFError as error:
            raise BenchError(f"{self.name}: the environment's process has ended") from error
        finally:
            for process in envs.processes:
                process.terminate()
                process.join()
            envs.closed = True  # else it waits for replies


def _pinned(make: Callable[[], Any], cores: list[int] | None) -> Any:
    pin(cores)
    die_with_parent()
    return make()


class _AsyncVector(_Vector):
    """Gymnasium's `AsyncVectorEnv`, with observations in shared memory."""

    needs: ClassVar = {"gymnasium": "gymnasium"}
    kind = "gymnasium.vector:AsyncVectorEnv"
    options: ClassVar = {"context": "spawn"}

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return (None, step.reward, step.terminal, False, {}), True


class _SubprocVec(_Vector):
    needs: ClassVar = {"stable_baselines3": "stable-baselines3"}
    kind = "stable_baselines3.common.vec_env:SubprocVecEnv"
    options: ClassVar = {"start_method": "spawn"}

    @staticmethod
    def reply(step: BenchStep) -> Any:
        return step.state, step.reward, step.terminal, {"TimeLimit.truncated": False}, {}


RIVALS: dict[str, type[_Rival]] = {
    "pipe": _Pipe,
    "AsyncVec": _AsyncVector,
    "SubprocVec": _SubprocVec,
}
"""Other libraries between an agent and an environment in another process, by name."""


# ---- measuring -----------------------------------------------------------------------------------

BLOCK = 32  # round trips in a turn: a few milliseconds
LEAD_IN = 2  # untimed ones at its start: the other server has just used the caches
TURN = BLOCK - LEAD_IN  # timed round trips in a turn
WARM_UP = 3  # turns that are discarded
TURNS = 5  # fewest turns, for the quartiles of their ratios


@dataclass(frozen=True)
class Spread:
    """Median, quartiles, 99th percentile and count of measurements."""

    p50: float
    p25: float
    p75: float
    p99: float
    count: int


def spread(figures: Sequence[float] | NDArray[Any]) -> Spread:
    p25, p50, p75, p99 = map(float, np.percentile(figures, (25.0, 50.0, 75.0, 99.0)))
    return Spread(p50, p25, p75, p99, len(figures))


def ratios(values: Sequence[float], references: Sequence[float], size: int) -> Spread:
    """Return the ratios of values to references: per turn of `size`, the ratio of medians."""
    medians = (np.median(np.reshape(each, (-1, size)), axis=1) for each in (values, references))
    return spread(np.divide(*medians))


def rates(times: Sequence[float], size: int) -> Spread:
    """Return calls per second, per turn of `size`; times in microseconds."""
    return spread(1e6 / np.mean(np.reshape(times, (-1, size)), axis=1))


@dataclass(frozen=True)
class Result:
    """The measurements of one protocol with one payload; times in microseconds."""

    protocol: str
    payload: str
    title: str
    array: str
    request_bytes: int
    reply_bytes: int
    round_trip: Spread
    echo: Spread
    overhead: Spread
    rate: Spread
    checked: int


@dataclass(frozen=True)
class LeftOut:
    protocol: str
    payload: str
    reason: str

    def __str__(self) -> str:
        return f"{self.protocol} cannot carry {self.payload}: {self.reason}"


def measure(row: Row, seconds: float) -> Result:
    """Count a row's bytes, then time it and raw exchanges of that size for `seconds`."""
    sizes = row.sizes()
    raw = raw_exchange(sizes, row.cores.server, datagrams=row.datagrams)
    with row.opened() as exchange, raw as floor:
        collecting = gc.isenabled()
        gc.disable()
        try:
            round_trip, echo, checked = _take_turns(row, exchange, floor, seconds)
        finally:
            if collecting:
                gc.enable()
    return Result(
        protocol=row.name + ("" if row.over == "tcp" else f"+{row.over}"),
        payload=row.payload.name,
        title=row.payload.title,
        array=row.payload.array,
        request_bytes=sizes.request,
        reply_bytes=sizes.reply,
        round_trip=spread(round_trip),
        echo=spread(echo),
        overhead=ratios(round_trip, echo, TURN),
        rate=rates(round_trip, TURN),
        checked=checked,
    )


def _take_turns(
    row: Row, exchange: Exchange, floor: Callable[[int], None], seconds: float
) -> tuple[list[float], list[float], int]:
    """Time both exchanges in turn; return both lists of times and the number of checked steps."""
    times: tuple[list[float], list[float]] = ([], [])
    count = len(row.payload.steps)
    deadline = perf_counter() + seconds
    index = turn = checked = 0
    while turn < WARM_UP + TURNS or perf_counter() < deadline:
        numbers = [each % count for each in range(index, index + BLOCK)]
        # Alternate which goes first.
        for which in ((0, 1), (1, 0))[turn % 2]:
            block, outcome = _block(exchange.ask if which == 0 else floor, numbers)
            if which == 0:
                row.check(numbers[-1], exchange.seen(outcome))
            if turn >= WARM_UP:
                times[which].extend(block[LEAD_IN:])
        index += BLOCK
        checked += 1
        turn += 1
    return times[0], times[1], checked


def _block(ask: Callable[[int], Any], numbers: list[int]) -> tuple[list[float], Any]:
    """Return the times of a block's exchanges in microseconds, and the last one's result."""
    times: list[float] = []
    outcome = None
    for number in numbers:
        begin = perf_counter_ns()
        outcome = ask(number)
        times.append((perf_counter_ns() - begin) / 1000)
    return times, outcome


# ---- the report ----------------------------------------------------------------------------------

SCHEMA = 3  # version of the JSON; changes when a field changes its meaning or is removed


@dataclass(frozen=True)
class Run:
    versions: dict[str, str]
    machine: dict[str, str | int]
    pin: str
    seconds: float
    results: list[Result]
    left_out: list[LeftOut]


_COLUMNS = ["protocol", "payload", "x raw", "quartiles", "us", "raw us", "steps/s"]
_COLUMNS += ["request B", "reply B"]
_PINNING = {
    "none": "processes not pinned",
    "one-core": "both processes on one core",
    "two-cores": "each process on its own core",
}


def show(run: Run, stream: TextIO) -> None:
    system, processor, cores = (run.machine[name] for name in ("system", "processor", "cores"))
    machine_line = f"{system}, {processor}, cores: {cores}, {_PINNING[run.pin]}"
    rows = [_cells(result) for result in run.results]
    dashes = ("-",) * (len(_COLUMNS) - 2)
    rows += [(each.protocol, each.payload, *dashes) for each in run.left_out]
    checked = sum(result.checked for result in run.results)
    payloads = {result.payload: f"{result.title}, {result.array}" for result in run.results}
    notes = [
        "x raw is the time of a step divided by that of a raw socket exchange of as many bytes. "
        f"Both ran in turns of {TURN}; the table has median and quartiles of the turns' ratios.",
        f"{checked:,} timed steps were compared with the recording, and each step twice before.",
        "; ".join(f"{name} is {what}" for name, what in payloads.items()),
        *map(str, run.left_out),
    ]
    head = [", ".join(f"{name} {version}" for name, version in run.versions.items()), machine_line]
    stream.write("".join(map(_wrapped, head)))
    stream.write(f"\n{plain_table(_COLUMNS, rows, left=2)}\n\n")
    stream.write("".join(map(_wrapped, notes)))
    if run.results:
        stream.write(f"\n{sentence(run.results[0])}\n")


def _cells(result: Result) -> tuple[str, ...]:
    overhead = result.overhead
    return (
        result.protocol,
        result.payload,
        f"{overhead.p50:.2f}x",
        f"{overhead.p25:.2f} - {overhead.p75:.2f}",
        microseconds(result.round_trip.p50),
        microseconds(result.echo.p50),
        f"{result.rate.p50:,.0f}",
        f"{result.request_bytes:,}",
        f"{result.reply_bytes:,}",
    )


def sentence(result: Result) -> str:
    return (
        f"{result.protocol}, {result.title}: {result.round_trip.p50:,.0f} us a step, "
        f"{result.overhead.p50:.1f} times a raw socket exchange"
    )


def microseconds(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format a table; the first `left` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for cells in (columns, ["-" * width for width in widths], *rows):
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False) + "\n"


def as_json(run: Run) -> dict[str, Any]:
    """Return the fields of `Run` and ``schema`` as JSON values; times in microseconds."""
    fields = asdict(run)
    return {"schema": SCHEMA, "rows": fields.pop("results"), **fields}


_ECHO, _TRIP = "#9aa5b1", "#1f6fb2"
_HEIGHT = 0.36


def save_plot(run: Run, path: Path) -> None:
    with optional("matplotlib", "plot"):
        # Without pyplot, which would choose a backend for the process.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    results = run.results
    at = np.arange(len(results))
    figure = Figure(figsize=(11, 1.8 + 0.5 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    times, overheads = figure.subplots(1, 2, sharey=True)
    for side, name, colour, values in (
        (-0.5, "raw socket exchange of as many bytes", _ECHO, [each.echo.p50 for each in results]),
        (0.5, "a step", _TRIP, [each.round_trip.p50 for each in results]),
    ):
        bars = times.barh(at + side * _HEIGHT, values, _HEIGHT, color=colour, label=name)
        times.bar_label(bars, [f" {microseconds(value)}" for value in values], fontsize=8)
    ratio = [each.overhead for each in results]
    middle = np.array([each.p50 for each in ratio])
    spans = [middle - [each.p25 for each in ratio], [each.p75 for each in ratio] - middle]
    overheads.errorbar(
        middle, at, xerr=spans, fmt="o", color=_TRIP, markersize=3, capsize=4,
        label="median and quartiles of the turns",
    )  # fmt: skip
    for y, each in enumerate(ratio):
        overheads.text(each.p75, y, f"   {each.p50:.2f}x", va="center", fontsize=8)
    times.set_yticks(at, [f"{each.protocol}, {each.payload}" for each in results])
    times.set_ylim(len(results) - 0.4, -0.6)
    for axes, unit in ((times, "microseconds"), (overheads, "times the raw exchange")):
        axes.set_xscale("log")
        axes.set_xlabel(f"{unit}, logarithmic")
        axes.margins(x=0.2)
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.grid(axis="x", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=8, frameon=False)
    where = f"{run.machine['system']}, {run.machine['processor']}, {_PINNING[run.pin]}"
    figure.supxlabel(where, fontsize=8, color="#555555")
    figure.savefig(path, dpi=130)


# ---- the command ---------------------------------------------------------------------------------

ROW_SECONDS = 4.0
RUN_SECONDS = 12.0  # of measuring by default; recording and starting servers add to it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Send recorded observations of Gymnasium environments through each protocol, check those "
        "that arrive, and compare the time of a step with that of a raw socket exchange of as many "
        "bytes. Without options this takes less than a minute."
    )
    parser.add_argument(
        "--protocol",
        action="append",
        choices=sorted(PROVIDERS),
        help="measure this protocol only; may be repeated",
    )
    parser.add_argument(
        "--payload",
        action="append",
        type=_payload_name,
        metavar="{" + ",".join(PAYLOADS) + "}|MODULE:FUNCTION",
        help="send this payload only, or the list that your function returns: arrays of the same "
        "shape, or triples of array, reward and terminal; may be repeated",
    )
    parser.add_argument(
        "--env",
        action="append",
        metavar="gym:ID|MODULE:FACTORY",
        help="send observations of random play in this environment; may be repeated",
    )
    parser.add_argument(
        "--rivals",
        action="store_true",
        help=f"also measure other libraries, if they are installed: {', '.join(RIVALS)}",
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        metavar="SECONDS",
        help=f"measuring time of each protocol and payload (default: {ROW_SECONDS:g}, or less, so "
        f"that all take at most {RUN_SECONDS:g})",
    )
    parser.add_argument(
        "--pin",
        choices=tuple(_PINNING),
        default="one-core" if allowed_cores() else "none",
        help="pin client and server to one core, where wake-ups cost least and differences show "
        "best, or to one each (default here: %(default)s)",
    )
    parser.add_argument(
        "--over",
        choices=("tcp", "unix", "shm"),
        default="tcp",
        help="transport of the protocols; the raw exchange and other libraries always use TCP "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write results as JSON; with - to standard output, and the table to standard error",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw a chart")


def run(args: argparse.Namespace) -> int:
    if args.plot is not None:
        with optional("matplotlib", "plot"):
            import matplotlib  # noqa: F401
    for path in (args.json, args.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise BenchError(f"cannot write {path}: there is no directory {path.parent}")
    table = sys.stderr if args.json == Path("-") else sys.stdout
    before, cores = allowed_cores(), _cores(args.pin)
    sys.path.append(os.getcwd())  # for --env and --payload, as `rlwire serve` does
    outcome = Run(
        versions("rlwire", "numpy", "hpack", "gymnasium", "ale-py"),
        machine(), args.pin, args.seconds or ROW_SECONDS, [], [],
    )  # fmt: skip
    try:
        pin(cores.client)
        _measure_all(args, cores, outcome)
    except KeyboardInterrupt:
        sys.stderr.write("rlwire: interrupted\n")
        return 130  # 128 + SIGINT, as shells report it
    except BaseException:
        if outcome.results:
            show(outcome, table)
        raise
    finally:
        pin(before if cores.client else None)
    show(outcome, table)
    if args.json is not None:
        text = json.dumps(as_json(outcome), indent=2) + "\n"
        _ = sys.stdout.write(text) if table is sys.stderr else args.json.write_text(text, "utf-8")
    if args.plot is not None:
        save_plot(outcome, args.plot)
    return 0


def _measure_all(args: argparse.Namespace, cores: Cores, outcome: Run) -> None:
    environments = list(dict.fromkeys(args.env or ()))
    names = list(dict.fromkeys(args.payload or (() if environments else PAYLOADS)))
    kinds: dict[str, type[Row]] = {
        name: PROVIDERS[name] for name in dict.fromkeys(args.protocol or PROVIDERS)
    }
    for name, rival in RIVALS.items() if args.rivals else ():
        if missing := rival.missing():
            sys.stderr.write(f"rlwire: not measuring {name}: {missing}\n")
        else:
            kinds[name] = rival
    payloads = [made_by(name) if ":" in name else record(name) for name in names]
    payloads += [played(name) for name in environments]
    pairs = list(itertools.product(kinds.items(), payloads))
    seconds = args.seconds or min(ROW_SECONDS, RUN_SECONDS / len(pairs))
    for (name, kind), payload in pairs:
        _progress(f"{name}, {payload.name}")
        over = "tcp" if name in RIVALS else args.over
        try:
            outcome.results.append(measure(kind(name, payload, cores, over), seconds))
        except Unfit as error:
            outcome.left_out.append(LeftOut(name, payload.name, str(error)))
    _progress("")
    if not outcome.results:
        raise BenchError(f"nothing to measure: {'; '.join(map(str, outcome.left_out))}")


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()


def _payload_name(text: str) -> str:
    if text in PAYLOADS or ":" in text:
        return text
    raise argparse.ArgumentTypeError(f"expected {', '.join(PAYLOADS)} or MODULE:FUNCTION")


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

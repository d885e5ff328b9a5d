"""Rows of the table: one protocol with one payload."""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rlwire
from rlwire.bench.payloads import BenchStep, Payload, replaying
from rlwire.bench.processes import ANSWER_SECONDS, BenchError, Cores, ServerProcess, Unfit
from rlwire.bench.raw import Relay, Sizes, mean_size
from rlwire.registry import protocol
from rlwire.rllink import Episode, SetState

TURN = 30  # timed exchanges in a turn: a few milliseconds
BATCHES = 3  # the same, of batches of steps


class Exchange(NamedTuple):
    """A connection: `ask` takes a step, `seen` extracts observation and reward from its result.

    `server_cpu_time` is `ServerProcess.cpu_time` of the other end, None where that cannot be asked.
    """

    ask: Callable[[int], Any]
    seen: Callable[[Any], tuple[Any, Any]]
    server_cpu_time: Callable[[], tuple[float, float]] | None = None


@dataclass
class Row(ABC):
    """One protocol with one payload; `make` makes the environment that replays it."""

    name: str
    payload: Payload
    cores: Cores
    over: str = "tcp"
    make: Callable[[Sequence[BenchStep]], Any] = replaying
    datagrams: ClassVar = False
    batch: ClassVar = 1  # steps in an exchange
    turn: ClassVar = TURN

    @functools.cached_property
    def exchanged(self) -> Sequence[BenchStep]:
        """What `ask` exchanges, by number: a step of the recording, or a batch of them."""
        return self.payload.steps

    @property
    def makes(self) -> Callable[..., Any]:
        """What the server serves."""
        return functools.partial(self.make, self.payload.steps)

    @abstractmethod
    def opened(self, relay: Relay | None = None) -> AbstractContextManager[Exchange]:
        """Start the server and connect, through a relay if there is one."""

    def sizes(self) -> Sizes:
        """Check each step twice, and return the mean bytes of a round trip."""
        with closing(Relay()) as relay, self.opened(relay) as exchange:
            numbers = range(len(self.exchanged))
            for number in [*numbers] * 2:
                self.check(number, exchange.seen(exchange.ask(number)))
            relay.counted()  # until here with what `seen` asks, and pings of a new connection
            for number in numbers:
                exchange.ask(number)
            # In one sum, because what ends an episode may come after the step's answer.
            counted = relay.counted()
        return Sizes(*(round(each / len(self.exchanged)) for each in counted))

    def check(self, number: int, seen: tuple[Any, Any]) -> None:
        step = self.exchanged[number]
        difference = array_difference(step.state, seen[0])
        if not difference and float(seen[1]) != step.reward:
            difference = f"reward {step.reward!r} came back as {seen[1]!r}"
        if difference:
            raise BenchError(f"{self.name}, {self.payload.name}, step {number}: {difference}")

    def process(self, serve: Callable[..., None], *arguments: Any) -> ServerProcess:
        """Return another process, for `serve`."""
        return ServerProcess(self.name, serve, *arguments, cores=self.cores.server)


def array_difference(sent: NDArray[Any], state: Any) -> str:
    """Describe the first difference between a sent array and a returned one; "" if equal."""
    if not isinstance(state, (np.ndarray, np.generic)):
        return f"the state came back as a {type(state).__name__}"
    if state.dtype != sent.dtype or state.shape != sent.shape:
        return f"a state of {sent.dtype} {sent.shape} came back as {state.dtype} {state.shape}"
    # Bytes, since NaN must equal NaN, and -0.0 differ from 0.0.
    both = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (sent, state))
    wrong = np.flatnonzero(np.not_equal(*both))
    return f"byte {wrong[0]} of the state differs, {wrong.size} in all" if wrong.size else ""


def _serve(report: Callable[[str], None], make: Any, url: str, options: dict[str, Any]) -> None:
    with rlwire.serve(make, url, **options) as server:
        report(server.url)
        server.wait()


_numbers = itertools.count()
_folder = functools.cache(lambda: tempfile.TemporaryDirectory(prefix="rlwire-bench-"))


class _Door(Row):
    """A row of `rlwire.serve` and `rlwire.make`, or `rlwire.connect` if environments connect."""

    scheme = "dm-env-rpc"
    options: ClassVar[dict[str, Any]] = {}  # of the server
    connect: ClassVar = staticmethod(rlwire.make)

    def served(self, over: str) -> ServerProcess:
        """Start the server; its `address` is what `client` connects to."""
        scheme = self.scheme
        if over == "tcp":
            url = f"{scheme}://127.0.0.1:{'+' if protocol(scheme).plus else ''}0"
        else:
            url = f"{scheme}+{over}://{_folder().name}/{next(_numbers)}"
        return self.process(_serve, self.makes, url, self.options)

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Exchange]:
        with self.connect(url) as client:
            yield self.exchange(client)

    def exchange(self, client: Any) -> Exchange:
        client.reset()
        return Exchange(client.step, lambda outcome: outcome[:2])

    @contextlib.contextmanager
    def opened(self, relay: Relay | None = None) -> Iterator[Exchange]:
        with self.served("tcp" if relay else self.over) as server:
            url = relay.to(server.address) if relay else server.address
            with self.client(url) as exchange:
                yield exchange._replace(server_cpu_time=server.cpu_time)


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
        frames = [
            writer.write(now, number, step.state, step.reward, False, _step_text(number))
            for number, step in enumerate(self.payload.steps)
        ]
        actions = [perlert.Action(_INSTANCE, 0, str(number)) for number in range(len(frames))]
        return Sizes(mean_size([perlert.encode(action) for action in actions]), mean_size(frames))

    def served(self, over: str) -> ServerProcess:
        return self.process(_serve_perlert, self.makes)

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
                while frame.extra != _step_text(number):  # an action sent twice takes two steps
                    frame = client.frame(ANSWER_SECONDS)
                text = frame.observation
                return perlert.text_to_array(text, state.dtype, shape=state.shape), frame.reward

            yield Exchange(ask, lambda seen: seen)


_INSTANCE, _AGENT = "bench", "agent0"
_LOBBY_SECONDS = 0.05  # between looks into the lobby, in which others may ask


def _step_text(number: int) -> str:
    return f"step:{number}"


def _serve_perlert(report: Callable[[str], None], make: Callable[[], Any]) -> None:
    from rlwire.sessions.layer import DatagramLayer
    from rlwire.sessions.perlert.server import PerlertServerSession
    from rlwire.transports import udp

    env, numbers = make(), itertools.count()
    session = PerlertServerSession(frames=1e9)
    instance = session.add_instance(_INSTANCE, 0, {_AGENT: "agent"})

    def publish(number: int, now: float) -> None:
        state, reward, *_ = env.step(number)
        shown = (state, float(reward), False, _step_text(number))
        instance.publish({_AGENT: shown}, next(numbers), int(time() * 1000), now)

    class Port(DatagramLayer):
        advance, next_deadline = session.rollout.advance, session.rollout.next_deadline
        datagrams = session.rollout.datagrams

        def receive(self, datagram: Any, peer: Any, now: float) -> list[Any]:
            session.rollout.receive(datagram, peer, now)
            for action in instance.actions().values():
                publish(int(action), now)
            return []

    lobby = udp.DatagramConnection(session.lobby, udp.bind("127.0.0.1:0"))
    rollout = udp.DatagramConnection(Port(), udp.bind("127.0.0.1:0"))
    session.rollout_port = rollout.address.port
    report(f"perlert://{lobby.address}/{_INSTANCE}")
    while instance.rollout is None:
        lobby.wait()
    publish(0, monotonic())
    while True:
        rollout.wait(_LOBBY_SECONDS)
        lobby.wait(0)


class EchoAgent:
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
        return SetState(0, {})

    def learn(self, episodes: Sequence[Any]) -> Any:
        episode = episodes[-1]
        if episode.id == "back":
            return SetState(0, {"kept": self.kept})
        self.kept = [episode.observations, float(episode.rewards[-1])]
        return SetState(0, {})


class _RLX(_Door):
    scheme = "rlx"
    makes = EchoAgent
    connect: ClassVar = staticmethod(rlwire.connect)

    def exchange(self, client: Any) -> Exchange:
        client.init()
        update, steps = client.update, self.exchanged

        def ask(number: int) -> Any:
            state, reward, terminal = steps[number]
            return update(reward, state, terminal)

        return Exchange(ask, lambda _reply: update())


class _OpenPI(_Door):
    scheme = "openpi"
    makes = EchoAgent
    connect: ClassVar = staticmethod(rlwire.connect)
    options: ClassVar = {"workers": "threads", "timing": False}

    def exchange(self, client: Any) -> Exchange:
        messages = [{"state": step.state, "reward": step.reward} for step in self.exchanged]
        return Exchange(
            lambda number: client.infer(messages[number]), lambda _reply: client.infer({})["kept"]
        )


class _RLlink(_Door):
    """A simulator sends an episode of `batch` steps, and waits for weights."""

    scheme = "rllink"
    makes = EchoAgent
    connect: ClassVar = staticmethod(rlwire.connect)

    @functools.cached_property
    def exchanged(self) -> list[BenchStep]:
        """Arrays of the observations before, between and after the steps of each episode."""
        steps, size = self.payload.steps, self.batch
        starts = range(0, len(steps), size)
        states = np.stack([steps[n % len(steps)].state for n in range(starts[-1] + size + 1)])
        last = [steps[(start + size - 1) % len(steps)] for start in starts]
        return [
            BenchStep(states[start : start + size + 1], *each[1:])
            for start, each in zip(starts, last, strict=True)
        ]

    def exchange(self, client: Any) -> Exchange:
        size = self.batch
        episodes = [
            Episode(state, np.zeros(size, np.int64), np.full(size, reward), end)
            for state, reward, end in self.exchanged
        ]
        back = Episode(np.zeros(2), np.zeros(1), np.zeros(1), id="back")
        return Exchange(
            lambda number: client.send([episodes[number]], wait=True),
            lambda _reply: client.send([back], wait=True).state["kept"],
        )


class _RLlink100(_RLlink):
    batch = 100
    turn = BATCHES


PROVIDERS: dict[str, type[Row]] = {
    "dm_env_rpc": _Door,
    "rlx": _RLX,
    "perlert": _Perlert,
    "rewarder": _Rewarder,
    "openpi": _OpenPI,
    "rllink": _RLlink,
    "rllink-100": _RLlink100,
}
"""The protocols by name, in the order of the report."""

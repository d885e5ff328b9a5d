"""PERLERT in the bench: `ServerSession` in its own process, `Client.act` to `Client.frame` timed.

An agent asks for one recorded observation after another, by a number in its action: a small request
and a larger response, as with dm_env_rpc. PERLERT's simulations keep their own time; this one steps
when an action arrives, and its server sends as many frames as there are, so that a round trip is
what there is to wait for. Nothing is sent twice: a lost datagram ends the run.

Numbers are text, of as many digits as it takes to read the same number again, so frames would
differ in size. EXTRA fills them up, and step numbers begin where they have ten digits. ``done``
would end the run, so EXTRA says what was terminal.

Not here: `PerlertServer`, which steps at a rate (``benchmarks/`` in the source tree measures that).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from time import monotonic, time
from typing import Any

from rlwire.adapters.perlert import Client, Frame
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.bench.provider import (
    ANSWER_SECONDS,
    Cores,
    Row,
    Unfit,
    array_difference,
    value_difference,
)
from rlwire.codecs import perlert
from rlwire.errors import DeadlineExceeded, LimitExceeded, RlwireError
from rlwire.limits import DEFAULT
from rlwire.sessions.perlert.lobby import Instance
from rlwire.sessions.perlert.server import ServerSession
from rlwire.transports import udp_asyncio
from rlwire.transports.interface import Buffer, Peer

__all__ = ["PerlertRow", "RecordedWorld"]

_LOOK_AGAIN = 0.5  # pause between two looks at whether it is: a datagram's loss is not told

_NAME = "bench"
_KEY = "agent0"
_FIRST_STEP = 1_000_000_000
_TELL = "tell"  # the action that asks what the last other one was
_DIGITS = 6  # of a step's number in an action

# A timestamp is milliseconds since 1970: 13 digits until 2286.
_TIMESTAMP = 1_590_853_116_323

Shown = tuple[Any, float, bool, str]
"""What `StepWriter.write` takes after the numbers: observation, reward, done, extra."""


class RecordedWorld:
    """Shows recorded steps; an action is the number of the one to show, or asks for the last."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.extras = _extras(self._steps)
        self._told = ""

    def act(self, action: str) -> Shown:
        """Return what the agent sees next."""
        if action == _TELL:
            return "", 0.0, False, f"told:{self._told}"
        self._told = action
        return self.show(int(action))

    def show(self, number: int) -> Shown:
        """Return a step."""
        step = self._steps[number]
        return step.state, step.reward, False, self.extras[number]


def _extras(steps: Sequence[Step]) -> list[str]:
    """What EXTRA says of each step: whether it was terminal, and what makes all equally long."""
    texts = [
        perlert.array_to_text(step.state) + perlert.value_to_text(step.reward) for step in steps
    ]
    widest = max(map(len, texts))
    return [
        f"terminal:{int(step.terminal)},fill:{'0' * (widest - len(text))}"
        for step, text in zip(steps, texts, strict=True)
    ]


class _StepsAtOnce:
    """The rollout port of a server whose simulation steps whenever an agent has acted."""

    def __init__(self, session: ServerSession, instance: Instance, world: RecordedWorld) -> None:
        self._port = port = session.rollout
        self._instance = instance
        self._world = world
        self._step = _FIRST_STEP
        self.closed = False  # as long as the process lives
        self.advance, self.next_deadline = port.advance, port.next_deadline
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Show the first step, as after a reset."""
        self._publish(self._world.show(0), monotonic())

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Take an action, and step; a new client's first word is none."""
        events = self._port.receive(datagram, peer, now)
        action = self._instance.actions().get(_KEY)
        if action is not None:
            try:
                self._publish(self._world.act(action[0]), now)
            except Exception as error:
                if not self.failed.done():
                    self.failed.set_exception(error)
        return events

    def datagrams(self) -> list[Any]:
        """What is to be sent."""
        return self._port.datagrams()

    def _publish(self, shown: Shown, now: float) -> None:
        self._instance.publish({_KEY: shown}, self._step, int(time() * 1000), now)
        self._step += 1


def _serve(report: Callable[[str], None], world: str, steps: list[Step]) -> None:
    asyncio.run(_step_at_once(report, resolve_name(world)(steps)))


async def _step_at_once(report: Callable[[str], None], world: RecordedWorld) -> None:
    session = ServerSession(frames=1e9)
    instance = session.add_instance(_NAME, 0, [_KEY])
    port = _StepsAtOnce(session, instance, world)
    rollout = await udp_asyncio.serve("127.0.0.1:0", port)
    session.rollout_port = rollout.address.port

    def begin() -> None:
        port.begin()
        rollout.flush()

    def react(events: list[Any]) -> None:
        if instance.rollout is not None:
            # Not now: first the client is told to start.
            asyncio.get_running_loop().call_soon(begin)

    lobby = await udp_asyncio.serve("127.0.0.1:0", session.lobby, on_events=react)
    report(str(lobby.address))
    await port.failed


class PerlertRow(Row):
    """One payload over PERLERT, shown by a `RecordedWorld`; its numbers must fit a datagram."""

    protocol = "perlert"
    datagrams = True
    asks = False
    sessions = (
        "rlwire.sessions.perlert.client:ClientSession",
        f"{__name__}:{_StepsAtOnce.__name__}",
    )
    _frame: Frame | None = None
    _seen: Any = None

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        self._steps = payload.arrays()
        shown = RecordedWorld(self._steps)
        writer = perlert.StepWriter(_NAME, 0)
        read: Callable[[bytes], Any] = perlert.StepReader(_NAME, 0).read
        state = self._steps[0].state
        self._dtype, self._shape = state.dtype, state.shape
        self._extras = shown.extras
        self._actions = [f"{number:0{_DIGITS}}" for number in range(len(self._steps))]
        self.requests = [
            perlert.encode(perlert.Action(_NAME, 0, action)) for action in self._actions
        ]
        self.encode_other = lambda: perlert.encode(perlert.Action(_NAME, 0, self._actions[0]))
        self.decode_other = lambda: perlert.decode_client_message(self.requests[0])
        self.messages = [
            (_TIMESTAMP, _FIRST_STEP, *shown.show(number)) for number in range(len(self._steps))
        ]
        self.encode = lambda message: writer.write(*message)
        self.decode = lambda frame: self._numbers(read(frame)[2])
        try:
            self.received = [self.encode(message) for message in self.messages]
        except LimitExceeded:
            raise Unfit(
                f"{state.size:,} numbers as text do not fit into a datagram of "
                f"{DEFAULT.datagram:,} bytes"
            ) from None
        self.reply_bytes = len(self.received[0])
        world = peer or f"{__name__}:{RecordedWorld.__name__}"
        self._server = ServerProcess("perlert", _serve, world, self._steps, cores=cores.server)

    def _connect(self) -> None:
        self._client = Client(self._server.address, _NAME)
        self._client.connect()
        self._client.register(_KEY, timeout=ANSWER_SECONDS)
        self._client.ready()
        self._client.wait_start(ANSWER_SECONDS)
        self._receive()

    def _exchange(self, number: int) -> str:
        self._frame = frame = self._ask(self._actions[number])
        try:
            self._seen = self._numbers(frame.observation)
        except RlwireError as error:
            raise self._mismatch(f"the observation cannot be read: {error}") from error
        return ""

    def _difference(self, number: int) -> str:
        step, frame = self._steps[number], self._frame
        assert frame is not None
        difference = (
            array_difference(step.state, self._seen)
            or value_difference("reward", step.reward, frame.reward)
            or value_difference("extra", self._extras[number], frame.extra)
        )
        if not difference:
            told = self._ask(_TELL).extra
            if told != f"told:{self._actions[number]}":
                difference = f"the server was asked for step {number} and heard {told!r}"
        return difference

    def _numbers(self, text: str | bytes) -> Any:
        return perlert.text_to_array(text, self._dtype, shape=self._shape)

    def _ask(self, action: str) -> Frame:
        client: Client = self._client
        try:
            client.act(action)
            return client.frame(_LOOK_AGAIN)
        except DeadlineExceeded:
            return self._receive()

    def _receive(self) -> Frame:
        client: Client = self._client
        deadline = monotonic() + ANSWER_SECONDS
        while True:
            try:
                return client.frame(_LOOK_AGAIN)
            except DeadlineExceeded as error:
                reason = self._server.epitaph()
                if reason is not None or monotonic() >= deadline:
                    raise BenchError(reason or str(error)) from error

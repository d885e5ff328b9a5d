"""RLX in the bench: `RLXServer` in its own process, `AgentProxy.update` timed.

Not here: other servers of RLX, and comparisons with them (``benchmarks/`` in the source tree).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlwire.adapters.relaax import AgentProxy, AgentProxyException, RLXServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.bench.provider import Cores, ServedRow, array_difference
from rlwire.codecs.rlx import Decoder, Encoder
from rlwire.sessions.rlx import Server
from rlwire.streams import FrameReader
from rlwire.transports.tcp import Timeouts

__all__ = ["RLX", "CountingAgent", "KeepingAgent", "RLXRow", "serve"]

ANSWER_SECONDS = 10.0
"""After this long a server is taken for dead."""


class CountingAgent:
    """Counts its updates, and answers with the count; keeps nothing."""

    def __init__(self, parameter_server: Any) -> None:
        self._count = 0

    def init(self, exploit: bool = False) -> bool:
        """Nothing to get ready."""
        return True

    def reset(self) -> bool:
        """Nothing to forget."""
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> Any:
        """Return the count."""
        self._count += 1
        return self._count


class KeepingAgent(CountingAgent):
    """Keeps, besides, what it was told last.

    An update without a state hands back what was kept: ``[state, reward, terminal]``.
    """

    def __init__(self, parameter_server: Any) -> None:
        super().__init__(parameter_server)
        self._kept: list[Any] | None = None

    def update(self, reward: Any, state: Any, terminal: bool) -> Any:
        """Keep a state and return the count, or return what was kept."""
        if state is None:
            kept, self._kept = self._kept, None
            return kept
        self._kept = [state, reward, terminal]
        return super().update(reward, state, terminal)


def serve(report: Callable[[str], None], agent: str, spin: float | None = None) -> None:
    """Serve `agent`, ``"module:class"``, on a free port of the loopback interface."""
    server = RLXServer(agent, "127.0.0.1:0", timeouts=Timeouts(spin=spin))
    server.start()
    report(str(server.address))
    threading.Event().wait()


class RLX:
    """The provider.

    Args:
        agent: ``"module:class"`` of the agent to serve. It must answer as `KeepingAgent` does;
            one that does not is found out, which is what the tests do.
        spin: of the `Timeouts` of both ends.
    """

    name = "rlx"

    def __init__(
        self, agent: str = f"{__name__}:{KeepingAgent.__name__}", spin: float | None = None
    ) -> None:
        self._agent = agent
        self._spin = spin

    def rows(self, payloads: Sequence[Payload], cores: Cores) -> Iterator[RLXRow]:
        """RLX carries every payload."""
        for payload in payloads:
            yield RLXRow(payload, self._agent, cores, self._spin)


class RLXRow(ServedRow):
    """One payload over RLX."""

    protocol = "rlx"
    failures = (AgentProxyException,)

    def __init__(
        self, payload: Payload, agent: str, cores: Cores, spin: float | None = None
    ) -> None:
        self.payload = payload
        self._timeouts = Timeouts(read=ANSWER_SECONDS, idle=ANSWER_SECONDS, spin=spin)
        self.messages = [
            {
                "command": "update",
                "reward": step.reward,
                "state": step.state,
                "terminal": step.terminal,
            }
            for step in payload.steps
        ]
        self.encode: Callable[[Any], bytes] = Encoder(framed=True).encode
        self.decode: Callable[[Any], Any] = Decoder(framed=True, copy=None).decode
        self.requests = [self.encode(message) for message in self.messages]
        self.received = [_receive(request) for request in self.requests]
        self.reply_bytes = len(self.encode({"response": "action", "data": 1}))
        self._server = ServerProcess("rlx", serve, agent, spin, cores=cores.server)
        self._agent: AgentProxy | None = None
        self._update: Callable[..., Any] = _not_entered

    def _connect(self) -> None:
        self._agent = AgentProxy(self._server.address, timeouts=self._timeouts)
        self._agent.connect(retry=1)
        self._agent.init()
        self._update = self._agent.update

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._agent.disconnect()

    def exchange(self, index: int) -> None:
        """One `AgentProxy.update` with a recorded step."""
        step = self._step(index)
        try:
            count = self._update(step.reward, step.state, step.terminal)
        except AgentProxyException as error:
            raise self._failed(error) from error
        self.rounds += 1
        if type(count) is not int or count != self.rounds:
            raise self._mismatch(f"the server answered {count!r}, not {self.rounds}")

    def check(self, index: int) -> None:
        """Ask for what the agent was told; compare state, reward and terminal."""
        step = self._step(index)
        try:
            kept = self._update()
        except AgentProxyException as error:
            raise self._failed(error) from error
        difference = _difference(step, kept)
        if difference:
            raise self._mismatch(difference)

    def _step(self, index: int) -> Step:
        return self.payload.steps[index % len(self.payload.steps)]


def _receive(frame: bytes) -> Any:
    """The frame where a connection has it: large ones lie so that their array is aligned."""
    reader = FrameReader(Server())
    while (whole := reader.frame()) is None:
        space = reader.room()
        part = frame[reader.partial[0] :][: len(space)]
        space[: len(part)] = part
        reader.advance(len(part))
    return whole


def _not_entered(*arguments: Any) -> Any:
    raise BenchError("enter the row first")


def _difference(step: Step, kept: Any) -> str:
    """What differs between the step that was sent and the one that came back; "" for nothing."""
    if not isinstance(kept, list) or len(kept) != 3:
        return f"[state, reward, terminal] was expected back, not a {type(kept).__name__}"
    state, reward, terminal = kept
    if isinstance(step.state, np.ndarray):
        difference = array_difference(step.state, state)
        if difference:
            return difference
    elif type(state) is not type(step.state) or state != step.state:
        return f"state {step.state!r} came back as {state!r}"
    if type(reward) is not float or reward != step.reward:
        return f"reward {step.reward!r} came back as {reward!r}"
    if terminal is not step.terminal:
        return f"terminal {step.terminal!r} came back as {terminal!r}"
    return ""

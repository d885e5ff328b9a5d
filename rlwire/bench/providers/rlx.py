"""RLX in the bench: `RLXServer` in its own process, `AgentProxy.update` timed.

Not here: other servers of RLX, and comparisons with them (``benchmarks/`` in the source tree).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlwire.adapters.relaax import AgentProxy, RLXServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.provider import ANSWER_SECONDS, Cores, Row, array_difference, value_difference
from rlwire.codecs.rlx import Decoder, Encoder
from rlwire.sessions.rlx import Server
from rlwire.streams import FrameReader
from rlwire.transports.sockets import Timeouts

__all__ = ["CountingAgent", "KeepingAgent", "RLXRow"]


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


def _server(place: str, agent: type[CountingAgent], spin: float | None) -> RLXServer:
    return RLXServer(agent, place, timeouts=Timeouts(spin=spin))


class RLXRow(Row):
    """One payload over RLX, answered by a `KeepingAgent`.

    Args:
        payload: see `Row`.
        cores: see `Row`.
        peer: see `Row`.
        spin: of the `Timeouts` of both ends.
    """

    protocol = "rlx"
    sessions = ("rlwire.sessions.rlx:Client", "rlwire.sessions.rlx:Server")
    _update: Callable[..., Any]

    def __init__(
        self,
        payload: Payload,
        cores: Cores,
        peer: str | None = None,
        *,
        spin: float | None = None,
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
        self.encode = Encoder(framed=True).encode
        self.decode = Decoder(framed=True, copy=None).decode
        self.requests = [self.encode(message) for message in self.messages]
        self.received = [_receive(request) for request in self.requests]
        other = {"response": "action", "data": 1}
        reply = self.encode(other)
        self.encode_other = lambda: self.encode(other)
        self.decode_other = lambda: self.decode(reply)
        self.reply_bytes = len(reply)
        self._serve(cores, _server, peer or KeepingAgent, spin)

    def _connect(self) -> None:
        self._client = AgentProxy(self._server.address, timeouts=self._timeouts)
        self._client.connect(retry=1)
        self._client.init()
        self._update = self._client.update

    def _disconnect(self) -> None:
        self._client.disconnect()

    def _exchange(self, number: int) -> str:
        step = self.payload.steps[number]
        answer = self._update(step.reward, step.state, step.terminal)
        count = self.rounds + 1
        if type(answer) is not int or answer != count:
            return f"the server answered {answer!r}, not {count}"
        return ""

    def _difference(self, number: int) -> str:
        """Ask for what the agent was told."""
        return _difference(self.payload.steps[number], self._update())


def _receive(frame: bytes) -> Any:
    """The frame where a connection has it: large ones lie so that their array is aligned."""
    reader = FrameReader(Server())
    while (whole := reader.frame()) is None:
        space = reader.room()
        part = frame[reader.partial[0] :][: len(space)]
        space[: len(part)] = part
        reader.advance(len(part))
    return whole


def _difference(step: Step, kept: Any) -> str:
    """What differs between the step that was sent and the one that came back; "" for nothing."""
    if not isinstance(kept, list) or len(kept) != 3:
        return f"[state, reward, terminal] was expected back, not a {type(kept).__name__}"
    state, reward, terminal = kept
    arrays = isinstance(step.state, np.ndarray)
    return (
        (array_difference(step.state, state) if arrays else "")
        or ("" if arrays else value_difference("state", step.state, state))
        or value_difference("reward", step.reward, reward)
        or value_difference("terminal", step.terminal, terminal)
    )

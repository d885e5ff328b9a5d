"""openpi's policies in the bench: `PolicyServer` in its own process, `PolicyClient.infer` timed.

An observation goes to the policy, a number comes back: a large request and a small reply, as with
RLX. The policy is called in the client's own thread (``workers="threads"``), so that the
protocol is measured and not the two changes of thread that a policy with a thread of its own costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwire.adapters.openpi import PolicyClient, PolicyServer
from rlwire.bench.payloads import Payload
from rlwire.bench.provider import ANSWER_SECONDS, Cores, Row, array_difference, value_difference
from rlwire.buffers import Block
from rlwire.codecs.msgpack import Decoder, Encoder
from rlwire.codecs.websocket import BINARY, Framer
from rlwire.transports.sockets import Timeouts

__all__ = ["KeepingPolicy", "OpenpiRow"]

_SMALL = 4096  # bytes of a message that arrives in a connection's inbox


class KeepingPolicy:
    """Counts observations, answers with the count, and keeps the last one.

    An empty observation is answered with what was kept.
    """

    def __init__(self) -> None:
        self._count = 0
        self._kept: dict[str, Any] = {}

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Keep an observation and return the count, or return what was kept."""
        if not observation:
            kept, self._kept = self._kept, {}
            return kept
        self._count += 1
        self._kept = observation
        return {"actions": float(self._count)}  # as many bytes each time


def _server(place: str, policy: type) -> PolicyServer:
    return PolicyServer(policy(), place, workers="threads", timing=False)


class OpenpiRow(Row):
    """One payload over openpi's protocol, shown to a `KeepingPolicy`."""

    protocol = "openpi"
    sessions = (
        "rlwire.sessions.websocket.opening:Client",
        "rlwire.sessions.websocket.opening:Server",
    )

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        self.messages = [
            {"state": np.asarray(step.state), "reward": step.reward, "terminal": step.terminal}
            for step in payload.steps
        ]
        self.encode = Encoder(arrays="openpi").encode
        self.decode = Decoder(copy=None).decode
        encoded = [self.encode(message) for message in self.messages]
        client = Framer(True)
        self.requests = [client.frame(BINARY, message) for message in encoded]
        self.received = [_received(message) for message in encoded]
        other = {"actions": 0.0}
        reply = self.encode(other)
        self.encode_other = lambda: self.encode(other)
        self.decode_other = lambda: self.decode(reply)
        self.reply_bytes = len(Framer(False).frame(BINARY, reply))
        self._serve(cores, _server, peer or KeepingPolicy)

    def _connect(self) -> None:
        timeouts = Timeouts(read=ANSWER_SECONDS, idle=ANSWER_SECONDS)
        self._client = PolicyClient(self._server.address, timeouts=timeouts, reconnect=False)

    def _exchange(self, number: int) -> str:
        action = self._client.infer(self.messages[number])
        count = self.rounds + 1
        if action != {"actions": float(count)}:
            return f"the policy answered {action!r:.200}, not {count}"
        return ""

    def _difference(self, number: int) -> str:
        """Ask for what the policy saw."""
        message = self.messages[number]
        kept = self._client.infer({})
        if kept.keys() != message.keys():
            return f"the policy saw {list(kept)}, not {list(message)}"
        return (
            array_difference(message["state"], kept["state"])
            or value_difference("reward", message["reward"], kept["reward"])
            or value_difference("terminal", message["terminal"], kept["terminal"])
        )


def _received(message: bytes) -> Any:
    """The message where a server has it: a large one begins at a border of 64 bytes."""
    if len(message) <= _SMALL:
        return message
    block = memoryview(Block(len(message)))
    block[:] = message
    return block

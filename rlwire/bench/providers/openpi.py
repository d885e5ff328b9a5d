"""openpi's policies in the bench: `PolicyServer` in its own process, `PolicyClient.infer` timed.

An observation goes to the policy, a number comes back: a large request and a small reply, as with
RLX. The policy is called on the server's event loop (``workers=0``), so that the protocol is
measured and not the two changes of thread that a policy with a thread of its own costs.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlwire.adapters.openpi import PolicyClient, PolicyServer
from rlwire.bench.payloads import Payload
from rlwire.bench.processes import ServerProcess
from rlwire.bench.provider import Cores, ServedRow, array_difference
from rlwire.buffers import Block
from rlwire.codecs.msgpack import Decoder, Encoder
from rlwire.codecs.websocket import BINARY, Framer
from rlwire.transports.sockets import Timeouts

__all__ = ["KeepingPolicy", "Openpi", "OpenpiRow", "serve"]

ANSWER_SECONDS = 10.0
"""After this long a server is taken for dead."""

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


def serve(report: Callable[[str], None], policy: str) -> None:
    """Serve a policy of the class `policy`, ``"module:class"``, on a free loopback port."""
    module, _, name = policy.partition(":")
    made = getattr(importlib.import_module(module), name)()
    server = PolicyServer(made, "127.0.0.1:0", workers=0, timing=False)
    server.start()
    report(str(server.address))
    threading.Event().wait()


class Openpi:
    """The provider.

    Args:
        policy: ``"module:class"`` of the policy to serve. It must answer as `KeepingPolicy` does;
            one that does not is found out, which is what the tests do.
    """

    name = "openpi"

    def __init__(self, policy: str = f"{__name__}:{KeepingPolicy.__name__}") -> None:
        self._policy = policy

    def rows(self, payloads: Sequence[Payload], cores: Cores) -> Iterator[OpenpiRow]:
        """Msgpack carries every payload."""
        for payload in payloads:
            yield OpenpiRow(payload, self._policy, cores)


class OpenpiRow(ServedRow):
    """One payload over openpi's protocol."""

    protocol = "openpi"

    def __init__(self, payload: Payload, policy: str, cores: Cores) -> None:
        self.payload = payload
        self.messages = [
            {"state": np.asarray(step.state), "reward": step.reward, "terminal": step.terminal}
            for step in payload.steps
        ]
        self.encode: Callable[[Any], bytes] = Encoder(arrays="openpi").encode
        self.decode: Callable[[Any], Any] = Decoder(copy=None).decode
        encoded = [self.encode(message) for message in self.messages]
        client = Framer(True)
        self.requests = [client.frame(BINARY, message) for message in encoded]
        self.received = [_received(message) for message in encoded]
        reply = self.encode({"actions": 0.0})
        self.reply_bytes = len(Framer(False).frame(BINARY, reply))
        self._server = ServerProcess(self.protocol, serve, policy, cores=cores.server)
        self._client: PolicyClient | None = None

    def _connect(self) -> None:
        timeouts = Timeouts(read=ANSWER_SECONDS, idle=ANSWER_SECONDS)
        self._client = PolicyClient(self._server.address, timeouts=timeouts, reconnect=False)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()

    def exchange(self, index: int) -> None:
        """One `PolicyClient.infer` with a recorded step."""
        action = self._infer(self._message(index))
        self.rounds += 1
        if action != {"actions": float(self.rounds)}:
            raise self._mismatch(f"the policy answered {action!r:.200}, not {self.rounds}")

    def check(self, index: int) -> None:
        """Ask for what the policy saw, and compare all of it."""
        message = self._message(index)
        kept = self._infer({})
        if kept.keys() != message.keys():
            raise self._mismatch(f"the policy saw {list(kept)}, not {list(message)}")
        difference = array_difference(message["state"], kept["state"])
        for name in ("reward", "terminal"):
            if type(kept[name]) is not type(message[name]) or kept[name] != message[name]:
                difference = difference or f"{name} {message[name]!r} came back as {kept[name]!r}"
        if difference:
            raise self._mismatch(difference)

    def _infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        assert self._client is not None, "enter the row first"
        try:
            return self._client.infer(observation)
        except self.failures as error:
            raise self._failed(error) from error

    def _message(self, index: int) -> dict[str, Any]:
        return self.messages[index % len(self.messages)]


def _received(message: bytes) -> Any:
    """The message where a server has it: a large one begins at a border of 64 bytes."""
    if len(message) <= _SMALL:
        return message
    block = memoryview(Block(len(message)))
    block[:] = message
    return block

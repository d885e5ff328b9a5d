"""The rewarder protocol in the bench: `RewarderServer` in its own process, `act` to `step` timed.

An agent asks for one recorded observation after another, by a number in its action, and the server
pushes it at once: a small request and a larger response, as with dm_env_rpc. The client is
`RewarderClient`; `benchmarks/bench_rewarder_step.py` has the asyncio one beside it.

Numbers are text, and so is the time that each message carries, so messages differ in size by some
bytes; the raw exchange has the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlwire.adapters.rewarder import ClientSettings, RewarderClient, RewarderServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.provider import ANSWER_SECONDS, Cores, Row, Unfit, array_difference
from rlwire.codecs import rewarder
from rlwire.codecs.websocket import TEXT, Framer
from rlwire.errors import DeadlineExceeded, LimitExceeded

__all__ = ["RecordedRewards", "RewarderRow"]

_TELL = "Tell"  # the event that asks which number the server heard last
_SHOW = "Show"
_DIGITS = 6
_SENT_AT = 1_479_493_678.193_732_2
_NUMBER = 100_000  # a message id of as many digits as most


class RecordedRewards:
    """Shows recorded steps to who asks for them by number."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._told = ""
        self.server: RewarderServer | None = None

    def act(self, action: rewarder.AgentAction) -> None:
        """Push what the agent asks for."""
        assert self.server is not None
        ((name, number),) = action.action
        if name == _TELL:
            self.server.text(self._told)
            return
        self._told = number
        self.server.observation(self.show(int(number)))

    def show(self, number: int) -> Any:
        """Return an observation."""
        return self._steps[number].state


def _server(place: str, world: type[RecordedRewards], steps: list[Step]) -> Any:
    shown = world(steps)
    shown.server = RewarderServer(
        "bench", place, on_action=shown.act, ping_interval=None, backlog=1 << 26
    )
    return shown.server


class RewarderRow(Row):
    """One payload over the rewarder protocol, pushed by `RecordedRewards`."""

    protocol = "rewarder"
    sessions = (
        "rlwire.sessions.websocket.opening:Client",
        "rlwire.sessions.websocket.opening:Server",
    )
    asks = False
    _seen: Any = None

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        steps = payload.arrays()
        self._states = [step.state for step in steps]
        self._actions = [[(_SHOW, f"{number:0{_DIGITS}}")] for number in range(len(self._states))]
        client = Framer(True, "text")
        asked = rewarder.AgentAction(self._actions[0])
        other = self._write(asked)
        self.encode_other = lambda: self._write(asked)
        self.decode_other = lambda: rewarder.decode(other)
        self.requests = [
            b"".join(client.message(self._write(rewarder.AgentAction(action))))
            for action in self._actions
        ]
        self.messages = [rewarder.EnvObservation(state, episode_id="1") for state in self._states]
        self.encode = self._write
        self.decode = rewarder.decode
        try:
            self.received = [self.encode(message) for message in self.messages]
        except LimitExceeded as error:
            raise Unfit(str(error)) from None
        longest = max(self.received, key=len)
        self.reply_bytes = len(Framer(False).frame(TEXT, longest))
        self._serve(cores, _server, peer or RecordedRewards, steps)

    @staticmethod
    def _write(message: rewarder.Message) -> bytes:
        return rewarder.encode(message, sent_at=_SENT_AT, message_id=_NUMBER)

    def _connect(self) -> None:
        self._client = RewarderClient(
            self._server.address, attach=True, session_settings=ClientSettings(ping_interval=None)
        )
        self._client.connect()
        self._client.ping(ANSWER_SECONDS)  # those of the beginning are no exchange

    def _exchange(self, number: int) -> str:
        self._seen = self._ask(self._actions[number]).observation
        return ""

    def _difference(self, number: int) -> str:
        state = self._states[number]
        seen = self._seen
        if isinstance(seen, np.ndarray):
            seen = seen.astype(state.dtype)
        difference = array_difference(state, seen)
        if not difference:
            told = self._ask([(_TELL, 0)]).texts
            if told != (self._actions[number][0][1],):
                difference = f"the server was asked for step {number} and heard {told!r}"
        return difference

    def _ask(self, action: Any) -> Any:
        self._client.act(action)
        step = self._client.step(ANSWER_SECONDS)
        if not (step.observations or step.texts):
            raise DeadlineExceeded(f"no answer within {ANSWER_SECONDS:g} s")
        return step

"""The rewarder protocol in the bench: `RewarderServer` in its own process, `act` to `step` timed.

An agent asks for one recorded observation after another, by a number in its action, and the server
pushes it at once: a small request and a larger response, as with dm_env_rpc. The client is
`AsyncRewarderClient` in a task that goes on from one exchange to the next; its loop runs during
each of them.

Numbers are text, and so is the time that each message carries, so messages differ in size by some
bytes; the raw exchange has the largest.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlwire.adapters.rewarder import AsyncRewarderClient, ClientSettings, RewarderServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.bench.provider import Cores, LeftOut, ServedRow, array_difference
from rlwire.codecs import rewarder
from rlwire.codecs.websocket import TEXT, Framer
from rlwire.errors import LimitExceeded
from rlwire.transports.turn import Turn

__all__ = ["RecordedRewards", "Rewarder", "RewarderRow", "serve"]

ANSWER_SECONDS = 10.0
"""After this long a server is taken for dead."""

_TELL = "Tell"  # the event that asks which number the server heard last
_SHOW = "Show"
_DIGITS = 6
_SENT_AT = 1_479_493_678.193_732_2
_NUMBER = 100_000  # a message id of as many digits as most


class RecordedRewards:
    """Shows recorded steps to who asks for them by number."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = [np.asarray(step.state) for step in steps]
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
        return self._steps[number]


def serve(report: Callable[[str], None], world: str, steps: list[Step]) -> None:
    """Serve a world of the class `world`, ``"module:class"``, on a free loopback port."""
    module, _, name = world.partition(":")
    shown = getattr(importlib.import_module(module), name)(steps)
    shown.server = server = RewarderServer(
        "bench", "127.0.0.1:0", on_action=shown.act, ping_interval=None, backlog=1 << 26
    )
    server.start()
    report(str(server.address))
    threading.Event().wait()


class Rewarder:
    """The provider.

    Args:
        world: ``"module:class"`` of the world to serve. It must answer as `RecordedRewards` does;
            one that does not is found out, which is what the tests do.
    """

    name = "rewarder"

    def __init__(self, world: str = f"{__name__}:{RecordedRewards.__name__}") -> None:
        self._world = world

    def rows(self, payloads: Sequence[Payload], cores: Cores) -> Iterator[RewarderRow | LeftOut]:
        """JSON carries every payload, within the limits."""
        for payload in payloads:
            try:
                yield RewarderRow(payload, self._world, cores)
            except LimitExceeded as error:
                yield LeftOut(self.name, payload, str(error))


class _Player:
    """An agent's task, which plays one exchange each time it is asked to.

    Args:
        where: the server.
    """

    def __init__(self, where: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncRewarderClient(
            where, attach=True, settings=ClientSettings(ping_interval=None)
        )
        self._turn = Turn(self._loop)
        self._action: Any = None
        self._seen: Any = None
        self._task = self._loop.create_task(self._play())
        self._loop.run_forever()

    async def _play(self) -> None:
        turn = self._turn
        try:
            async with self._client as client:
                await client.ping(ANSWER_SECONDS)  # those of the beginning are no exchange
                while True:
                    self._loop.stop()
                    await turn.begin()
                    client.act(self._action)
                    self._seen = await client.step(ANSWER_SECONDS)
        finally:
            self._loop.stop()

    def play(self, action: Any) -> Any:
        """Return the step that follows an action."""
        self._action = action
        self._loop.call_soon(self._turn.resume, None)
        self._loop.run_forever()
        self.check()
        return self._seen

    def check(self) -> None:
        """Raise what the task ended with, if it did."""
        if self._task.done():
            self._task.result()

    def close(self) -> None:
        """End the task, and its loop."""
        loop = self._loop
        if self._task.cancel():
            loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class RewarderRow(ServedRow):
    """One payload over the rewarder protocol.

    Raises:
        LimitExceeded: it is too large for a message.
    """

    protocol = "rewarder"

    def __init__(self, payload: Payload, world: str, cores: Cores) -> None:
        self.payload = payload
        self._states = [np.asarray(step.state) for step in payload.steps]
        self._actions = [[(_SHOW, f"{number:0{_DIGITS}}")] for number in range(len(self._states))]
        client = Framer(True, "text")
        self.requests = [
            b"".join(client.message(self._write(rewarder.AgentAction(action))))
            for action in self._actions
        ]
        self.messages = [rewarder.EnvObservation(state, episode_id="1") for state in self._states]
        self.encode: Callable[[Any], bytes] = self._write
        self.decode: Callable[[Any], Any] = rewarder.decode
        self.received = [self.encode(message) for message in self.messages]
        longest = max(self.received, key=len)
        self.reply_bytes = len(Framer(False).frame(TEXT, longest))
        self._seen: Any = None
        self._server = ServerProcess(self.protocol, serve, world, payload.steps, cores=cores.server)
        self._player: _Player | None = None

    @staticmethod
    def _write(message: rewarder.Message) -> bytes:
        return rewarder.encode(message, sent_at=_SENT_AT, message_id=_NUMBER)

    def _connect(self) -> None:
        self._player = _Player(self._server.address)
        self._player.check()

    def _disconnect(self) -> None:
        if self._player is not None:
            self._player.close()

    def exchange(self, index: int) -> None:
        """One action, and the observation that is pushed then."""
        self._seen = self._ask(self._actions[index % len(self._actions)]).observation
        self.rounds += 1

    def check(self, index: int) -> None:
        """Compare what was shown with what was recorded, and ask which number the server heard."""
        number = index % len(self._states)
        state = self._states[number]
        seen = self._seen
        if isinstance(seen, np.ndarray):
            seen = seen.astype(state.dtype)
        difference = array_difference(state, seen)
        if not difference:
            told = self._ask([(_TELL, 0)]).texts
            if told != (self._actions[number][0][1],):
                difference = f"the server was asked for step {number} and heard {told!r}"
        if difference:
            raise self._mismatch(difference)

    def _ask(self, action: Any) -> Any:
        assert self._player is not None, "enter the row first"
        try:
            step = self._player.play(action)
        except self.failures as error:
            raise self._failed(error) from error
        if not (step.observations or step.texts):
            reason = self._server.epitaph()
            raise BenchError(reason or f"no answer within {ANSWER_SECONDS:g} s")
        return step

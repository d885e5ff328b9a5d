"""RLlink in the bench: a `LearnerServer` in its own process, `RLlinkClient.send` timed.

The observation is an episode: its first axis is the steps', so that as many bytes go over as with
other protocols, in one array. The answer are weights without anything in them, from a learner
that learns nothing, in the thread where others would learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwire.adapters.rllink import Episode, RLlinkClient, SetState
from rlwire.adapters.rllink.learning import LearnerServer
from rlwire.bench.payloads import Payload
from rlwire.bench.provider import (
    ANSWER_SECONDS,
    Cores,
    Row,
    Unfit,
    array_difference,
    value_difference,
)
from rlwire.codecs.rllink import Codec, EpisodesAndGetState
from rlwire.transports.sockets import Timeouts

__all__ = ["KeepingLearner", "RLlinkRow"]


class KeepingLearner:
    """Counts batches, answers with the count as the weights' number, and keeps the last episode.

    An episode that is called ``"back"`` is answered with what was kept.
    """

    def __init__(self) -> None:
        self._count = 0
        self._kept: dict[str, Any] = {}

    def get_state(self) -> SetState:
        """Return weights without anything in them."""
        return SetState(self._count, {})

    def learn(self, episodes: list[Episode]) -> SetState:
        """Keep an episode and count it, or return what was kept."""
        episode = episodes[-1]
        if episode.id == "back":
            kept, self._kept = self._kept, {}
            return SetState(self._count, kept)
        self._count += 1
        self._kept = {
            "state": episode.observations,
            "reward": float(episode.rewards[-1]),
            "terminal": episode.terminated,
        }
        return SetState(self._count, {})


def _server(place: str, learner: type) -> LearnerServer:
    return LearnerServer(learner(), place)


class RLlinkRow(Row):
    """One payload over RLlink, learnt by a `KeepingLearner`."""

    protocol = "rllink"
    sessions = ("rlwire.sessions.rllink:Client", "rlwire.sessions.rllink:Server")

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        self._episodes = [
            _episode(np.asarray(step.state), step.reward, step.terminal) for step in payload.steps
        ]
        codec = Codec()
        self.messages = self._episodes
        self.encode = lambda episode: codec.encode(
            EpisodesAndGetState([episode.to_state(empty_infos=False)], len(episode), 1)
        )
        self.decode = lambda frame: Episode.from_state(codec.decode(frame).episodes[0])  # type: ignore[union-attr]
        self.requests = [self.encode(episode) for episode in self._episodes]
        self.received = [bytearray(request) for request in self.requests]
        other = SetState(1, {})
        reply = codec.encode(other)
        self.encode_other = lambda: codec.encode(other)
        self.decode_other = lambda: codec.decode(reply)
        self.reply_bytes = len(reply)
        self._serve(cores, _server, peer or KeepingLearner)

    def _connect(self) -> None:
        timeouts = Timeouts(read=ANSWER_SECONDS, idle=ANSWER_SECONDS)
        self._client = RLlinkClient(self._server.address, timeouts=timeouts)
        self._client.connect()

    def _exchange(self, number: int) -> str:
        weights = self._client.send([self._episodes[number]], wait=True)
        count = self.rounds + 1
        if weights is None or (weights.weights_seq_no, weights.state) != (count, {}):
            return f"the learner answered {weights!r:.200}, not weights {count}"
        return ""

    def _difference(self, number: int) -> str:
        """Ask for what the learner saw."""
        episode, step = self._episodes[number], self.payload.steps[number]
        back = Episode(np.zeros(2), np.zeros(1), np.zeros(1), id="back")
        kept = self._client.send([back], wait=True).state
        if kept.keys() != {"state", "reward", "terminal"}:
            return f"the learner saw {list(kept)}, not an episode"
        return (
            array_difference(episode.observations, kept["state"])
            or value_difference("reward", float(step.reward), kept["reward"])
            or value_difference("terminal", bool(step.terminal), kept["terminal"])
        )


def _episode(state: Any, reward: float, terminal: bool) -> Episode:
    if state.ndim == 0 or len(state) < 2:
        raise Unfit(f"RLlink carries episodes of one step or more, not {state.shape}")
    steps = len(state) - 1
    return Episode(state, np.zeros(steps, np.int64), np.full(steps, reward), bool(terminal))

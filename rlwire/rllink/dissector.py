"""The dissector of RLlink."""

from __future__ import annotations

from typing import Any

from rlwire.codecs.rllink import Codec, Episode, Episodes, Ping, frame_size
from rlwire.codecs.rllink.messages import NAMES
from rlwire.limits import Limits
from rlwire.recording.dissecting import FAULTS, Dissector, RequestPairs, plain
from rlwire.recording.messages import Dissected, EnvStep
from rlwire.sessions.rllink import REPLIES

_STEP = 1024  # bytes that the steps of one time step may take


class RLlinkDissector(Dissector):
    """Dissects RLlink in both forms.

    The steps of an episode have its ID as their environment, in RLlib's documented form "". Those
    that would take more memory than ``limits.expanded`` are left out.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._codec = Codec(limits=self.limits, copy=True)
        self._pairs = RequestPairs()

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        return frame_size(data, 0, len(data), self.received, "received")

    def decode(self, frame: bytes, from_client: bool, layer: Any) -> Dissected:
        message = self._codec.decode(frame)
        found = Dissected(NAMES[type(message)], plain(message))
        if isinstance(message, Ping) and message.token is not None:
            found.value["token"] = "(secret)"
        self._pairs.pair(found, from_client, REPLIES.get(type(message)) is not None)
        if isinstance(message, Episodes):
            room = self.limits.expanded // _STEP
            for given in message.episodes:
                found.steps += self._steps(given, room - len(found.steps) // 2)
        return found

    def _steps(self, given: Any, room: int) -> list[EnvStep]:
        try:
            document = "obs" in given
            episode = Episode.from_document(given) if document else Episode.from_state(given)
            if len(episode) > room:
                return []
            return list(_unrolled(episode, "" if document else episode.id))
        except FAULTS:  # another program's columns
            return []


def _unrolled(episode: Episode, name: str) -> Any:
    first, end = episode.lookback, len(episode.rewards)
    if not episode.started:
        yield EnvStep(name, True)
    for index in range(first, end):
        yield EnvStep(name, has_action=True)
        last = index == end - 1
        yield EnvStep(
            name,
            has_observation=True,
            reward=float(episode.rewards[index]),
            terminated=last and episode.terminated,
            truncated=last and episode.truncated,
        )

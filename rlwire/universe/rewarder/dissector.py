"""The dissector of Universe's rewarder."""

from __future__ import annotations

from typing import Any

from rlwire.codecs import rewarder
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from rlwire.recording.dissecting import WebSocketDissector, plain
from rlwire.recording.messages import Dissected, EnvStep
from rlwire.universe.rewarder.environment import pop_flags

_FIELDS = ("reward", "done", "info", "action")  # of binary messages, beside the observation


class RewarderDissector(WebSocketDissector):
    """Dissects the rewarder's JSON. A value is the text's object, with an array as observation.

    An observation within an episode is in the `EnvStep` of the reward that follows it.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._episode: Any = object()  # which equals no ID
        self._seen = False

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        # Both need msgspec, as the codec does.
        from rlwire.codecs import _json

        if not (layer or rewarder.is_binary(message)):
            raise DecodeError("expected a text message, got a binary one")
        read = rewarder.decode(message, limits=self.limits)
        if layer:
            value = _json.decode(message, self.limits)
        else:  # JSON has no form for some values, and a large one for arrays
            own = (name for name in _FIELDS if hasattr(read, name))
            heads = {name: getattr(read, name) for name in ("sent_at", "message_id", "episode_id")}
            body = {name: plain(getattr(read, name)) for name in own}
            value = {"method": read.method, "headers": heads, "body": body}
        if isinstance(read, (rewarder.EnvObservation, rewarder.EnvStep)):
            value["body"]["observation"] = plain(read.observation)
        found = Dissected(read.method, value, steps=self._steps(read))
        if isinstance(read, (rewarder.EnvReset, rewarder.ControlPing)):
            found.request_key = from_client, read.message_id
        if read.parent_message_id is not None:
            found.reply_key = not from_client, read.parent_message_id
        return found

    def _steps(self, read: rewarder.RewarderMessage) -> list[EnvStep]:
        if isinstance(read, rewarder.AgentAction):
            return [EnvStep(has_action=True)]
        if not isinstance(read, (rewarder.EnvObservation, rewarder.EnvReward)):
            return []
        begins, self._episode = read.episode_id != self._episode, read.episode_id
        if isinstance(read, rewarder.EnvObservation):
            self._seen = not begins
            return [EnvStep(begins=True)] if begins else []
        seen, self._seen = self._seen or isinstance(read, rewarder.EnvStep), False
        step = EnvStep(has_observation=seen and not begins, reward=float(read.reward))
        step.terminated, step.truncated = (
            pop_flags(dict(read.info), False) if read.done else (False, False)
        )
        return [EnvStep(begins=True), step] if begins else [step]

"""The dissector of openpi."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwire.codecs.msgpack import Decoder
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from rlwire.openpi.environment import ABOUT
from rlwire.recording.dissecting import RequestPairs, WebSocketDissector, plain
from rlwire.recording.messages import Dissected, EnvStep


class OpenPIDissector(WebSocketDissector):
    """Dissects openpi: metadata, then an action or an error for each observation.

    Episodes end where `rlwire.play` says so; other clients have one.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._decoder = Decoder(arrays="bytes", limits=self.limits)
        self._pairs = RequestPairs()
        self._begins = True

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        if layer and from_client:
            raise DecodeError("expected an observation as a binary message, got a text message")
        found = self._pairs.pair(Dissected("observation"), from_client)
        if not from_client:
            found.kind = "error" if layer else "action" if found.reply_key else "metadata"
        value = message.decode("utf-8", "replace") if layer else self._decoder.decode(message)
        found.value = plain(value)
        if type(found.value) is dict and found.kind != "metadata":
            found.steps = self._steps(found.value, from_client)
        return found

    def _steps(self, given: dict[str, Any], from_client: bool) -> list[EnvStep]:
        if not from_client:
            actions = given.get("actions")
            if self._begins or not isinstance(actions, np.ndarray) or not actions.ndim:
                return []  # also the reply to the last observation, which is no action
            return [EnvStep(has_action=True)]
        step = EnvStep("", self._begins, has_observation=True)
        if not self._begins:
            step.reward = given.get("reward")
        step.terminated, step.truncated = (given.get(name) is True for name in ABOUT[1:])
        self._begins = step.terminated or step.truncated
        return [step]

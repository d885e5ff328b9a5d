"""Dissectors of RLX and of RLX for pages."""

from __future__ import annotations

from typing import Any

from rlwire.codecs import rlx
from rlwire.errors import DecodeError, optional
from rlwire.limits import Limits
from rlwire.recording import dissecting
from rlwire.recording.messages import Dissected, EnvStep


class _Environment:
    """One environment's commands and the replies, one at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pairs = dissecting.RequestPairs(name)
        self._begins = True

    def message(self, message: dict[str, Any], from_client: bool) -> Dissected:
        kind = message.get("command" if from_client else "response")
        kind = kind if isinstance(kind, str) else "message"
        found = Dissected(kind, message)
        self._pairs.pair(found, from_client, kind != "disconnect")  # of a page, without a reply
        if from_client and kind in ("init", "reset", "disconnect"):
            self._begins = True
        elif from_client and kind == "update":
            found.steps = [self._update(message)]
        elif not (from_client or self._begins) and kind == "action" and "data" in message:
            # The reply to a terminal update is no action.
            found.steps = [EnvStep(self._name, has_action=True)]
        return found

    def _update(self, message: dict[str, Any]) -> EnvStep:
        state, reward, terminal = map(message.get, ("state", "reward", "terminal"))
        over = isinstance(terminal, int) and terminal != 0
        begins, self._begins = self._begins or (reward is None and not over), over
        step = EnvStep(self._name, begins, has_observation=state is not None)
        if not begins:
            step.reward = 0.0 if reward is None else reward
            step.truncated = over and message.get("truncated") is True
            step.terminated = over and message.get("terminated", not step.truncated) is True
        return step


class RLXDissector(dissecting.Dissector):
    """Dissects RLX: images are arrays."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._environment = _Environment("")
        self._decoder = rlx.RLXDecoder(framed=True, limits=self.limits)

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        return rlx.frame_size(data, 0, len(data), self.received)

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        return self._environment.message(self._decoder.decode(message), from_client)


class RLXPageDissector(dissecting.WebSocketDissector):
    """Dissects RLX for pages; lists of numbers are arrays."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        with optional("msgspec", "gym"):
            from rlwire.codecs import _json
        self._json = _json
        self._known = dissecting.Remembered(_Environment)

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        value = self._json.arrays_of(self._json.decode(message, self.limits))
        if type(value) is not dict or not isinstance(value.get("sid"), (int, str)):
            raise DecodeError("expected an object with a sid, an integer or a string")
        known: _Environment = self._known[str(value["sid"])]
        return known.message(value, from_client)

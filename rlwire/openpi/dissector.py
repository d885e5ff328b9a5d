"""The dissector of openpi."""

from __future__ import annotations

from typing import Any

from rlwire.codecs.msgpack import Decoder
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from rlwire.recording.dissecting import Turns, WebSocketDissector, plain
from rlwire.recording.messages import Dissected


class OpenPIDissector(WebSocketDissector):
    """Dissects openpi: metadata, then an action or an error for each observation."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._decoder = Decoder(arrays="bytes", limits=self.limits)
        self._turns = Turns()

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        if layer and from_client:
            raise DecodeError("expected an observation as a binary message, got a text message")
        found = self._turns.pair(Dissected("observation"), from_client)
        if not from_client:
            found.kind = "error" if layer else "action" if found.answers else "metadata"
        value = message.decode("utf-8", "replace") if layer else self._decoder.decode(message)
        found.value = plain(value)
        return found

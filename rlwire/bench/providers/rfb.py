"""RFB in the bench: `RfbServer` in its own process, a frame asked for by a key and waited for.

A key's number says which recorded picture the display is to show, and the next update brings what
changed, in one encoding; one row each. Pictures that equal the one before are left out, as no
update would come for them. How many bytes an update has depends on what changed, so the raw
exchange has those of the whole picture, and one may be quicker than it.

Not here: decoding by itself, and other decoders (``benchmarks/bench_rfb_decode.py`` in the source
tree).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlwire.adapters.rfb.client import RfbClient
from rlwire.adapters.rfb.server import Display, RfbServer
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.provider import ANSWER_SECONDS, Cores, Row, Unfit, array_difference
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.messages import KeyEvent, encode
from rlwire.transports.sockets import Timeouts

__all__ = ["HextileRow", "RawRow", "RecordedDisplay", "TightRow", "ZrleRow"]

_FIRST = 0x1000000  # keysyms from here on stand for characters by their number


class RecordedDisplay:
    """Shows a recorded picture for each key."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._frames = [step.state for step in steps]
        height, width, _ = self._frames[0].shape
        self.display = Display(width, height, on_input=self._take)

    def _take(self, viewer: Any, event: Any) -> None:
        if isinstance(event, KeyEvent) and event.down:
            self.display.show(self.frame(event.keysym - _FIRST))

    def frame(self, number: int) -> Any:
        """Return a picture."""
        return self._frames[number]


def _server(place: str, shown: type[RecordedDisplay], steps: list[Step]) -> RfbServer:
    return RfbServer(shown(steps).display, place)


class _RfbRow(Row):
    asks = False
    has_codec = False
    sessions = (
        "rlwire.sessions.rfb.client:ClientSession",
        "rlwire.sessions.rfb.server:ServerSession",
    )
    encoding: ClassVar[Encoding]

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        self.payload = payload
        steps = payload.arrays()
        first = steps[0].state
        if first.ndim != 3 or first.shape[2] != 3 or first.dtype != np.uint8:
            raise Unfit(f"RFB carries pictures, (H, W, 3) uint8, not {first.shape} {first.dtype}")
        before = (steps[-1], *steps)
        kept = [
            step
            for step, last in zip(steps, before, strict=False)
            if not np.array_equal(step.state, last.state)
        ]
        if len(kept) < 2:
            raise Unfit("RFB carries what changes, and these pictures are all the same")
        self.messages = [step.state for step in kept]
        self.requests = [encode(KeyEvent(_FIRST + number, True)) for number in range(len(kept))]
        self.reply_bytes = first.nbytes
        self._serve(cores, _server, peer or RecordedDisplay, kept)

    def _connect(self) -> None:
        self._client = RfbClient(
            self._server.address,
            encodings=(self.encoding,),
            timeouts=Timeouts(read=ANSWER_SECONDS, idle=None),
        )
        self._client.connect()
        self._client.update(ANSWER_SECONDS)  # the black of the beginning

    def _exchange(self, number: int) -> str:
        self._client.key(_FIRST + number, True)
        self._client.update(ANSWER_SECONDS)
        return ""

    def _difference(self, number: int) -> str:
        return array_difference(self.messages[number], self._client.snapshot())


class RawRow(_RfbRow):
    """Pixels as they are."""

    protocol = "rfb-raw"
    encoding = Encoding.RAW


class HextileRow(_RfbRow):
    """Tiles of 16x16 with what is on one colour."""

    protocol = "rfb-hextile"
    encoding = Encoding.HEXTILE


class ZrleRow(_RfbRow):
    """Tiles of 64x64, palettes and runs, by zlib."""

    protocol = "rfb-zrle"
    encoding = Encoding.ZRLE


class TightRow(_RfbRow):
    """Palettes and pixels by zlib, without JPEG."""

    protocol = "rfb-tight"
    encoding = Encoding.TIGHT

"""The dissector of PERLERT's datagrams: of the lobby, of the rollout, or of both."""

from __future__ import annotations

import contextlib
from typing import Any

from rlwire.codecs import perlert
from rlwire.limits import Limits
from rlwire.perlert.environment import flags_of
from rlwire.perlert.spaces import SpaceDescription, SpaceText
from rlwire.recording.dissecting import FAULTS, BytesDissector, plain
from rlwire.recording.messages import Dissected, EnvStep

_LOBBY = perlert.LobbyRequest, perlert.Ready, perlert.LobbyInformation
_REGISTER = perlert.Register, perlert.Registered


class PerlertDissector(BytesDissector):
    """Without spaces from the lobby, a text of numbers becomes an array, and a mapping a dict.

    An action is a step of the frames after it, not of its own datagrams: these are resent.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._told = SpaceDescription()
        self._texts: tuple[SpaceText | None, SpaceText | None] = None, None
        self._acted = False
        self._newest = (-1, -1)  # step number and timestamp
        self._over = True

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        decode = perlert.decode_client_message if from_client else perlert.decode_server_message
        read: Any = decode(message, limits=self.limits)
        value = plain(read._asdict() if hasattr(read, "_asdict") else read)
        found = Dissected(type(read).__name__, value)
        if isinstance(read, (*_LOBBY, *_REGISTER)):
            found.paired("lobby" if isinstance(read, _LOBBY) else "register", from_client)
        elif isinstance(read, perlert.Action):
            value["action"] = self._read(self._texts[1], read.action)
            self._acted = True
        elif isinstance(read, perlert.RolloutStep):
            found.steps = self._steps(read, value)
        elif isinstance(read, perlert.LobbyMessage) and self._told.add(read.text):
            self._learn()
        for step in found.steps:
            step.environment = f"{read.name}:{read.number}"
        return found

    def _read(self, space: SpaceText | None, text: str) -> Any:
        try:
            if space is not None:
                return space.from_text(text)
            named = text if ":" in text else f"v:{text}"
            found = perlert.text_to_mapping(named, limits=self.limits)
            return found if named is text else found["v"]
        except FAULTS:
            return text

    def _learn(self) -> None:
        with contextlib.suppress(*FAULTS, ImportError):  # such as a space without texts
            spaces = self._told.spaces(self.limits)
            if spaces is not None:
                seen, done, _ = spaces
                texts = SpaceText(seen, "it", named=True, limits=self.limits)
                self._texts = texts, SpaceText(done, "it", named=False, limits=self.limits)

    def _steps(self, frame: perlert.RolloutStep, value: dict[str, Any]) -> list[EnvStep]:
        value["observation"] = self._read(self._texts[0], frame.observation)
        if frame.extra is not None:
            value["extra"] = self._read(None, frame.extra)
        # As in the session: within a rollout the order is that of (step, timestamp).
        order, (step, timestamp) = (frame.step, frame.timestamp), self._newest
        # Without a ``done``, which may be lost, a new rollout begins with a lower step.
        begins = frame.timestamp > timestamp and (self._over or frame.step < step)
        if not begins and (self._over or order <= self._newest):
            return []  # repeated or late
        acted = self._acted and not begins
        self._newest, self._over = order, frame.done
        self._acted = self._acted and not frame.done
        ends = flags_of(frame.done, value["extra"])
        return [EnvStep("", begins, acted, True, None if begins else frame.reward, *ends)]

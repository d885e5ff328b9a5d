"""The dissector of PERLERT's datagrams: of the lobby, of the rollout, or of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlwire.codecs import perlert
from rlwire.errors import RlwireError
from rlwire.limits import Limits, checked
from rlwire.perlert.environment import end_of
from rlwire.perlert.spaces import SpaceText, ToldSpaces
from rlwire.recording.dissecting import plain
from rlwire.recording.messages import UNKNOWN, Buffer, Dissected, Step

_PAIRS = {
    perlert.LobbyRequest: "lobby", perlert.Ready: "lobby", perlert.LobbyInformation: "lobby",
    perlert.Register: "register", perlert.Registered: "register",
}  # fmt: skip


class PerlertDissector:
    """Without spaces from the lobby, a text of numbers becomes an array, and a mapping a dict.

    An action is a step of the frames after it, not of its own datagrams: these are resent.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = checked(limits)
        self._told = ToldSpaces()
        self._spaces_before: Any = None
        self._observations: SpaceText | None = None
        self._actions: SpaceText | None = None
        self._action: Any = UNKNOWN
        self._newest = (-1, -1)  # step number and timestamp
        self._over = True
        self._offsets = {True: 0, False: 0}

    def dissect(self, data: Buffer, from_client: bool, gap: int = 0) -> Iterator[Dissected]:
        found = Dissected("damaged", size=len(data), offset=self._offsets[from_client])
        self._offsets[from_client] += len(data)
        decode = perlert.decode_client_message if from_client else perlert.decode_server_message
        try:
            message: Any = decode(bytes(data), limits=self._limits)
        except RlwireError as error:
            found.error = str(error)
        else:
            found.kind, key = type(message).__name__, _PAIRS.get(type(message))
            found.value = plain(message._asdict() if hasattr(message, "_asdict") else message)
            found.asks, found.answers = (key, None) if from_client else (None, key)
            if isinstance(message, perlert.Action):
                self._action = found.value["action"] = self._read(self._actions, message.action)
            elif isinstance(message, perlert.RolloutStep):
                found.steps = self._steps(message, found.value)
            elif isinstance(message, perlert.LobbyMessage) and self._told.take(message.text):
                found.steps = self._spaces()
        for step in found.steps:
            step.environment = f"{message.name}:{message.number}"
        yield found

    def _read(self, space: SpaceText | None, text: str) -> Any:
        try:
            if space is not None:
                return space.from_text(text)
            named = text if ":" in text else f"v:{text}"
            found = perlert.text_to_mapping(named, limits=self._limits)
            return found if named is text else found["v"]
        except RlwireError:
            return text

    def _spaces(self) -> list[Step]:
        try:
            spaces = self._told.spaces(self._limits)
            if spaces is None or spaces == self._spaces_before:
                return []
            self._spaces_before = seen, done = spaces
            self._observations = SpaceText(seen, "it", named=True, limits=self._limits)
            self._actions = SpaceText(done, "it", named=False, limits=self._limits)
        except (RlwireError, TypeError, ValueError):  # such as a space without texts
            return []
        return [Step(observation_space=seen, action_space=done)]

    def _steps(self, frame: perlert.RolloutStep, value: dict[str, Any]) -> list[Step]:
        observation = value["observation"] = self._read(self._observations, frame.observation)
        if frame.extra is not None:
            value["extra"] = self._read(None, frame.extra)
        # As in the session: within a rollout the order is that of (step, timestamp).
        order, (step, timestamp) = (frame.step, frame.timestamp), self._newest
        # Without a ``done``, which may be lost, a new rollout begins with a lower step.
        begins = frame.timestamp > timestamp and (self._over or frame.step < step)
        if not begins and (self._over or order <= self._newest):
            return []  # repeated or late
        action = UNKNOWN if begins else self._action
        reward = UNKNOWN if begins else frame.reward
        self._newest, self._over = order, frame.done
        if frame.done:
            self._action = UNKNOWN
        ends = end_of(frame.done, value["extra"])
        result = Step("", begins, UNKNOWN, observation, reward, *ends)
        return [result] if action is UNKNOWN else [Step(action=action), result]

"""`PerlertDissector` decodes PERLERT's datagrams: of the lobby, of the rollout, or of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rlwire.codecs import perlert
from rlwire.errors import RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.perlert.environment import end_of
from rlwire.perlert.spaces import SpaceText, ToldSpaces
from rlwire.recording.messages import UNKNOWN, Buffer, Dissected, Step

_REPLIES = {
    perlert.LobbyRequest: "lobby",
    perlert.Register: "register",
    perlert.Ready: "lobby",
    perlert.LobbyInformation: "lobby",
    perlert.Registered: "register",
}


class PerlertDissector:
    """A `rlwire.recording.messages.Dissector`.

    Without spaces from the lobby, a text of numbers becomes an array, and a mapping a dict. The
    current action is a part of each frame that it may have caused, not of its own datagrams: these
    are resent.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or DEFAULT
        self._told = ToldSpaces()
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
            found.kind = type(message).__name__
            found.value = message._asdict() if hasattr(message, "_asdict") else asdict(message)
            key = _REPLIES.get(type(message))
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
            if ":" in text:
                return perlert.text_to_mapping(text, limits=self._limits)
            return perlert.text_to_mapping(f"v:{text}", limits=self._limits)["v"]
        except RlwireError:
            return text

    def _spaces(self) -> list[Step]:
        try:
            spaces = self._told.spaces(self._limits)
            if spaces is None:
                return []
            names = "the observation", "the action"
            self._observations, self._actions = (
                SpaceText(space, what, named=named, limits=self._limits)
                for space, what, named in zip(spaces, names, (True, False), strict=True)
            )
        except (RlwireError, TypeError, ValueError):  # such as a space that Gymnasium rejects
            return []
        return [Step(observation_space=spaces[0], action_space=spaces[1])]

    def _steps(self, frame: perlert.RolloutStep, value: dict[str, Any]) -> list[Step]:
        observation = value["observation"] = self._read(self._observations, frame.observation)
        extra = value["extra"]
        if extra is not None:
            extra = value["extra"] = self._read(None, extra)
        # As in the session: within a rollout the order is that of (step, timestamp).
        order, before = (frame.step, frame.timestamp), self._newest
        later = frame.timestamp > before[1]
        begins = later if self._over else later and frame.step < before[0]  # its ``done`` is lost
        if not begins and (self._over or order <= before):
            return []  # repeated or late
        action = UNKNOWN if begins else self._action
        self._newest, self._over = order, frame.done
        if frame.done:
            self._action = UNKNOWN
        terminated, truncated = end_of(frame.done, extra)
        reward = UNKNOWN if begins else frame.reward
        seen = Step("", begins, UNKNOWN, observation, reward, terminated, truncated)
        return [seen] if action is UNKNOWN else [Step(action=action), seen]

"""Options of RLlink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True)
class RLlinkServerOptions(_options.SecretOptions, _options.StreamServerOptions):
    """Of a server of a learner.

    Attributes:
        steps: of a message with episodes.
        on_policy: clients wait for new weights before they go on.
        backlog: steps that may wait for the learner; clients that send more have to wait.
    """

    steps: _options.Positive = 500
    on_policy: bool = True
    backlog: _options.Positive = 1_000_000


@dataclass(frozen=True)
class RLlinkClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Of a simulator.

    Attributes:
        form: of the messages that are sent; json for RLlib before 2.44.
        compression: of messages, if the trainer supports it.
    """

    form: Literal["msgpack", "json"] = "msgpack"
    compression: Literal["zstd"] | None = None


@dataclass(frozen=True)
class RLlinkPlayerOptions(_options.PlayerOptions, RLlinkClientOptions):
    """Of `rlwire.play` over RLlink.

    Attributes:
        policy: chooses actions with the trainer's weights (default: runs the trainer's ONNX file).
        steps: of a batch, if the trainer does not say.
    """

    policy: Annotated[Any, _options.Reads(str, "MODULE:POLICY")] = None
    steps: _options.Positive | None = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLlinkServerOptions,
    "client": RLlinkClientOptions,
    "player": RLlinkPlayerOptions,
}

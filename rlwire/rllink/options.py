"""Options of RLlink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True)
class RLlinkServerOptions(_options.SecretOptions, _options.StreamServerOptions):
    """Options of a learner's server.

    Attributes:
        steps: environment steps per batch of episodes.
        on_policy: clients wait for new weights after each batch.
        backlog: maximum number of steps queued for the learner; clients that exceed it wait.
    """

    steps: _options.Positive = 500
    on_policy: bool = True
    backlog: _options.Positive = 1_000_000


@dataclass(frozen=True)
class RLlinkClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Options of a simulator.

    Attributes:
        form: encoding of sent messages; json for RLlib before 2.44.
        compression: compress messages, if the trainer supports it; needs the extra compression.
    """

    form: Literal["msgpack", "json"] = "msgpack"
    compression: Literal["zstd"] | None = None


@dataclass(frozen=True)
class RLlinkPlayerOptions(_options.PlayerOptions, RLlinkClientOptions):
    """Options of `rlwire.play`.

    Attributes:
        policy: choose actions with this policy (default: run the trainer's ONNX file).
        steps: environment steps per batch, if the trainer does not set it.
    """

    policy: Annotated[Any, _options.Reads(str, "MODULE:POLICY")] = None
    steps: _options.Positive | None = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLlinkServerOptions,
    "client": RLlinkClientOptions,
    "player": RLlinkPlayerOptions,
}

"""Options of RLlink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire._options import (
    PlayerOptions,
    Positive,
    Reads,
    SecretOptions,
    Side,
    StreamClientOptions,
    StreamServerOptions,
)


@dataclass(frozen=True)
class RLlinkServerOptions(SecretOptions, StreamServerOptions):
    """Of a server of a learner.

    Attributes:
        steps: that a message with episodes is to bring.
        on_policy: have clients wait for new weights before they go on.
        batch: steps that the learner is given at once, at least (default: what there is).
        backlog: steps that may wait for the learner; who sends more is not heard meanwhile.
    """

    steps: Positive = 500
    on_policy: bool = True
    batch: Positive = 1
    backlog: Positive = 1_000_000


@dataclass(frozen=True)
class RLlinkClientOptions(SecretOptions, StreamClientOptions):
    """Of a simulator.

    Attributes:
        form: of the messages that are sent; json for RLlib before 2.44.
        compression: compress messages, if the trainer supports it (default: none).
    """

    form: Literal["msgpack", "json"] = "msgpack"
    compression: Literal["zstd"] | None = None


@dataclass(frozen=True)
class RLlinkPlayerOptions(PlayerOptions, RLlinkClientOptions):
    """Of `rlwire.play` over RLlink.

    Attributes:
        policy: what acts, with the weights that the trainer sends (default: it runs the ONNX that
            is sent).
        steps: in a batch, where the trainer does not say.
    """

    policy: Annotated[Any, Reads(str, "MODULE:POLICY")] | None = None
    steps: Positive | None = None


OPTIONS: Final[Mapping[Side, type]] = {
    "server": RLlinkServerOptions,
    "client": RLlinkClientOptions,
    "player": RLlinkPlayerOptions,
}

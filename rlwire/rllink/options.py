"""Options of RLlink."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from rlwire import _options
from rlwire.codecs.rllink import Form, SetConfig
from rlwire.urls import Where

PORT: Final = 5555
"""The default port; Ray's server adds the runner's number."""


@dataclass(frozen=True)
class BacklogOptions(_options.SecretOptions, _options.StreamServerOptions):
    """Options of servers.

    Attributes:
        auth: a token that clients must send. Ray's client sends none, so it is then rejected.
        backlog: maximum number of steps queued for the learner; clients that exceed it wait.
    """

    address: Where = f"localhost:{PORT}"
    _: KW_ONLY
    backlog: _options.Positive = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RLlinkServerOptions(BacklogOptions):
    """Options of `rlwire.rllink.Server`.

    Attributes:
        config: the reply to `GetConfig` (default: an empty one).
    """

    config: SetConfig | None = None


@dataclass(frozen=True, kw_only=True)
class RLlinkLearnerOptions(BacklogOptions):
    """Options of a learner's server.

    Attributes:
        steps: environment steps per batch of episodes.
        on_policy: clients wait for new weights after each batch.
    """

    steps: _options.Positive = 500
    on_policy: bool = True


@dataclass(frozen=True)
class RLlinkClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Options of a simulator.

    Attributes:
        form: encoding of sent messages; json for RLlib before 2.44.
    """

    address: Where = f"localhost:{PORT}"
    _: KW_ONLY
    form: Form = "msgpack"


@dataclass(frozen=True, kw_only=True)
class RLlinkPlayerOptions(_options.PlayerOptions, RLlinkClientOptions):
    """Options of `rlwire.play`.

    Attributes:
        policy: choose actions with this policy (default: run the trainer's ONNX file).
        steps: environment steps per batch, if the trainer does not set it.
    """

    policy: Annotated[Any, _options.Parser(str, "MODULE:POLICY")] = None
    steps: _options.Positive | None = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLlinkLearnerOptions,
    "client": RLlinkClientOptions,
    "player": RLlinkPlayerOptions,
}

"""`Endpoint`: one remote environment, which sends first and waits later."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

Outcome: TypeAlias = tuple[Any, ...]
"""``(observation, info)`` of a reset, or ``(observation, reward, terminated, truncated, info)``."""


class Endpoint(Protocol):
    """One remote environment, and a base class for those of a protocol.

    Each `begin_reset` and `begin_step` is followed by a `finish`. If the connection is lost in a
    step, the episode is truncated with the last observation, and ``info["lost"]`` says why. The
    next reset connects again, or raises.

    An optional method, ``write_to(row)``, makes the endpoint write its observations, one array
    each, to that row of a batch, which `finish` then returns.

    Attributes:
        observation_space, action_space: Gymnasium's.
        metadata, render_mode: as of `gymnasium.Env`.
        nondeterministic: whether a seed does not repeat an episode.
    """

    observation_space: Any
    action_space: Any
    metadata: Mapping[str, Any] = MappingProxyType({"render_modes": []})
    render_mode: str | None = None
    nondeterministic: ClassVar[bool] = True

    @property
    def places(self) -> int | None:
        """How many endpoints may use the URL at once; None for any number."""
        return None

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Send a reset."""

    def begin_step(self, action: Any) -> None:
        """Send an action; `finish` reports a lost connection."""

    def finish(self) -> Outcome:
        """Wait for the results."""

    def start_rendering(self) -> None:
        """Let `render` return pictures; set `render_mode` and `metadata`, or raise ValueError."""
        raise ValueError(
            "render_mode needs dm-env-rpc:// to an rlwire server, or universe:// with pixels, "
            "such as universe://host:5900+15900"
        )

    def render(self) -> Any:
        """Return the newest picture, uint8 (height, width, 3); None without a `render_mode`."""
        return None

    def close(self) -> None:
        """Leave and close the connection; idempotent."""

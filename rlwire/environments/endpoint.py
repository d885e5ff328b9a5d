"""`Endpoint`: one environment that is somewhere else, asked first and waited for later.

Each protocol has its own in its room; all faces of environments stand on them. Not here:
faces (`rlwire.environments.remote`), many at once (`rlwire.environments.batch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

Outcome: TypeAlias = tuple[Any, ...]
"""After a reset ``(observation, info)``, after a step ``(observation, reward, terminated,
truncated, info)``, as `gymnasium.Env` gives them."""


class Endpoint(Protocol):
    """One environment that is somewhere else, and a base for those that are.

    Each `begin_reset` and `begin_step` is followed by a `finish`. An endpoint that is lost in a
    step ends the episode: it gives the last observation, truncated, and ``info["lost"]`` says what
    happened; the next reset connects anew, or raises why it cannot.

    One whose observations are one array may have ``write_to(row)``: from then on they are written
    to that row of a batch, which is then what `finish` returns.

    Attributes:
        observation_space: a `gymnasium.Space`.
        action_space: a `gymnasium.Space`.
        metadata: as a `gymnasium.Env` has it.
        render_mode: as a `gymnasium.Env` has it.
        nondeterministic: whether a seed does not make the next episode the same again.
    """

    observation_space: Any
    action_space: Any
    metadata: Mapping[str, Any] = MappingProxyType({"render_modes": []})
    render_mode: str | None = None
    nondeterministic: ClassVar[bool] = True

    @property
    def places(self) -> int | None:
        """How many endpoints may play at once what the URL names; None for any number."""
        return None

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Ask for a new episode."""

    def begin_step(self, action: Any) -> None:
        """Say what to do; a loss of the connection is for `finish` to tell."""

    def finish(self) -> Outcome:
        """Wait for what was begun."""

    def start_rendering(self) -> None:
        """Let `render` return pictures; set `render_mode` and `metadata`.

        Raises:
            ValueError: the protocol carries no pictures, or the server has none.
        """
        raise ValueError(
            "render_mode: pictures travel over dm-env-rpc:// from a server of rlwire's, and over "
            "universe:// with pixels, universe://host:5900+15900"
        )

    def render(self) -> Any:
        """Return the newest picture, (height, width, 3) uint8; None if `render_mode` is None."""
        return None

    def close(self) -> None:
        """Leave, and close the connection; again does nothing."""

"""`Endpoint`: a remote environment whose calls are split into sending and waiting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from rlwire.errors import quoted

Outcome: TypeAlias = tuple[Any, ...]
"""``(observation, info)`` of a reset, or ``(observation, reward, terminated, truncated, info)``."""


OLD_API = 'wrap one of Gym\'s old API: gymnasium.make("GymV21Environment-v0", env=...), by Shimmy'
"""The remedy for results of `reset` and `step` in the form of before Gym 0.26."""

SHARED: ContextVar[dict[Any, Any] | None] = ContextVar("SHARED", default=None)
"""While a vector makes its endpoints: what those of a protocol share, such as connections."""


def reset(environment: Any, **arguments: Any) -> Any:
    """Reset a user's environment; if it takes no seed, the TypeError names the remedy."""
    try:
        return environment.reset(**arguments)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise TypeError(f"{error}; {OLD_API}") from error


def check_options(options: Any) -> None:
    """Raise TypeError unless the options of a reset are a dict or None."""
    if not (options is None or isinstance(options, Mapping)):
        raise TypeError(f"options must be a dict, not {quoted(options)}")


def check_seed(seed: Any) -> int | None:
    """Return the seed of a reset as an int; TypeError for a bool, a float and others."""
    if isinstance(seed, (bool, np.bool_)) or not (seed is None or hasattr(seed, "__index__")):
        raise TypeError(f"seed must be an integer or None, not {quoted(seed)}")
    return None if seed is None else operator.index(seed)


class Endpoint(Protocol):
    """A remote environment: the base class of each protocol's.

    Call `finish` after each `begin_reset` and `begin_step`. A vector encodes the actions of all its
    endpoints before it sends the first. If the connection is lost in a step,
    the episode is truncated with the last observation, and ``info["lost"]`` says why. The next
    reset connects again, or raises.

    An optional method ``write_to(row)`` makes the endpoint write its observations, which are single
    arrays, to that row of a batch; `finish` then returns the row.

    Attributes:
        observation_space, action_space: Gymnasium spaces.
        metadata, render_mode: those of a `gymnasium.Env`.
        nondeterministic: whether episodes with the same seed may differ.
        flush: sends what the endpoints of a vector have queued that share it; None if all is sent.
        episode: fields of `spec` that the peer sent, see `rlwire.environments.spaces.episode_of`.
    """

    observation_space: Any
    action_space: Any
    metadata: Mapping[str, Any] = MappingProxyType({"render_modes": []})
    render_mode: str | None = None
    nondeterministic: ClassVar[bool] = True
    flush: Callable[[], object] | None = None
    episode: Mapping[str, Any] = MappingProxyType({})

    @property
    def places(self) -> int | None:
        """Number of endpoints that may use the URL at once; None for any number."""
        return None

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Send a reset."""

    def encode_step(self, action: Any) -> Any:
        """Return an action as `send_step` sends it; raises, and sends nothing, if it is invalid."""
        return action

    def send_step(self, encoded: Any) -> None:
        """Send what `encode_step` returned; a lost connection is reported by `finish`."""

    def begin_step(self, action: Any) -> None:
        """Encode and send an action."""
        self.send_step(self.encode_step(action))

    def finish(self) -> Outcome:
        """Wait for the results of the last reset or step."""

    def step(self, action: Any) -> Outcome:
        """Do `begin_step` and `finish`; an endpoint overrides it to do both in one exchange."""
        self.begin_step(action)
        return self.finish()

    def watch(self, wanted: bool) -> int:
        """Prepare for steps in an event loop's thread, or for other calls in another thread.

        Meanwhile `begin_step` raises WouldWait if not all is sent, which `finish` then does, and
        `finish` until all has arrived. Returns the file to watch before it is called again; -1 for
        none.
        """
        return -1

    def start_rendering(self) -> None:
        """Set `render_mode` and `metadata`, or raise ValueError if `render` has no pictures."""
        raise ValueError(
            "render_mode needs dm-env-rpc:// to an rlwire server, or universe:// with pixels, "
            "such as universe://host:5900+15900"
        )

    def render(self) -> Any:
        """Return the newest picture, uint8 (height, width, 3); None without a `render_mode`."""
        return None

    def close(self) -> None:
        """Close the connection; idempotent."""

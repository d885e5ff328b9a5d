"""`Settings`: the section ``algorithm``, with RELAAX's names."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

from rlwire.rlx.config import Options, typed

logger = logging.getLogger(__name__)

# Entries of the section that are not settings.
_WHOSE = {"name", "path", "subtype"}


@dataclass(frozen=True)
class Settings:
    """Settings of agents and their parameter server.

    In a file, `shape` is in the section ``input``, and `continuous` and ``action_...`` are in
    ``output``. Where None is valid, a file has ``false``.

    Attributes:
        shape: shape of a state; ``[0]`` for environments without states, such as bandits.
        action_size: number of discrete actions, or of numbers in a continuous action.
        continuous: whether an action is a list of numbers.
        action_low: minimum of each number; empty for no minimum.
        action_high: maximum of each number; empty for no maximum.
        hidden_sizes: sizes of the hidden layers of actor and critic.
        batch_size: steps of an agent per gradient.
        initial_learning_rate: learning rate of Adam.
        rewards_gamma: discount per step.
        gae_lambda: lambda of generalized advantage estimation.
        entropy_beta: weight of the policy's entropy.
        critic_scale: weight of the critic's loss.
        gradients_norm_clipping: maximum norm of a gradient; None for no clipping.
        seed: seed of the initial weights; None for a random one.
    """

    shape: tuple[int, ...]
    action_size: int
    continuous: bool = False
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    hidden_sizes: tuple[int, ...] = (64, 64)
    batch_size: int = 128
    initial_learning_rate: float = 2e-3
    rewards_gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy_beta: float = 0.01
    critic_scale: float = 0.5
    gradients_norm_clipping: float | None = 0.5
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("action_size", "batch_size", "initial_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"algorithm/{_path(name)} must be above 0, not {getattr(self, name)!r}"
                )
        for name in ("action_low", "action_high"):
            if getattr(self, name) and len(getattr(self, name)) != self.action_size:
                raise ValueError(
                    f"algorithm/{_path(name)} must have {self.action_size} numbers "
                    f"(algorithm/output/action_size), not {len(getattr(self, name))}"
                )

    @property
    def state_size(self) -> int:
        """Number of inputs of the networks; 1 without states, and the input is then 0."""
        return max(1, math.prod(self.shape))

    @classmethod
    def of(cls, config: Options) -> Settings:
        """Read a section ``algorithm``; unknown settings are logged and ignored."""
        known = {_path(field.name): field for field in dataclasses.fields(cls)}
        given = set(_paths(config))
        for path in sorted(given - known.keys() - _WHOSE):
            logger.warning("ignoring algorithm/%.60s, which is not a setting of pg", path)
        values = {}
        for path, field in known.items():
            if path in given:
                try:
                    values[field.name] = typed(str(field.type), config.get(path))
                except ValueError as error:
                    raise ValueError(f"algorithm/{path}: {error}") from None
            elif field.default is dataclasses.MISSING:
                raise ValueError(f"algorithm/{path} must be set")
        return cls(**values)


def _path(name: str) -> str:
    if name == "shape":
        return "input/shape"
    return f"output/{name}" if name == "continuous" or name.startswith("action_") else name


def _paths(config: Options) -> Iterator[str]:
    for name in config:
        if name in ("input", "output") and isinstance(config.get(name), Options):
            yield from (f"{name}/{inner}" for inner in config.get(name))
        else:
            yield name

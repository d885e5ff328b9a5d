"""`Settings`: what may be set in the section ``algorithm`` of a file, by RELAAX's names."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

from rlwire.rlx.config import Options, typed

__all__ = ["Settings"]

logger = logging.getLogger(__name__)

# What a section says besides: whose settings they are.
_WHOSE = ("name", "path", "subtype")


@dataclass(frozen=True)
class Settings:
    """What agents and their parameter server agree on.

    In a file, `shape` stands in the section ``input``, and `continuous` and what begins with
    ``action`` in ``output``. ``false`` is None where that is a value.

    Attributes:
        shape: of a state; ``[0]`` if the environment has none, as a bandit.
        action_size: how many actions there are, or numbers in one if they are continuous.
        continuous: whether an action is numbers, and not one of a few.
        action_low: of what each number is clipped to; empty: it is not.
        action_high: as `action_low`.
        hidden_sizes: of the layers of the policy, and of those of the critic.
        batch_size: steps of an agent that make one gradient.
        initial_learning_rate: of Adam.
        rewards_gamma: the discount of a reward by one step.
        gae_lambda: of generalized advantage estimation.
        entropy_beta: the weight of the policy's entropy, which keeps it exploring.
        critic_scale: the weight of the critic's error.
        gradients_norm_clipping: the largest norm of a gradient; None: any.
        seed: of the first weights; None: left to chance.
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
                    f"algorithm/{_path(name)} must have a number for each of {self.action_size}"
                )

    @property
    def state_size(self) -> int:
        """How many numbers the network takes: for no state one, which is 0."""
        return max(1, math.prod(self.shape))

    @classmethod
    def of(cls, config: Options) -> Settings:
        """Read a section ``algorithm``; a setting that is not known is logged and ignored."""
        known = {_path(field.name): field for field in dataclasses.fields(cls)}
        values = {}
        for path in _paths(config):
            if path in known:
                field = known[path]
                try:
                    values[field.name] = typed(str(field.type), config.get(path))
                except ValueError as error:
                    raise ValueError(f"algorithm/{path}: {error}") from None
            elif path not in _WHOSE:
                logger.warning("algorithm/%.60s is no setting of pg: ignored", path)
        for path, field in known.items():
            if field.name not in values and field.default is dataclasses.MISSING:
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

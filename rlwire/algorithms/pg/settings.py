"""`Settings`: what may be set in the section ``algorithm`` of a file, by RELAAX's names."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlwire.adapters.relaax.config import Options

__all__ = ["Settings"]

logger = logging.getLogger(__name__)

# What a section says besides: whose settings they are.
_WHOSE = ("name", "path", "subtype")
# What this algorithm cannot do, and how a file says that it need not.
_OFF = {
    "use_convolutions": False,
    "use_lstm": False,
    "use_icm": False,
    "history": 1,
    "scale": 1.0,
}


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
        activation: of these layers, ``"tanh"`` or ``"relu"``.
        batch_size: steps of an agent that make one gradient.
        initial_learning_rate: of Adam.
        use_linear_schedule: whether the learning rate goes to 0 in a straight line.
        max_global_step: steps of all agents after which it is there.
        rewards_gamma: the discount of a reward by one step.
        gae_lambda: of generalized advantage estimation.
        normalize_advantage: whether a batch's advantages get mean 0 and deviation 1.
        entropy_beta: the weight of the policy's entropy, which keeps it exploring.
        critic_scale: the weight of the critic's error.
        gradients_norm_clipping: the largest norm of a gradient; None: any.
        combine_gradients: ``"fifo"``: each gradient is a step at once, asynchronous; ``"average"``:
            a step is the mean of `num_gradients` that were made with the newest weights, and agents
            wait for it, synchronous.
        num_gradients: how many are averaged: as many as there are environments.
        patience: seconds that an agent waits for the others' gradients before it makes one more.
        seed: of the first weights; None: left to chance.
    """

    shape: tuple[int, ...]
    action_size: int
    continuous: bool = False
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    batch_size: int = 128
    initial_learning_rate: float = 2e-3
    use_linear_schedule: bool = False
    max_global_step: float | None = None
    rewards_gamma: float = 0.99
    gae_lambda: float = 0.95
    normalize_advantage: bool = True
    entropy_beta: float = 0.01
    critic_scale: float = 0.5
    gradients_norm_clipping: float | None = 0.5
    combine_gradients: str = "fifo"
    num_gradients: int = 4
    patience: float = 5.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("activation", ("tanh", "relu")),
            ("combine_gradients", ("fifo", "average")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"algorithm/{name} must be one of {allowed}, not {getattr(self, name)!r:.60}"
                )
        for name in ("action_size", "batch_size", "num_gradients", "initial_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"algorithm/{_path(name)} must be above 0, not {getattr(self, name)!r}"
                )
        for name in ("action_low", "action_high"):
            if getattr(self, name) and len(getattr(self, name)) != self.action_size:
                raise ValueError(
                    f"algorithm/{_path(name)} must have a number for each of {self.action_size}"
                )

        if self.use_linear_schedule and not self.max_global_step:
            raise ValueError("algorithm/use_linear_schedule needs max_global_step, where it ends")

    @property
    def state_size(self) -> int:
        """How many numbers the network takes: for no state one, which is 0."""
        return max(1, math.prod(self.shape))

    @classmethod
    def of(cls, config: Options) -> Settings:
        """Read a section ``algorithm``.

        What is set and not known is logged: files of other algorithms have more.

        Raises:
            ValueError: a setting is missing, or its value makes no sense.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        values = {}
        for path in _paths(config):
            name, value = path.rpartition("/")[2], config.get(path)
            if name in known and path == _path(name):
                values[name] = _read(path, str(known[name].type), value)
            elif name in _OFF:
                if value not in (_OFF[name], []):
                    raise ValueError(
                        f"algorithm/{path}: pg can do with {_OFF[name]!r} only, not {value!r:.60}"
                    )
            elif path not in _WHOSE:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {_path(near[0])}?" if near else ""
                logger.warning("algorithm/%.60s is no setting of pg, and passed over%s", path, hint)
        for name, field in known.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise ValueError(f"algorithm/{_path(name)} must be set")
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


def _read(path: str, kind: str, value: Any) -> Any:
    kind, _, optional = kind.partition(" | ")
    if optional and (value is None or value is False):
        return None
    try:
        if kind.startswith("tuple"):
            read = _READERS[kind[len("tuple[") : kind.index(",")]]
            return tuple(read(item) for item in value)
        return _READERS[kind](value)
    except (TypeError, ValueError):
        raise ValueError(f"algorithm/{path} must be {kind}, not {value!r:.60}") from None


def _whole(value: Any) -> int:
    if isinstance(value, (bool, str)) or value != int(value):
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise ValueError(value)
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _whole,
    "float": _number,
    "bool": _truth,
    "str": str,
}

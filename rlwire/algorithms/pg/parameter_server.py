"""`ParameterServer`: has the weights, and makes the steps that agents' gradients ask for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwire.adapters.relaax import parameter_server
from rlwire.errors import optional

from .model import ActorCritic
from .settings import Settings

with optional("PyTorch", "torch", "torch"):
    import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ParameterServer", "SharedParameters"]


class ParameterServer(parameter_server.ParameterServer):
    """One for all agents; its score is the mean return of the last 100 episodes."""

    def init_session(self) -> None:
        """Make the network and its optimizer."""
        shared = SharedParameters(Settings.of(self.config), self.wait_for)
        self.session = parameter_server.Session(shared)

    def score(self) -> float | None:
        """Return how good the policy is; None until an episode has ended."""
        found: float | None = self.session.op_score()
        return found


class SharedParameters:
    """The weights, and what agents may do with them.

    Args:
        settings: of the network and the steps.
        wait_for: the parameter server's.
    """

    def __init__(
        self, settings: Settings, wait_for: Callable[[Callable[[], bool], float], bool]
    ) -> None:
        self.settings = settings
        self.wait_for = wait_for
        with torch.random.fork_rng(devices=[]):
            if settings.seed is not None:
                torch.manual_seed(settings.seed)
            self.network = ActorCritic(settings)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=settings.initial_learning_rate, eps=1e-5
        )
        self.n_step = 0
        self.weights = self.network.weights()
        self.scores: deque[float] = deque(maxlen=100)
        self.collected: list[Mapping[str, NDArray[np.float32]]] = []
        self.steps = 0  # that these were made of

    def op_n_step(self) -> int:
        """Return of how many steps of all agents the weights are."""
        return self.n_step

    def op_score(self) -> float | None:
        """Return the mean return of the last 100 episodes; None if there was none."""
        return float(np.mean(self.scores)) if self.scores else None

    def op_add_score(self, score: float) -> None:
        """Take the return of an episode."""
        self.scores.append(score)

    def op_get_weights_signed(self) -> tuple[dict[str, NDArray[np.float32]], int]:
        """Return the weights by name, and of how many steps they are."""
        return self.weights, self.n_step

    def op_submit_gradients(
        self, gradients: Mapping[str, NDArray[np.float32]], step_inc: int, agent_step: int
    ) -> int:
        """Take a gradient, and make a step if it is time for one; return `n_step`.

        Synchronous, the answer comes with that step, or after `patience`: others may have gone.

        Args:
            gradients: by weight.
            step_inc: steps of the agent that it is made of.
            agent_step: `n_step` of the weights that it was made with.
        """
        if self.settings.combine_gradients == "average":
            if agent_step != self.n_step:
                return self.n_step  # made with weights of the past: left out
            self.collected.append(gradients)
            self.steps += step_inc
            if len(self.collected) < self.settings.num_gradients:
                self.wait_for(lambda: self.n_step != agent_step, self.settings.patience)
                return self.n_step
            gradients = {
                name: np.mean([each[name] for each in self.collected], axis=0) for name in gradients
            }
            step_inc, self.steps, self.collected = self.steps, 0, []
        self.apply(gradients)
        self.n_step += step_inc
        return self.n_step

    def apply(self, gradients: Mapping[str, NDArray[np.float32]]) -> None:
        """Make one step."""
        for name, weight in self.network.named_parameters():
            weight.grad = torch.tensor(gradients[name])
        if self.settings.use_linear_schedule:
            assert self.settings.max_global_step is not None
            left = max(0.0, 1 - self.n_step / self.settings.max_global_step)
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.initial_learning_rate * left
        self.optimizer.step()
        self.weights = self.network.weights()  # new arrays: agents may still hold the old ones

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "n_step": self.n_step,
            "scores": list(self.scores),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring back what a checkpoint kept.

        Raises:
            RuntimeError, ValueError: it is of a network of other sizes.
        """
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.n_step = state["n_step"]
        self.scores.extend(state["scores"])
        self.weights = self.network.weights()

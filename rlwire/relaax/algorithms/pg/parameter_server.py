"""`ParameterServer`: stores the weights, and applies each gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlwire.errors import optional
from rlwire.relaax import parameter_server

from .model import ActorCritic
from .settings import Settings

with optional("torch", "torch"):
    import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ParameterServer(parameter_server.ParameterServer):
    def init_session(self) -> None:
        self.session = parameter_server.Session(SharedParameters(Settings.of(self.config)))


class SharedParameters:
    """The weights; a gradient is applied immediately, even if it comes from older weights."""

    def __init__(self, settings: Settings) -> None:
        with torch.random.fork_rng(devices=[]):
            if settings.seed is not None:
                torch.manual_seed(settings.seed)
            self.network = ActorCritic(settings)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=settings.initial_learning_rate, eps=1e-5
        )
        self.n_step = 0
        self.weights = self.network.weights()

    def op_n_step(self) -> int:
        return self.n_step

    def op_get_weights_signed(self) -> tuple[dict[str, NDArray[np.float32]], int]:
        return self.weights, self.n_step

    def op_submit_gradients(
        self, gradients: Mapping[str, NDArray[np.float32]], step_inc: int
    ) -> int:
        for name, weight in self.network.named_parameters():
            weight.grad = torch.tensor(gradients[name])
        self.optimizer.step()
        self.weights = self.network.weights()  # agents may still use the old arrays
        self.n_step += step_inc
        return self.n_step

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "n_step": self.n_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.n_step = state["n_step"]
        self.weights = self.network.weights()

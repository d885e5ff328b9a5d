"""The networks of actor and critic, and the gradient of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwire.errors import optional

from .settings import Settings

with optional("torch", "torch"):
    import torch
    from torch import nn
    from torch.distributions import Categorical, Distribution, Independent, Normal

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ActorCritic(nn.Module):
    """A policy and a critic, with separate layers."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.actor = nn.Sequential(*_layers(settings, settings.action_size, 0.01))
        self.critic = nn.Sequential(*_layers(settings, 1, 1.0))
        if settings.continuous:
            self.deviation = nn.Parameter(torch.zeros(settings.action_size))  # log of it
        self._continuous = settings.continuous

    def policy(self, states: torch.Tensor) -> Distribution:
        """Return the distribution of actions for states of shape (n, state_size)."""
        found = self.actor(states)
        if self._continuous:
            return Independent(Normal(found, self.deviation.exp()), 1)
        return Categorical(logits=found)

    def value(self, states: torch.Tensor) -> torch.Tensor:
        """Return the values, of shape (n,), of states of shape (n, state_size)."""
        return self.critic(states).squeeze(-1)

    def weights(self) -> dict[str, NDArray[np.float32]]:
        return {name: value.detach().numpy().copy() for name, value in self.named_parameters()}

    def load(self, weights: Mapping[str, Any]) -> None:
        self.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})


def _layers(settings: Settings, outputs: int, gain: float) -> Iterator[nn.Module]:
    sizes = [settings.state_size, *settings.hidden_sizes]
    for before, after in itertools.pairwise(sizes):
        yield _linear(before, after, 2**0.5)
        yield nn.Tanh()
    yield _linear(sizes[-1], outputs, gain)


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def advantages(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    ends: NDArray[np.bool_],
    discount: float,
    decay: float,
) -> NDArray[np.float32]:
    """Return generalized advantage estimates of n steps; `values` has shape (n + 1,)."""
    found = np.zeros_like(rewards)
    later = 0.0
    for step in reversed(range(len(rewards))):
        goes_on = not ends[step]
        surprise = rewards[step] + discount * values[step + 1] * goes_on - values[step]
        later = surprise + discount * decay * later * goes_on
        found[step] = later
    return found


def gradients(
    network: ActorCritic,
    settings: Settings,
    states: NDArray[np.float32],
    actions: NDArray[Any],
    rewards: NDArray[np.float32],
    ends: NDArray[np.bool_],
) -> tuple[dict[str, NDArray[np.float32]], dict[str, float]]:
    """Return a batch's gradients by weight name, and its losses by name.

    `states` has shape (n + 1, state_size), for n steps and the state after them. `ends` marks the
    last steps of episodes.
    """
    seen = torch.from_numpy(states)
    values = network.value(seen)
    known = values.detach().numpy()
    better = advantages(rewards, known, ends, settings.rewards_gamma, settings.gae_lambda)
    returns = torch.from_numpy(better + known[:-1])
    better = (better - better.mean()) / (better.std() + 1e-8)
    policy = network.policy(seen[:-1])
    policy_loss = -(policy.log_prob(torch.from_numpy(actions)) * torch.from_numpy(better)).mean()
    critic_loss = ((returns - values[:-1]) ** 2).mean()
    entropy = policy.entropy().mean()
    network.zero_grad()
    loss = policy_loss + settings.critic_scale * critic_loss - settings.entropy_beta * entropy
    loss.backward()
    if settings.gradients_norm_clipping is not None:
        nn.utils.clip_grad_norm_(network.parameters(), settings.gradients_norm_clipping)
    losses = {"policy_loss": policy_loss, "critic_loss": critic_loss, "entropy": entropy}
    return (
        {name: weight.grad.numpy() for name, weight in network.named_parameters()},
        {name: value.item() for name, value in losses.items()},
    )

"""`Agent`: acts in one environment, and sends gradients to the parameter server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlwire.errors import optional

from .model import ActorCritic, gradients
from .settings import Settings

with optional("torch", "torch"):
    import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Agent:
    """The agent of one environment.

    An update without a reward begins an episode. With ``exploit`` the agent takes the most probable
    action, loads the newest weights at the start of each episode, and does not learn. Metrics: the
    losses and the entropy of each batch.
    """

    def __init__(self, parameter_server: Any, metrics: Any) -> None:
        self.session = parameter_server.session
        self.metrics = metrics
        self.settings = Settings.of(parameter_server.config)
        self.network = ActorCritic(self.settings)

    def init(self, exploit: bool = False) -> bool:
        self.exploit = exploit
        return self.reset()

    def reset(self) -> bool:
        self.last: tuple[NDArray[np.float32], Any] | None = None  # state and action
        self.begin_batch()
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> Any:
        """Learn from the last action; return the next one, an int or a list of floats.

        A list of rewards is summed. The last state of an episode may be None.
        """
        seen = self.seen(state) if state is not None or not terminal else None
        if reward is None:
            self.end_episode()
        elif self.last is not None and not self.exploit:
            self.learn(float(np.sum(reward)), seen, terminal)
        if terminal or seen is None:
            self.end_episode()
            return None
        action = self.act(seen)
        self.last = seen, action
        return self.sent(action)

    def seen(self, state: Any) -> NDArray[np.float32]:
        found = np.asarray([] if state is None else state, np.float32)
        if found.shape != self.settings.shape:
            raise ValueError(
                f"states must have shape {self.settings.shape} (algorithm/input/shape), not "
                f"{found.shape}"
            )
        return found.ravel() if found.size else np.zeros(1, np.float32)

    def act(self, seen: NDArray[np.float32]) -> NDArray[Any]:
        with torch.inference_mode():
            policy = self.network.policy(torch.from_numpy(seen)[None])
            chosen = policy.mode if self.exploit else policy.sample()
        return chosen[0].numpy()

    def sent(self, action: NDArray[Any]) -> int | list[float]:
        if not self.settings.continuous:
            return int(action)
        if self.settings.action_low:
            action = np.maximum(action, self.settings.action_low)
        if self.settings.action_high:
            action = np.minimum(action, self.settings.action_high)
        return action.tolist()

    def end_episode(self) -> None:
        if self.last is not None:
            if self.exploit:
                self.load()
            elif self.ends:
                self.ends[-1] = True
        self.last = None

    def begin_batch(self) -> None:
        self.load()
        self.states: list[NDArray[np.float32]] = []
        self.actions: list[NDArray[Any]] = []
        self.rewards: list[float] = []
        self.ends: list[bool] = []

    def load(self) -> None:
        weights, _ = self.session.op_get_weights_signed()
        self.network.load(weights)

    def learn(self, reward: float, seen: NDArray[np.float32] | None, terminal: bool) -> None:
        """Add a step to the batch; send the gradient of a full batch."""
        assert self.last is not None
        state, action = self.last
        self.states.append(state)
        self.actions.append(action)
        self.rewards.append(reward)
        self.ends.append(terminal)
        if len(self.states) < self.settings.batch_size:
            return
        found, losses = gradients(
            self.network,
            self.settings,
            np.stack([*self.states, state if seen is None else seen]),
            np.stack(self.actions),
            np.asarray(self.rewards, np.float32),
            np.asarray(self.ends),
        )
        self.session.op_submit_gradients(gradients=found, step_inc=len(self.states))
        for name, value in losses.items():
            self.metrics.scalar(name, value)
        self.begin_batch()

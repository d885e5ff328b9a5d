"""Small deterministic environments."""

import threading

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """Go left (0), nowhere (1), right (2), `length` times; the reward is the place. Step `fail`
    (0 is the reset) raises, `failures` times in all of `made`; steps wait for `gate`."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, length=20, truncate=False, fail=None, failures=1, gate=None, made=None):
        self.length = length
        self.truncate = truncate
        self.fail = fail
        self.failures = failures
        self.gate = gate
        self.closed = False
        self.seeds = []
        self.actions = []
        self.threads = {threading.current_thread().name}
        self.made = [] if made is None else made
        self.made.append(self)

    def _see(self):
        return np.array([self.place, self.steps, 1 / 3])

    def _maybe_fail(self):
        failed = sum(getattr(each, "failed", 0) for each in self.made)
        if self.steps == self.fail and failed < self.failures:
            self.failed = getattr(self, "failed", 0) + 1
            raise RuntimeError("the floor has given way")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.place = self.steps = 0
        self.threads.add(threading.current_thread().name)
        self._maybe_fail()
        return self._see(), {"mood": "good", "odd": object()}

    def step(self, action):
        if self.gate is not None:
            self.gate.wait(20)
        self.actions.append(int(action))
        self.place += int(action) - 1
        self.steps += 1
        self.threads.add(threading.current_thread().name)
        self._maybe_fail()
        over = self.steps >= self.length
        info = {"mood": "bad", "odd": object(), "count": np.int64(self.steps)}
        ends = over and not self.truncate, over and self.truncate
        return self._see(), float(self.place), *ends, info

    def close(self):
        self.threads.add(threading.current_thread().name)
        self.closed = True


class Crowd:
    """Parallel environment: agent n lives for n + 3 steps, sees the step and the last actions."""

    metadata = {"name": "crowd"}  # noqa: RUF012

    def __init__(self, agents=3, truncate=False, silent=False):
        self.possible_agents = [f"walker_{number}" for number in range(agents)]
        self.truncate = truncate
        self.silent = silent  # the dying are not told so
        self.unwrapped = self
        self.agents = []
        self.steps = 0

    def observation_space(self, agent):
        return spaces.Dict(
            {
                "step": spaces.Discrete(1000),
                "actions": spaces.Box(-9, 9, (len(self.possible_agents),), np.int64),
            }
        )

    def action_space(self, agent):
        return spaces.Box(-9, 9, (), np.int64)

    def _see(self, actions):
        seen = {
            "step": np.int64(self.steps),
            "actions": np.array([actions.get(agent, 0) for agent in self.possible_agents]),
        }
        return {agent: seen for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.steps = 0
        return self._see({}), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), "only the living act"
        self.steps += 1
        dead = [
            agent
            for number, agent in enumerate(self.possible_agents)
            if agent in self.agents and self.steps >= number + 3
        ]
        seen = self._see(actions)
        reported = {agent: agent in dead and not self.silent for agent in self.agents}
        never = dict.fromkeys(self.agents, False)
        rewards = {agent: float(actions[agent]) for agent in self.agents}
        infos = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if agent not in dead]
        ends = (never, reported) if self.truncate else (reported, never)
        return seen, rewards, *ends, infos

    def close(self):
        pass

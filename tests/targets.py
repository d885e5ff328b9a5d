"""What commands of tests serve and play: importable by name, and copied beside a program."""

import os

import gymnasium
import numpy as np
from gymnasium import spaces

made = []


class Agent:
    def __init__(self, parameter_server, metrics):
        self.parameter_server = parameter_server
        made.append(self)

    def init(self, exploit=False):
        return True

    def update(self, reward, state, terminal):
        return [self.parameter_server and self.parameter_server["weights"], os.getpid()]

    def reset(self):
        return True

    def close(self):
        if self in made:
            made.remove(self)


def parameters():
    return {"weights": [1, 2]}


class Floor(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, tilt=0.0, word=""):
        self.tilt, self.word = tilt, word
        made.append(self)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.array([self.tilt, 0.0]), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.tilt, self.steps]), 0.5, self.steps == 5, False, {}

    def close(self):
        if self in made:
            made.remove(self)


class Endless(Floor):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        if self.steps == 1:
            print("it steps", flush=True)
        return observation, reward, False, False, {}

    def close(self):
        print("it is closed", flush=True)


class Stuck(Floor):
    def step(self, action):
        raise RuntimeError("the arm is stuck")


class World:
    """A world of dm_env_rpc."""

    def __init__(self, settings):
        self.settings = settings

    def join(self, settings):
        pass

    reset = close = join

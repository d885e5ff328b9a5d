"""An algorithm that sums what its agents send: for tests that load it by path, and by name."""

import os
import threading
import time

import numpy as np

from rlwire.relaax import ParameterServer as Base
from rlwire.relaax import Session


class Model:
    op_constant = 3

    def __init__(self):
        self.total, self.steps = np.zeros((), np.float32), 0

    def op_get(self):
        return self.total, self.steps

    def op_add(self, number, scale=1.0):
        self.total = self.total + scale * np.asarray(number)
        self.steps += 1
        return self.steps

    def op_n_step(self):
        return np.int64(self.steps)

    def op_echo(self, *args, **kwargs):
        return [args, kwargs]

    def op_raise(self, text):
        raise ValueError(text)

    def op_pid(self):
        return os.getpid()

    def op_lock(self):
        return threading.Lock()

    def op_sleep(self, seconds):
        time.sleep(seconds)

    def state_dict(self):
        return {"total": self.total, "steps": self.steps}

    def load_state_dict(self, state):
        self.total, self.steps = state["total"], state["steps"]


class ParameterServer(Base):
    def init_session(self):
        if self.config.get("fail"):
            raise RuntimeError("no model today")
        model = Model()
        model.op_measure = lambda: self.metrics.scalar("loss", 0.5)
        self.session = Session(model)


class Agent:
    """Its action is the sum of all states."""

    def __init__(self, parameter_server, metrics=None):
        self.parameter_server, self.metrics = parameter_server, metrics

    def init(self, exploit=False):
        return True

    def update(self, reward, state, terminal):
        self.parameter_server.session.op_add(np.asarray(state))
        total, _ = self.parameter_server.session.op_get()
        if self.metrics is not None:
            self.metrics.scalar("total", float(total[0]))
        return (total * self.parameter_server.config.get("scale", 1)).tolist()

    def reset(self):
        return True

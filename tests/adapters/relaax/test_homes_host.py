"""What runs a parameter server: each call once, and what is measured goes with its answer.

In all homes: `test_homes`.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np

from rlwire.adapters.relaax import Algorithm, ParameterServer, Session
from rlwire.adapters.relaax.config import Options
from rlwire.adapters.relaax.homes_host import Host, Waiting
from rlwire.sessions.calls import Call
from tests.waiting import eventually


class Adding(ParameterServer):
    def init_session(self):
        self.weights, self.steps, self.met = np.zeros(3), 0, 0
        self.session = Session(self)

    def n_step(self):
        return self.steps

    def op_add(self, gradient):
        self.weights += gradient
        self.steps += 1
        self.metrics.scalar("loss", np.float32(0.5))
        return self.steps

    def op_meet(self, count, seconds):
        self.met += 1
        return self.wait_for(lambda: self.met >= count, seconds)

    def op_met(self):
        return self.met


def host():
    return Host(Algorithm("adding", object, Adding, Options()), None, Waiting())


def test_measurements_go_with_the_answer():
    at = host()
    call = Call(None, "me", 1, ["op_add"], [[1.0, 1.0, 1.0]], {})
    assert [each[:2] + each[3:] for each in at.answer(call).metrics] == [["scalar", "loss", 1]]
    assert at.answer(call._replace(number=2, names=["op_met"], args=[])).metrics == []


def test_a_call_that_comes_again_is_made_once():
    at = host()
    call = Call(None, "me", 1, ["op_add"], [[1.0, 1.0, 1.0]], {})
    first = at.answer(call)
    assert at.answer(call) == first
    other = at.answer(call._replace(client="you"))
    assert (first.value, other.value) == (1, 2)
    assert at.answer(call._replace(number=3)).value == 3
    late = at.answer(call._replace(number=2))
    assert late.kind == "error"
    assert "came late" in late.value[0]
    assert at.answer(call._replace(number=4, names=[])).value == 3


def test_a_call_to_a_server_of_before_is_not_made():
    at = host()
    call = Call(None, "me", 1, ["op_add"], [[1.0, 1.0, 1.0]], {})
    name = at.answer(call).server
    lost = host().answer(call._replace(server=name, number=2))
    assert (lost.kind, lost.value) == ("lost", None)
    assert lost.server != name


def test_one_that_waits_and_comes_again_is_made_once():
    at = host()
    call = Call(None, "one", 1, ["op_meet"], [2, 60.0], {})
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(at.answer(call))) for _ in range(2)]
    for thread in threads:
        thread.start()
    asks = itertools.count(1)

    def met():
        answer = at.answer(Call(None, "two", next(asks), ["op_met"], [], {}))
        return answer.value == 1

    eventually(met)
    assert answers == []
    assert at.answer(Call(None, "three", 1, ["op_meet"], [2, 60.0], {})).value is True
    for thread in threads:
        thread.join(60)
    assert [answer.value for answer in answers] == [True, True]
    assert at.run(["op_met"], [], {}, 1.0) == 2

"""Agents behind a connection: how they are made, called, and what their failures become."""

import logging

import numpy as np
import pytest

from rlwire.rlx.hosting import AgentFactory, AgentHandler
from tests import agents
from tests.agents import Recorder
from tests.memory import at_most
from tests.raising import raised

INIT = {"command": "init", "exploit": False}
RESET = {"command": "reset"}
UPDATE = {"command": "update", "reward": None, "state": [1.0], "terminal": False}


class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        return [reward, state, terminal]


def made(agent, metrics=None):
    return AgentFactory(agent, None, metrics or Recorder()).make()


def host_of(agent, metrics=None, init=True):
    host = AgentHandler(AgentFactory(agent, None, metrics or Recorder()), "peer:1")
    if init:
        assert host.answer(INIT) == {"response": "ready"}
    return host


def report(*entries):
    return {"command": "update_metrics", "data": list(entries)}


def entry(name="loss", y=0.5, x=1, method="scalar"):
    return {"method": method, "name": name, "y": y, "x": x}


def test_constructor_receives_metrics_by_name():
    class Named(Agent):
        def __init__(self, parameter_server, metrics):
            self.metrics = metrics

    class Keyword(Agent):
        def __init__(self, parameter_server, *, metrics=None):
            self.metrics = metrics

    class Optional(Agent):
        def __init__(self, parameter_server, rate=0.1, metrics=None):
            self.metrics = metrics
            self.rate = rate

    sink = Recorder()
    for agent in (Named, Keyword, Optional):
        assert made(agent, sink).metrics is sink
    assert made(Optional, sink).rate == 0.1


def test_agents_with_other_constructors_are_rejected():
    class NoArguments(Agent):
        def __init__(self):
            pass

    class TooMany(Agent):
        def __init__(self, parameter_server, metrics, more):
            pass

    for agent in (NoArguments, TooMany):
        assert "parameter_server" in str(raised(TypeError, made, agent))
    raised(TypeError, made, 3)


def test_agent_class_without_a_method_is_rejected():
    class Half:
        def __init__(self, parameter_server):
            pass

        def init(self, exploit):
            pass

    assert str(raised(TypeError, made, Half)).endswith("Half has no method update")


def test_commands_return_the_results_of_the_agent():
    host = host_of(Agent)
    action = {"response": "action", "data": [0.5, [1.0], False]}
    assert host.answer({**UPDATE, "reward": 0.5}) == action
    assert host.answer({"command": "update"})["data"] == [None, None, False]
    assert host.answer(RESET) == {"response": "done"}


def test_falsy_result_of_the_agent_is_an_error_reply():
    class Refusing(Agent):
        def init(self, exploit=False):
            return not exploit

        def reset(self):
            return None

    host = host_of(Refusing)
    for command, text in (
        ({**INIT, "exploit": True}, "can't initialize agent: the agent's init() returned "),
        (RESET, "can't reset agent: the agent's reset() returned "),
    ):
        reply = host.answer(command)
        assert reply["response"] == "error"
        assert reply["message"].startswith(text)


def test_agent_without_reset_is_served():
    class Three:
        def __init__(self, parameter_server):
            pass

        def init(self, exploit=False):
            return True

        def update(self, reward, state, terminal):
            return 3

    host = host_of(Three)
    assert host.answer(RESET) == {
        "response": "error",
        "message": "can't reset agent: agent Three has no method reset",
    }
    assert host.answer(UPDATE) == {"response": "action", "data": 3}


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("init", "can't initialize agent"), ("update", "can't update state"),
        ("reset", "can't reset agent"), ("update_metrics", "can't update metrics"),
    ],
)  # fmt: skip
def test_agent_exception_becomes_an_error_reply(command, text, error, caplog):
    caplog.set_level(logging.DEBUG, logger="rlwire")

    class Raising(Agent):
        broken = ""

        def __getattribute__(self, name):
            if name == object.__getattribute__(self, "broken"):
                raise error("boom")
            return super().__getattribute__(name)

    host = host_of(Raising)
    host._agent.broken = {"update_metrics": "metrics"}.get(command, command)
    reply = host.answer({**UPDATE, "command": command, "data": [entry()]})
    assert reply == {"response": "error", "message": f"{text}: {error.__name__}: boom"}
    traces = [record for record in caplog.records if record.exc_info]
    assert [record.levelname for record in traces] == ["ERROR"]
    host._agent.broken = ""
    assert host.answer(UPDATE)["response"] == "action"


def test_failed_constructor_is_an_error_reply_and_the_next_command_tries_again():
    class Broken(Agent):
        broken = True

        def __init__(self, parameter_server):
            if self.broken:
                raise OSError("no model")

    host = host_of(Broken, init=False)
    assert host.answer(INIT) == {
        "response": "error",
        "message": "can't initialize agent: OSError: no model",
    }
    Broken.broken = False
    assert host.answer(INIT) == {"response": "ready"}


def test_close_hook_is_called_once_per_agent():
    seen = []

    class Closing(Agent):
        def close(self):
            seen.append("close")
            raise SystemExit

    class Disconnected(Agent):
        def disconnected(self):
            seen.append("disconnected")

    for agent in (Closing, Disconnected, Agent):
        host = host_of(agent, init=False)
        host.close()  # no agent yet: nothing to close
        host.answer(INIT)
        host.close()
        host.close()
    assert seen == ["close", "disconnected"]


@pytest.mark.each(
    ("reward", "given"),
    [
        (str(np.float32(1.5)), 1.5), (str(np.float16(-2)), -2.0), (str(np.uint8(7)), 7.0),
        (str(np.bool_(True)), True), (["1.0", 2.0, "3"], [1.0, 2.0, 3.0]),
        ([1.0, 2.0], [1.0, 2.0]), ("much", "much"), (1, 1),
    ],
)  # fmt: skip
def test_rewards_as_text_are_decoded_to_numbers(reward, given):
    data = host_of(Agent).answer({**UPDATE, "reward": reward})["data"]
    assert data == [given, [1.0], False]
    assert type(data[0]) is type(given)


def test_text_reward_is_logged_on_one_line(caplog):
    host_of(Agent).answer({**UPDATE, "reward": "\nforged" + "x" * 10**6})
    [record] = caplog.records
    assert "peer:1: reward is text" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 500


def test_metrics_of_the_agent_receive_its_measures():
    own, sink = Recorder(), Recorder()

    class Own(Agent):
        def init(self, exploit=False):
            self.metrics = own
            return True

    host_of(Own, sink).answer(report(entry()))
    assert own.calls == [("loss", 0.5, 1)]
    assert sink.calls == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (entry("n" * 1001), "a metric's name has at most 1000 characters, not 1001"),
        (entry(method="__init__"), "not '__init__'"),
    ],
)
def test_command_with_an_invalid_measure_reports_none(wrong, text):
    sink = Recorder()
    host = host_of(Agent, sink)
    assert host.answer(report(entry("n" * 1000)))["response"] == "done"
    assert text in host.answer(report(entry(), wrong))["message"]
    assert len(sink.calls) == 1


def test_text_rewards_allocate_no_more_than_their_bytes():
    texts = ["1" * 100_000] + ["1"] * 200  # as an array of texts 80 MB
    host = host_of(Agent)
    with at_most(5_000_000):
        for reward in (texts, [texts]):
            assert host.answer({**UPDATE, "reward": reward})["response"] == "action"

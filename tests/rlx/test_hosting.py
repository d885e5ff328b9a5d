"""Agents behind a connection: how they are made, called, and what their failures become."""

import logging

import numpy as np
import pytest

from rlwire.rlx.hosting import AgentFactory, AgentHandler, RewardAverage
from tests import agents
from tests.agents import Recorder
from tests.memory import at_most
from tests.raising import raised

INIT = {"command": "init", "exploit": False}
UPDATE = {"command": "update", "reward": None, "state": [1.0], "terminal": False}


class Agent(agents.Agent):
    def __init__(self, parameter_server):
        pass

    def update(self, reward, state, terminal):
        return [reward, state, terminal]


def host_of(agent, parameter_server=None, metrics=None, hang_up=bool):
    factory = AgentFactory(agent, parameter_server, Recorder() if metrics is None else metrics)
    return AgentHandler(factory, "peer:1", hang_up)


def must_not():
    raise AssertionError("the agent could be made")


def metrics_command(*entries):
    return {"command": "update_metrics", "data": list(entries)}


def entry(name="loss", y=0.5, x=1, method="scalar"):
    return {"method": method, "name": name, "y": y, "x": x}


class TestConstruction:
    def made(self, agent, parameter_server=None, metrics=None):
        return AgentFactory(agent, parameter_server, metrics or Recorder()).make()

    def test_metrics_by_name(self):
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
        assert self.made(Named, metrics=sink).metrics is sink
        assert self.made(Keyword, metrics=sink).metrics is sink
        assert self.made(Optional, metrics=sink).metrics is sink
        assert self.made(Optional, metrics=sink).rate == 0.1

    def test_agents_with_other_constructors_are_rejected(self):
        class NoArguments(Agent):
            def __init__(self):
                pass

        class TooMany(Agent):
            def __init__(self, parameter_server, metrics, more):
                pass

        for agent in (NoArguments, TooMany):
            assert "parameter_server" in str(raised(TypeError, self.made, agent))
        raised(TypeError, self.made, 3)

    def test_a_class_without_the_methods(self):
        class Half:
            def __init__(self, parameter_server):
                pass

            def init(self, exploit):
                pass

        with pytest.raises(TypeError, match=r"Half has no method update$"):
            AgentFactory(Half, None, Recorder())


class TestAnswers:
    def test_commands(self):
        host = host_of(Agent)
        assert host.answer(INIT) == {"response": "ready"}
        assert host.answer({**UPDATE, "reward": 0.5}) == {
            "response": "action",
            "data": [0.5, [1.0], False],
        }
        assert host.answer({"command": "update"})["data"] == [None, None, False]
        assert host.answer({"command": "reset"}) == {"response": "done"}

    @pytest.mark.parametrize(
        ("command", "text"), [("init", "can't initialize agent"), ("reset", "can't reset agent")]
    )
    def test_a_falsy_result_refuses(self, command, text):
        class Refusing(Agent):
            def init(self, exploit=False):
                return command != "init"

            def reset(self):
                return None

        host = host_of(Refusing)
        replies = {"init": host.answer(INIT), "reset": host.answer({"command": "reset"})}
        assert replies[command]["response"] == "error"
        assert replies[command]["message"].startswith(f"{text}: the agent's {command}() returned ")

    def test_an_agent_without_reset_is_served(self):
        class Three:
            def __init__(self, parameter_server):
                pass

            def init(self, exploit=False):
                return True

            def update(self, reward, state, terminal):
                return 3

        host = host_of(Three, hang_up=must_not)
        assert host.answer(INIT) == {"response": "ready"}
        assert host.answer({"command": "reset"}) == {
            "response": "error",
            "message": "can't reset agent: agent Three has no method reset",
        }
        assert host.answer(UPDATE) == {"response": "action", "data": 3}

    @pytest.mark.parametrize("error", [ValueError, SystemExit])
    @pytest.mark.parametrize(
        ("command", "text"),
        [
            ("init", "can't initialize agent"),
            ("update", "can't update state"),
            ("reset", "can't reset agent"),
            ("update_metrics", "can't update metrics"),
        ],
    )
    def test_any_exception_becomes_an_error_reply(self, command, text, error, caplog):
        caplog.set_level(logging.DEBUG, logger="rlwire")

        class Raising(Agent):
            def __init__(self, parameter_server):
                self.broken = ""

            def __getattribute__(self, name):
                if name == object.__getattribute__(self, "__dict__").get("broken"):
                    raise error("boom")
                return super().__getattribute__(name)

        host = host_of(Raising, hang_up=must_not)
        host.answer(INIT)
        host._agent.broken = {"update_metrics": "metrics"}.get(command, command)
        reply = host.answer({**UPDATE, "command": command, "data": [entry()]})
        assert reply == {"response": "error", "message": f"{text}: {error.__name__}: boom"}
        traces = [record for record in caplog.records if record.exc_info]
        assert [record.levelname for record in traces] == ["ERROR"]
        host._agent.broken = ""
        assert host.answer(UPDATE)["response"] == "action"

    def test_a_constructor_that_raises(self):
        class Broken(Agent):
            def __init__(self, parameter_server):
                raise OSError("no model")

        calls = []
        host = host_of(Broken, hang_up=lambda: calls.append("hang up"))
        assert host.answer(INIT) == {
            "response": "error",
            "message": "can't initialize agent: OSError: no model",
        }
        assert calls == ["hang up"]

    def test_close_hooks(self):
        seen = []

        class Closing(Agent):
            def close(self):
                seen.append("close")
                raise SystemExit

        class Disconnected(Agent):
            def disconnected(self):
                seen.append("disconnected")

        for agent in (Closing, Disconnected, Agent):
            host = host_of(agent)
            host.close()  # no agent yet: nothing to close
            host.answer(INIT)
            host.close()
            host.close()
        assert seen == ["close", "disconnected"]


class TestText:
    @pytest.mark.parametrize(
        ("reward", "given"),
        [
            (str(np.float32(1.5)), 1.5), (str(np.float16(-2)), -2.0), (str(np.uint8(7)), 7.0),
            (str(np.bool_(True)), True), (["1.0", 2.0, "3"], [1.0, 2.0, 3.0]),
            ([1.0, 2.0], [1.0, 2.0]), ("much", "much"), (1, 1),
        ],
    )  # fmt: skip
    def test_rewards(self, reward, given):
        host = host_of(Agent)
        host.answer(INIT)
        data = host.answer({**UPDATE, "reward": reward})["data"]
        assert data == [given, [1.0], False]
        assert type(data[0]) is type(given)

    def test_reward_that_is_text_is_logged_on_one_line(self, caplog):
        host = host_of(Agent)
        host.answer(INIT)
        host.answer({**UPDATE, "reward": "\nforged" + "x" * 10**6})
        [record] = caplog.records
        assert "peer:1: reward is text" in record.getMessage()
        assert "\n" not in record.getMessage()
        assert len(record.getMessage()) < 500


class TestMetrics:
    def test_metrics_of_an_agent_receive_its_measures(self):
        own, sink = Recorder(), Recorder()

        class Own(Agent):
            def init(self, exploit=False):
                self.metrics = own
                return True

        host = host_of(Own, metrics=sink)
        host.answer(INIT)
        host.answer(metrics_command(entry()))
        assert own.calls == [("loss", 0.5, 1)]
        assert sink.calls == []

    def test_names_of_any_length_are_not_kept(self):
        sink = Recorder()
        host = host_of(Agent, metrics=sink)
        assert host.answer(metrics_command(entry("n" * 1000)))["response"] == "done"
        reply = host.answer(metrics_command(entry(), entry("n" * 1001)))
        assert "a metric's name has at most 1000 characters, not 1001" in reply["message"]
        assert len(sink.calls) == 1

    def test_a_sink_that_fails_does_not_fail_the_update(self, caplog):
        class Full(Recorder):
            def scalar(self, name, y, x=None):
                raise OSError("disk full")

        host = host_of(Agent, metrics=Full())
        host.answer(INIT)
        replies = [host.answer({**UPDATE, "reward": 1.0})["response"] for _ in range(100)]
        assert replies == ["action"] * 100
        assert "can't report average_reward" in caplog.text


@pytest.mark.parametrize(
    ("rewards", "averages"),
    [
        ([1.0, 2.0, 3.0, 5.0], [1.5, 4.0]),
        ([1, True, np.float32(3.0), np.int64(5)], [1.0, 4.0]),
        ([[1.0, 2.0], [3.0, 5.0, 10.0]], [1.5, 6.0]),
        ([np.array([1.0, 2.0]), np.zeros((0,))], [1.5]),
        (["text", {}, [None], [[1.0], [1.0, 2.0]], object(), 4.0, 6.0], [5.0]),
    ],
)
def test_reward_average(rewards, averages):
    seen = []
    average = RewardAverage(seen.append, 2)
    for reward in rewards:
        average.append(reward)
    assert seen == averages


def test_texts_allocate_no_more_than_their_bytes():
    texts = ["1" * 100_000] + ["1"] * 200  # as an array of texts 80 MB
    with at_most(5_000_000):
        for reward in (texts, [texts]):
            host = host_of(Agent)
            host.answer(INIT)
            assert host.answer({**UPDATE, "reward": reward})["response"] == "action"

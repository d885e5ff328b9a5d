"""TrainingBase: episodes, the command line, and servers that die."""

import pytest

from rlwire.errors import PeerError
from rlwire.rlx import AgentProxyException, Server, TrainingBase, client
from rlwire.transports.sockets import Backoff
from tests import agents
from tests.agents import Recorder
from tests.raising import raised

QUICK = Backoff(deadline=None, first=0.01, longest=0.02)


class Agent(agents.Agent):
    def init(self, exploit=False):
        INITS.append(exploit)
        return True

    def update(self, reward, state, terminal):
        return state


INITS = []


@pytest.fixture(autouse=True)
def _no_inits():
    INITS.clear()


@pytest.fixture
def sink():
    return Recorder()


@pytest.fixture
def server(sink):
    with Server(Agent, "127.0.0.1:0", metrics=sink) as running:
        yield running


class Training(TrainingBase):
    """Does `during(number)` in each episode."""

    def __init__(self, *args, during=lambda number: None, **options):
        super().__init__(*args, backoff=QUICK, **options)
        self.numbers = []
        self.during = during

    def episode(self, number):
        self.numbers.append(number)
        assert self.agent.update(state=[number]) == [number]
        return self.during(number)


@pytest.mark.parametrize("name", ["episode_reward", "game_score"])  # the program's, the document's
def test_training_runs_each_episode_and_reports_its_reward(server, sink, name):
    training = Training(
        server.address, max_episodes=3, during=lambda number: None if number == 1 else number / 2
    )
    training.reward_metric = name
    training.run()
    assert training.numbers == [0, 1, 2]
    assert sink.calls == [(name, 0.0, None), (name, 1.0, None)]
    assert INITS == [False]
    assert "no connection" in str(raised(AgentProxyException, training.agent.update))


class Enough(Exception):
    pass


def test_exception_ends_an_infinite_run(server, caplog):
    def during(number):
        if number == 5:
            raise Enough("that will do")

    training = Training(server.address, infinite_run=True, during=during)
    raised(Enough, training.run)
    assert training.numbers == [0, 1, 2, 3, 4, 5]
    assert "that will do" in caplog.text
    assert "no connection" in str(raised(AgentProxyException, training.agent.update))


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_training_repeats_a_failed_episode_on_the_next_server(server, workers, caplog):
    def during(number):
        if number == 1:
            first.stop()  # does nothing the second time
            agent.update()

    first = Server(Agent, "127.0.0.1:0", workers=workers).start()
    training = Training([first.address, server.address], max_episodes=3, during=during)
    agent = training.agent
    training.run()
    assert training.numbers == [0, 1, 1, 2]
    assert INITS == [False, False]
    assert training.agent is agent
    assert agent.address == server.address
    assert "episode 1 failed" in caplog.text


def test_training_fails_when_every_server_is_lost(server, caplog, monkeypatch):
    def during(number):
        server.stop()
        training.agent.update()

    monkeypatch.setattr(client, "SILENCE", 0.0)
    training = Training(server.address, max_episodes=2, during=during)
    caught = raised(AgentProxyException, training.run)
    assert f"RLX server {server.address}" in str(caught)
    assert isinstance(caught, OSError)
    assert training.numbers == [0]
    assert caplog.text.count("waiting for an RLX server") == 1


def test_training_tries_each_refusing_server_once():
    class Refusing(Agent):
        def init(self, exploit=False):
            super().init(exploit)
            return False

    with Server(Refusing, "127.0.0.1:0") as first, Server(Refusing, "127.0.0.1:0") as second:
        caught = raised(AgentProxyException, Training([first.address, second.address]).run)
    assert "can't initialize agent" in str(caught)
    assert len(INITS) == 2
    assert isinstance(caught.__cause__.__cause__, PeerError)


def test_training_stops_after_the_retries_of_an_episode():
    class Failing(Agent):
        def update(self, reward, state, terminal):
            if state == [1]:
                raise ValueError("never")
            return state

    with Server(Failing, "127.0.0.1:0") as server:
        training = Training(server.address, max_episodes=2)
        training.retries = 3
        assert "never" in str(raised(AgentProxyException, training.run))
    assert training.numbers == [0, 1, 1, 1]


def test_empty_list_of_servers_is_rejected():
    assert "at least one address" in str(raised(ValueError, TrainingBase, []))

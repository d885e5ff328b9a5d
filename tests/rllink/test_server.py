"""Simulators and a trainer over sockets."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlwire
from rlwire.codecs.rllink import Codec, Episodes, EpisodesAndGetState, GetState, Ping, Pong
from rlwire.errors import ConnectionClosed, PeerError, RemoteProtocolError, RlwireError
from rlwire.rllink import AsyncClient, Client, Episode, Server, SetConfig, SetState
from rlwire.rllink.server import LearnerServer
from rlwire.serving.threads import Worker
from rlwire.transports.sockets import Backoff, Timeouts
from tests.raising import raised, raised_with
from tests.waiting import eventually

WEIGHTS = {"rl_module": {"w": np.ones((10, 10), np.float32)}}
URL = "rllink://127.0.0.1:0"
CARTPOLE = "gym:CartPole-v1"


def episode(steps=5, started=0):
    return Episode(
        np.zeros((steps + 1, 4), np.float32), np.zeros(steps, int), np.ones(steps), started=started
    )


def lengths(episodes):
    return [len(each) for each in episodes]


@pytest.fixture
def server():
    with Server("127.0.0.1:0", config=SetConfig(10, True)) as server:
        server.set_state(SetState(1, WEIGHTS))
        yield server


def client_of(server, **options):
    return Client(str(server.address), timeout=Timeouts(idle=30), **options)


class Apart:
    """A client in a thread of its own, so that the test may go on while it waits."""

    def __init__(self, server):
        self._pool = ThreadPoolExecutor(1)
        self.client = client_of(server)

    def __enter__(self):
        self.do("connect").result(30)
        return self

    def __exit__(self, *error):
        self.do("close").result(30)
        self._pool.shutdown()

    def do(self, name, *arguments, **options):
        return self._pool.submit(getattr(self.client, name), *arguments, **options)


class Counting:
    """A learner whose weights are how many times it has learnt."""

    def __init__(self):
        self.times = 1
        self.steps = 0
        self.batches = []

    def get_state(self):
        return SetState(1, {"times": np.array([1])})

    def learn(self, episodes):
        self.times += 1
        self.batches.append(episodes)
        self.steps += sum(lengths(episodes))
        return SetState(self.times, {"times": np.array([self.times])})


def test_client_and_server_exchange_config_weights_and_episodes(server):
    with Apart(server) as client:
        assert client.do("get_config").result(30) == SetConfig(10, True)
        assert client.do("get_state").result(30).weights_seq_no == 1
        answer = client.do("send", [episode()])
        assert lengths(server.sample(30)) == [5]
        assert not answer.done()
        server.set_state(SetState(2, WEIGHTS))
        weights = answer.result(30)
        assert weights.weights_seq_no == 2
        assert client.client.weights is weights
        np.testing.assert_array_equal(weights.state["rl_module"]["w"], WEIGHTS["rl_module"]["w"])
        assert client.do("send", [episode(3)], wait=False).result(30) is None
        assert lengths(server.sample(30)) == [3]
        done = server.statistics()
        names = ("open", "waiting", "episodes", "steps")
        assert [done[name] for name in names] == [1, 0, 2, 8]


async def test_async_client_sends_episodes_and_receives_weights(server):
    async with AsyncClient(str(server.address)) as client:
        assert (await client.get_config()).env_steps_per_sample == 10
        sending = asyncio.create_task(client.send([episode()]))
        await asyncio.to_thread(server.sample, 30)
        server.set_state(SetState(9, WEIGHTS))
        assert (await sending).weights_seq_no == 9


def test_only_sampled_episodes_are_answered_with_new_weights(server):
    with Apart(server) as client:
        answer = client.do("send", [episode()])
        eventually(lambda: server.statistics()["queued"])
        server.set_state(SetState(2, WEIGHTS))  # learnt from others' episodes
        assert server.statistics()["waiting"] == 1
        server.sample(30)
        server.set_state(SetState(3, WEIGHTS))
        assert answer.result(30).weights_seq_no == 3


def test_sampled_client_gets_the_same_weights_if_more_steps_are_needed(server):
    with Apart(server) as client, ThreadPoolExecutor(1) as pool:
        answer = client.do("send", [episode(3)])
        assert lengths(server.sample(30)) == [3]
        more = pool.submit(server.sample, 30)
        assert answer.result(30).weights_seq_no == 1
        client.do("send", [episode(4)], wait=False)
        assert lengths(more.result(30)) == [4]


def test_wrong_step_count_is_an_error_reply_with_both_counts(server):
    with client_of(server) as client:
        client._connection.send(Episodes([episode(3)], 128))
        raised_with(PeerError, r"128.*3 steps", client.get_state)
        client.connect()
        server.set_state(SetState(2, onnx=b"model"))
        assert client.get_state().weights_seq_no == 2


def test_sampled_episodes_carry_their_weights_seq_no(server):
    with client_of(server) as client:
        client.send([episode(3)], wait=False)
        client.get_state()
        client.send([episode(4)], wait=False)
        sampled = []
        while len(sampled) < 2:
            sampled += server.sample(30)
    assert [(len(each), each.weights_seq_no) for each in sampled] == [(3, None), (4, 1)]


@pytest.mark.parametrize("on_policy", [True, False])
def test_on_policy_server_discards_stale_episodes(on_policy):
    with (
        Server("127.0.0.1:0", config=SetConfig(10, on_policy)) as server,
        Apart(server) as queued,
        client_of(server) as late,
    ):
        server.set_state(SetState(1, WEIGHTS))
        for state in (queued.do("get_state").result(30), late.get_state()):
            assert state.weights_seq_no == 1
        answer = queued.do("send", [episode(3)], wait=True)
        eventually(lambda: server.statistics()["queued"] == 3)
        server.set_state(SetState(2, WEIGHTS))
        for steps in (4, 5):
            late.send([episode(steps)], wait=False)
            late.get_state()
        assert lengths(server.sample(30)) == ([5] if on_policy else [3, 4, 5])
        if not on_policy:
            server.set_state(SetState(3, WEIGHTS))
        assert answer.result(30).weights_seq_no == (2 if on_policy else 3)
        done = server.statistics()
        assert (done["stale"], done["queued"]) == (7 if on_policy else 0, 0)


def test_terminated_and_truncated_are_both_sent_in_msgpack(server):
    both = episode(2)
    both.terminated = both.truncated = True
    for form in ("msgpack", "json"):
        with client_of(server, form=form) as client:
            client.send([both], wait=False)
            [got] = server.sample(30)
            # In JSON the server may be another: what is terminal is not bootstrapped.
            assert (got.terminated, got.truncated) == (True, form == "msgpack")


@pytest.fixture
def document_server():
    """Rejects what is not one of the document's messages; yields its URL and batches."""

    def serve():
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            with sock, sock.makefile("rb") as stream:
                while head := stream.read(8):
                    message = json.loads(stream.read(int(head)))
                    if message["type"] == "PING":
                        reply = Pong()
                    elif message["type"] == "GET_CONFIG":
                        reply = SetConfig(10, False)
                    elif message["type"] == "EPISODES_AND_GET_STATE":
                        batches.append(message)
                        reply = SetState(len(batches), onnx=b"model")
                    else:
                        break
                    sock.sendall(Codec().encode(reply, "json"))

    batches = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"rllink://127.0.0.1:{listener.getsockname()[1]}", batches


def test_play_sends_documented_messages_to_a_documented_server(document_server):
    pytest.importorskip("gymnasium")
    url, batches = document_server
    used = []

    def policy(observation, weights):
        assert weights.onnx == b"model"
        used.append(weights.weights_seq_no)
        return 1

    totals = rlwire.play(CARTPOLE, url, policy=policy, episodes=3, form="json")
    first, *others = batches
    assert first["episodes"] == []
    assert sum(batch["env_steps"] for batch in others) == sum(totals)
    assert all(batch["env_steps"] == 10 for batch in others[:-1])
    assert used[:11] == [1] * 10 + [2]


def test_play_sends_batches_of_the_configured_size():
    pytest.importorskip("gymnasium")
    learner, used = Counting(), []

    def policy(observation, weights):
        used.append(weights.weights_seq_no)
        return 1, {"action_logp": np.float32(-0.5)}

    with rlwire.serve(learner, URL, steps=16) as server:
        totals = rlwire.play(CARTPOLE, server.url, episodes=6, policy=policy, seed=1)
    *full, last = [sum(lengths(batch)) for batch in learner.batches]
    assert len(totals) == 6
    assert set(full) == {16}
    assert 0 < last <= 16
    assert sum(totals) == learner.steps == len(used)
    assert used == sorted(used)
    assert used[-1] > 1
    pieces = [piece for batch in learner.batches for piece in batch]
    assert sum(piece.terminated for piece in pieces) == 6
    assert all(piece.outputs["action_logp"].shape == (len(piece),) for piece in pieces)


def test_off_policy_play_updates_its_weights_with_each_batch():
    pytest.importorskip("gymnasium")
    used = []
    with Server("127.0.0.1:0", config=SetConfig(5, False)) as server:
        server.set_state(SetState(1, WEIGHTS))

        def policy(observation, weights):
            used.append(weights.weights_seq_no)
            server.set_state(SetState(len(used) + 1, WEIGHTS))
            return 1

        rlwire.play(CARTPOLE, server.url, policy=policy, episodes=2)
    assert used[:10] == [1] * 5 + [6] * 5  # those that there were when a batch was sent


def test_play_reconnects_to_a_restarted_trainer():
    pytest.importorskip("gymnasium")
    first, second = Counting(), Counting()
    server = rlwire.serve(first, URL, steps=8)
    begun, stopped = threading.Event(), threading.Event()

    def policy(observation, weights):
        if first.steps >= 16:
            begun.set()
            assert stopped.wait(60)  # else all episodes may be over before
        return 1

    with ThreadPoolExecutor() as pool:
        playing = pool.submit(
            rlwire.play, CARTPOLE, server.url, episodes=40, policy=policy,
            backoff=Backoff(attempts=100, first=0.02, longest=0.1, deadline=30),
        )  # fmt: skip
        assert begun.wait(60)
        server.stop()
        stopped.set()
        # One that is killed may still take a connection, and drop it.
        with socket.create_server(("127.0.0.1", server.address.port)) as dying:
            dying.settimeout(60)
            dying.accept()[0].close()
        with rlwire.serve(second, server.url, steps=8):
            assert len(playing.result(60)) == 40
    assert second.steps > 0
    assert all(sum(lengths(batch)) == 8 for batch in second.batches[:-1])


def test_learner_gets_each_step_once_in_one_thread_at_a_time():
    class Slow(Counting):
        at_work = threading.Lock()

        def learn(self, episodes):
            with contextlib.ExitStack() as stack:
                assert self.at_work.acquire(blocking=False)
                stack.callback(self.at_work.release)
                time.sleep(0.002)
                return super().learn(episodes)

    def send(url, wait):
        with rlwire.connect(url) as client:
            assert client.get_config() == SetConfig(20, True)
            held = [client.send([episode()], wait=wait) for _ in range(30)]
            numbers = [one.weights_seq_no for one in held if one is not None]
            assert numbers == sorted(set(numbers))  # newer ones each time
        return 30 * len(episode())

    learner = Slow()
    with rlwire.serve(learner, URL, steps=20) as server, ThreadPoolExecutor(6) as pool:
        sent = sum(pool.map(send, [server.url] * 6, [True, True, True, True, False, None]))
        eventually(lambda: learner.steps + server.statistics()["stale"] == sent)
        assert server.statistics()["queued"] == 0


@pytest.mark.parametrize("error", [RuntimeError("no gradient"), SystemExit("no gradient")])
def test_failed_learner_stops_its_server_with_an_error(error, caplog):
    class Failing(Counting):
        def learn(self, episodes):
            raise error

    def send():
        eventually(lambda: server._stopping)
        with rlwire.connect(server.url) as client:
            client.send([episode()])

    with rlwire.serve(Failing(), URL) as server, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        raised(RlwireError, server.serve_forever)
        assert isinstance(sending.exception(30), (ConnectionClosed, OSError))
    assert "no gradient" in caplog.text


def test_learner_without_weights_at_the_start_stops_its_server(caplog):
    class Without(Counting):
        def get_state(self):
            raise RuntimeError("no checkpoint")

    with rlwire.serve(Without(), URL) as server:
        raised(RlwireError, server.serve_forever)
    assert "no checkpoint" in caplog.text


@pytest.mark.parametrize("wait", [True, False])
def test_learner_that_returns_no_weights_stops_its_server(wait, caplog):
    class Wrong(Counting):
        def learn(self, episodes):
            return {"times": 2}

    with rlwire.serve(Wrong(), URL) as server, Apart(server) as client:
        client.do("get_state").result(30)
        sending = client.do("send", [episode()], wait=wait)
        assert wait or server.wait(30)  # before and after serve_forever begins
        raised_with(RlwireError, "learn.*SetState.*dict", server.serve_forever)
        assert not wait or isinstance(sending.exception(30), (ConnectionClosed, OSError))
    assert "SetState" in caplog.text


@pytest.mark.parametrize("wait", [True, False])
def test_server_learns_again_when_it_is_started_after_a_failure(wait):
    class Once(Counting):
        def learn(self, episodes):
            if not self.batches:
                self.batches.append(episodes)
                raise RuntimeError("no gradient")
            return super().learn(episodes)

    server = rlwire.serve(Once(), URL)
    with Apart(server) as client:
        client.do("get_state").result(30)
        client.do("send", [episode()], wait=wait)
        assert server.wait(30)
    with server.start(), client_of(server) as client:
        client.get_state()
        assert client.send([episode()], wait=True).weights_seq_no == 2


def test_restarted_learner_has_its_first_weights_before_it_learns():
    go_on = threading.Event()

    class Slow(Counting):
        def get_state(self):
            assert go_on.wait(60)
            return super().get_state()

        def learn(self, episodes):
            assert go_on.is_set()
            return super().learn(episodes)

    go_on.set()
    server = rlwire.serve(Slow(), URL)
    with Apart(server) as client:
        client.do("get_state").result(30)
    server.stop()
    go_on.clear()
    with server.start(), Apart(server) as client:
        sending = client.do("send", [episode()], wait=True)
        eventually(lambda: server.statistics()["episodes"])
        go_on.set()
        assert sending.result(30).weights_seq_no == 2


def test_abandoned_learner_leaves_the_next_run_to_the_next_one(monkeypatch):
    learning, may_end, begun, may_begin = (threading.Event() for _ in range(4))

    class Slow(Counting):
        def get_state(self):
            if learning.is_set():
                begun.set()
                assert may_begin.wait(60)
            return super().get_state()

        def learn(self, episodes):
            learning.set()
            assert may_end.wait(60)
            return super().learn(episodes)

    server = rlwire.serve(Slow(), URL)
    with Apart(server) as client:
        client.do("get_state").result(30)
        client.do("send", [episode()], wait=False)
        assert learning.wait(30)
    abandoned, stop = server._worker, Worker.stop
    monkeypatch.setattr(Worker, "stop", lambda self, timeout: stop(self, 0.1))
    server.stop()
    monkeypatch.undo()
    with server.start(), Apart(server) as client:
        assert begun.wait(30)
        sending = client.do("send", [episode()], wait=True)
        eventually(lambda: server.statistics()["episodes"] == 2)
        may_end.set()
        assert abandoned.stop(30)
        may_begin.set()
        assert sending.result(30).weights_seq_no == 3
        assert client.do("send", [episode()], wait=True).result(30).weights_seq_no == 4


def test_weights_of_another_type_are_rejected(server):
    raised_with(TypeError, "SetState.*dict", server.set_state, WEIGHTS)
    assert server.statistics()["weights_seq_no"] == 1


@pytest.mark.parametrize("wait", [True, False])
def test_learnt_weights_pass_through_an_overridden_set_state(wait):
    class Seen(LearnerServer):
        numbers = ()

        def set_state(self, state):
            self.numbers += (state.weights_seq_no,)
            super().set_state(state)

    with Seen(Counting(), "127.0.0.1:0") as server, client_of(server) as client:
        client.get_state()
        client.send([episode()], wait=wait)
        eventually(lambda: server.numbers == (1, 2))
        assert client.get_state().weights_seq_no == 2


def test_server_rejects_a_missing_or_invalid_token(caplog):
    with Server("127.0.0.1:0", auth="secret") as server:
        server.set_state(SetState(1, WEIGHTS))
        with client_of(server, auth="secret") as client:
            assert client.get_state().weights_seq_no == 1
        for token, words in (("guess", "wrong token"), (None, "none")):
            raised(ConnectionClosed, client_of(server, auth=token).connect)
            eventually(lambda words=words: words in caplog.text)
    raised(ValueError, Server, auth="")


def mismatched():
    """Two episodes, of which the second has actions for two of its three steps."""
    state = episode(3).to_state()
    state["actions"]["data"] = state["actions"]["data"][:2]
    return Codec().encode(EpisodesAndGetState([episode(3).to_state(), state], 6))


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", " 8 digits"),
        (Codec().encode(GetState())[:-3], "closed by the peer after 21 of 24 message bytes"),
        (mismatched(), "for 3 rewards"),
        (
            Codec().encode(EpisodesAndGetState([episode(3).to_document()], 128), "json"),
            "env_steps is 128, but the episodes have 3 steps",
        ),
    ],
)
def test_invalid_client_does_not_disturb_others(server, garbage, words, caplog):
    with (
        client_of(server) as good,
        socket.create_connection((server.address.host, server.address.port)) as bad,
    ):
        bad.settimeout(30)
        bad.sendall(garbage)
        bad.shutdown(socket.SHUT_WR)
        # A client that has sent a message is told why.
        reported = bad.makefile("rb").read()
        assert not reported or words in Codec().decode(reported).message
        assert bool(reported) == (b"EPISODES" in garbage)
        eventually(lambda: words in caplog.text)
        assert server.statistics()["episodes"] == 0
        assert good.get_state().weights_seq_no == 1
        good.send([episode(3)], wait=False)
        assert lengths(server.sample(30)) == [3]


def test_server_keeps_the_episodes_of_a_disconnected_client(server):
    with client_of(server) as client:
        with socket.create_connection((server.address.host, server.address.port)) as bad:
            bad.sendall(Codec().encode(Ping()))
            assert bad.recv(1000)
            bad.sendall(Codec().encode(EpisodesAndGetState([episode(2).to_state()], 2)))
            eventually(lambda: server.statistics()["queued"])
        assert lengths(server.sample(30)) == [2]  # what was sent counts
        server.set_state(SetState(2, WEIGHTS))
        # It might have closed its sending half alone: only now it shows.
        eventually(lambda: server.statistics()["open"] == 1)
        assert client.get_state().weights_seq_no == 2


def test_stop_disconnects_waiting_clients():
    with (
        Server("127.0.0.1:0", backlog=1) as server,
        Apart(server) as waiting,
        Apart(server) as held,
    ):
        state = waiting.do("get_state")
        eventually(lambda: server.statistics()["waiting"] == 1)
        held.do("send", [episode()], wait=False).result(30)
        eventually(lambda: server.statistics()["queued"] == 5)
        begun = time.monotonic()
        server.stop(60)  # long before its grace time ends
        raised((ConnectionClosed, OSError), state.result, 30)
        assert time.monotonic() - begun < 20


def test_full_backlog_delays_replies_until_sampling():
    with Server("127.0.0.1:0", backlog=10) as server, Apart(server) as client:
        server.set_state(SetState(1, WEIGHTS))
        client.do("send", [episode(11)], wait=False)
        asking = client.do("get_state")
        eventually(lambda: server.statistics()["queued"] == 11)
        raised(TimeoutError, asking.result, 0.2)
        assert len(server.sample(30)) == 1
        assert asking.result(30).weights_seq_no == 1


def test_client_rejects_older_weights(server):
    with client_of(server) as client:
        server.set_state(SetState(5, WEIGHTS))
        held = client.get_state()
        server.set_state(SetState(4, WEIGHTS))
        assert "weights 4 after 5" in str(raised(RemoteProtocolError, client.get_state))
        assert client.weights is held
        assert client.closed
        raised(ConnectionClosed, client.get_state)

"""`UniverseEnv` over rewarders and screens at whose other end is the test: the semantics."""

import inspect
import re
import time
from pathlib import Path

import numpy as np
import pytest

from rlwire.errors import ConnectionClosed, EncodeError, LocalProtocolError
from rlwire.universe import UniverseEnv
from rlwire.universe.input import PEEK, key, pointer
from tests.raising import raised
from tests.waiting import eventually

GAUGES = "stats.gauges.diagnostics."


@pytest.fixture
def started(rewarder, vector):
    def start():
        server = rewarder()
        play = vector(server)
        play.env.reset()
        play.until_seen()
        return server, play

    return start


def test_reset_and_step_never_block(rewarder, vector):
    """No rewarder answers a reset here, so whoever waited would wait for ever."""
    servers = [rewarder(on_reset=lambda request: None) for _ in range(2)]
    play = vector(*servers)
    assert "reset" in str(raised(LocalProtocolError, play.step))
    assert play.env.reset() == [None, None]
    observations, rewards, dones, info = play.step()
    assert (observations, rewards, dones) == ([None, None], [0.0, 0.0], [False, False])
    assert [each["mask.masked.observation"] for each in info["n"]] == [True, True]
    play.until(lambda *step: not any("env_status.disconnected" in each for each in step[3]))
    assert play.step()[0] == [None, None]


def test_observation_and_status_of_a_step_are_documented(rewarder, vector, screen_of):
    server = rewarder()
    play = vector(server)
    play.env.reset()
    observations, *_, infos = play.until_seen()
    assert observations[0]["vision"] is None  # nothing was painted yet
    assert infos[0]["env_status.env_state"] == "running"
    screen_of(server).show(7)
    server.text("hello")
    server.reward(1.5, info={"lives": 3, "stats.n": 1})
    server.reward(2.0, info={"lives": 2, "stats.n": 1})
    seen, rewards, dones, infos = play.gather(lambda *step: step[3][0]["stats.reward.count"] == 2)
    assert seen[0]["text"] == ["hello"]
    np.testing.assert_array_equal(seen[0]["vision"], np.full((6, 8, 3), 7, np.uint8))
    assert not seen[0]["vision"].flags.writeable
    assert (rewards, dones) == ([3.5], [False])
    assert (infos[0]["lives"], infos[0]["stats.n"]) == (2, 2)
    assert infos[0]["stats.vnc.updates.n"] == 1
    assert infos[0]["stats.vnc.updates.pixels"] == 48
    assert infos[0]["env_status.episode_id"] == server.episode_id
    again, rewards, *_ = play.step()
    assert again[0]["vision"] is seen[0]["vision"]  # nothing new
    assert (again[0]["text"], rewards) == ([], [0.0])
    screen_of(server).show(9)
    newer = play.step()[0]
    assert newer[0]["vision"][0, 0, 0] == 9
    assert seen[0]["vision"][0, 0, 0] == 7  # what was given stays what it was


def test_actions_go_to_the_screen_and_others_to_the_rewarder(started, screen_of, wait_for):
    server, play = started()
    play.step([("KeyEvent", "Left", True), pointer(3, 4, 1), ("Joystick", 0.5)])
    assert screen_of(server).sent == [key("Left", True), pointer(3, 4, 1)]
    acted = []
    wait_for(lambda: acted.extend(server.actions()) or acted)
    assert [list(event) for event in acted[0].action] == [["Joystick", 0.5]]
    with pytest.raises(EncodeError, match=r"1 actions.* 2"):
        play.env.step([[], []])
    assert "KeyEvent" in str(raised(EncodeError, play.env.step, [[("KeyEvent", "nokey", True)]]))


def test_without_pixels_keys_go_to_the_rewarder(rewarder, vector, wait_for):
    server = rewarder()
    play = vector(server, pixels=False)
    play.env.reset()
    observations, *_ = play.until_seen()
    assert observations == [{"vision": None, "text": []}]
    play.step([("KeyEvent", "a", True), ("PointerEvent", 1, 2, 0)])
    acted = []
    wait_for(lambda: acted.extend(server.actions()) or acted)
    events = [list(event) for event in acted[0].action]
    assert events == [["KeyEvent", 97, True], ["PointerEvent", 1, 2, 0]]


def test_without_a_rewarder_there_are_pixels(vector, screens):
    play = vector("vnc://a:5900,b:5900")
    assert play.env.reset() == [None, None]
    play.until_seen()
    screens.at("b:5900").show(3)
    observations, rewards, dones, info = play.step([key("a", True)], [])
    assert observations[1]["vision"][0, 0, 0] == 3
    assert (rewards, dones) == ([0.0, 0.0], [False, False])
    assert screens.at("a:5900").sent == [key("a", True)]
    assert "mask.masked.action" not in info["n"][0]


def test_final_step_has_the_old_rewards_and_the_new_pixels(started, screen_of):
    server, play = started()
    first = server.episode_id
    screen_of(server).show(1)
    server.text("old")
    server.reward(1.0, True, {"why": "lost"})
    second = server.begin_episode()
    server.text("new")
    server.reward(10.0)
    episodes = play.env.links[0].client.session.episodes
    play.until(lambda *_: episodes.newest.episode_id == second and episodes.newest.count, [PEEK])
    observations, rewards, dones, info = play.step()
    assert (rewards, dones) == ([1.0], [True])
    reported = info["n"][0]
    assert reported["why"] == "lost"
    assert reported["env_status.complete.episode_id"] == first
    assert reported["env_status.complete.env_state"] == "running"
    assert (reported["env_status.episode_id"], reported["env_status.env_state"]) == (
        second,
        "running",
    )
    assert "env_status.artificial.done" not in reported
    assert observations[0]["text"] == ["new"]
    observations, rewards, dones, info = play.step()
    assert (observations[0]["text"], rewards, dones) == ([], [10.0], [False])
    assert "env_status.complete.episode_id" not in info["n"][0]


def test_resetting_environment_is_masked_and_resumes_by_itself(started, screen_of):
    server, play = started()
    screen = screen_of(server)
    screen.show(1)
    server.reward(4.0, True)
    second = server.begin_episode(env_state="resetting")
    _, rewards, _, _ = play.gather(lambda *step: step[2][0])
    assert rewards == [4.0]  # the end's reward is not masked
    play.until(lambda seen, *_: seen[0] is None)
    screen.sent.clear()
    observations, _, dones, info = play.step([key("a", True)])
    assert (observations, dones) == ([None], [False])
    assert info["n"][0]["mask.masked.action"]
    assert info["n"][0]["mask.masked.observation"]
    assert screen.sent == []
    screen.show(2)
    server.describe(env_state="running")
    observations, *_, infos = play.until_seen()
    assert observations[0]["vision"][0, 0, 0] == 2
    assert infos[0]["env_status.episode_id"] == second
    play.step([key("a", True)])
    assert screen.sent == [key("a", True)]


def test_replaced_episode_is_ended_artificially(started):
    server, play = started()
    first = server.episode_id
    server.reward(2.0)
    server.begin_episode()
    _, rewards, _, infos = play.gather(lambda *step: step[2][0])
    assert infos[0]["env_status.artificial.done"]
    assert infos[0]["env_status.complete.episode_id"] == first
    assert rewards == [2.0]


def test_reset_drops_earlier_pushes(rewarder, vector):
    requests = []
    server = rewarder(on_reset=requests.append)
    play = vector(server)
    play.env.reset()
    play.until(lambda *_: requests)
    server.begin_episode(requests.pop())
    *_, infos = play.until_seen()
    entered = infos[0].get("env_status.reset.episode_id") or play.until(
        lambda *step: "env_status.reset.episode_id" in step[3][0]
    )[3][0]["env_status.reset.episode_id"]  # fmt: skip
    assert entered == server.episode_id
    server.reward(100.0)
    assert play.env.reset() == [None]
    assert play.step()[0] == [None]
    play.until(lambda *_: requests)
    server.reward(100.0)
    server.begin_episode(requests.pop())
    server.reward(1.0)
    _, rewards, _, _ = play.until(lambda *step: step[1][0])
    assert rewards == [1.0]


def test_peeking_consumes_nothing(started, screen_of):
    server, play = started()
    first = server.episode_id
    screen_of(server).show(1)
    server.reward(1.0, True)
    second = server.begin_episode()
    server.reward(2.0)

    def peeked(seen, rewards, dones, infos):
        assert (rewards, dones) == ([0.0], [False])
        assert infos[0]["peek"]
        assert infos[0]["env_status.episode_id"] == first
        return bool(infos[0]["env_status.peek.episode_id"] == second)

    seen, *_, infos = play.until(peeked, [PEEK])
    assert infos[0]["env_status.peek.env_state"] == "running"
    assert seen[0]["vision"][0, 0, 0] == 1
    _, rewards, dones, _ = play.until(lambda *step: step[2][0])
    assert (rewards, dones) == ([1.0], [True])


def asked(server, wait_for, requests):
    wait_for(lambda: requests)
    return requests.pop(0)


def test_seeds_are_used_once_an_index(rewarder, vector, wait_for):
    requests = [[], []]
    servers = [rewarder(on_reset=each.append) for each in requests]
    play = vector(*servers, rate=30)
    play.env.reset(seed=5)

    def all_asked():
        return [asked(each, wait_for, got) for each, got in zip(servers, requests, strict=True)]

    first, second = all_asked()
    assert (first.seed, second.seed) == (5, 6)
    assert first.fps == 30
    play.env.reset()
    assert [each.seed for each in all_asked()] == [None, None]
    play.env.reset(seed=[None, 9])
    assert [each.seed for each in all_asked()] == [None, 9]
    assert "2" in str(raised(ValueError, play.env.reset, seed=[1]))


def test_an_observer_resets_and_does_nothing(rewarder, vector, screen_of):
    requests = []
    server = rewarder(on_reset=requests.append)
    play = vector(server, observer=True)
    play.until_seen()
    play.env.reset()
    play.until_seen()
    assert requests == []


def test_lost_remote_reconnects_and_the_others_continue(rewarder, vector, screen_of):
    servers = [rewarder() for _ in range(3)]
    play = vector(*servers)
    play.env.reset()
    play.until_seen()
    before = [screen_of(server) for server in servers]
    others = [servers[0].episode_id, servers[2].episode_id]
    before[1].error = ConnectionClosed("the cable is cut")
    observations, _, dones, infos = play.step()[0], *play.last[1:3], play.last[3]["n"]
    assert observations[1] is None
    assert dones == [False, True, False]
    assert "VNC session failed: the cable is cut" in infos[1]["error"]
    assert infos[1]["error"].startswith(play.env.labels[1])
    assert infos[1]["env_status.disconnected"]
    assert observations[0] is not None
    assert "error" not in infos[0]
    _, _, dones, info = play.step()
    eventually(lambda: before[1].closed)
    assert "error" not in info["n"][1]  # once
    assert dones == [False, False, False]
    play.until_seen()
    assert screen_of(servers[1]) is not before[1]
    assert [servers[0].episode_id, servers[2].episode_id] == others
    assert [screen_of(servers[0]), screen_of(servers[2])] == [before[0], before[2]]


def test_stopped_rewarder_is_reconnected(rewarder, vector):
    server = rewarder()
    where = str(server.address)
    play = vector(server)
    play.env.reset()
    play.until_seen()
    server.reward(3.0)
    server.stop()
    _, rewards, dones, infos = play.gather(lambda *step: "error" in step[3][0])
    assert (rewards, dones) == ([3.0], [True])
    assert "Rewarder session failed" in infos[0]["error"]
    assert play.step()[3]["n"][0]["env_status.disconnected"]
    server = rewarder(address=where)
    play.until_seen()
    server.reward(4.0)
    assert play.until(lambda *step: step[1][0])[1] == [4.0]


def test_unreachable_screen_fails_at_the_start_timeout(vector, screens):
    screens.errors["h:5900"] = [ConnectionRefusedError("nobody listens")] * 1000
    play = vector("vnc://h:5900", start_timeout=0.2)
    play.env.reset()
    *_, dones, infos = play.until(lambda *step: "error" in step[3][0])
    assert dones == [True]
    assert "start_timeout=0.2 s" in infos[0]["error"]
    assert "nobody listens" in infos[0]["error"]


def test_rejecting_remote_is_not_retried(rewarder, vector, wait_for):
    server = rewarder(auth="right")
    play = vector(server)
    play.env.reset()
    *_, infos = play.until(lambda *step: "error" in step[3][0])
    assert "Rewarder session failed" in infos[0]["error"]
    for _ in range(20):
        info = play.step()[3]["n"][0]
        assert info["env_status.disconnected"]
        assert "error" not in info
    assert server.statistics()["refused"] == 1


def test_a_reset_that_is_refused(rewarder, vector):
    def refuse(request):
        raise ValueError("no such environment: llama")

    play = vector(rewarder(on_reset=refuse))
    play.env.reset()
    *_, infos = play.until(lambda *step: "error" in step[3][0])
    assert "llama" in infos[0]["error"]


def test_refused_action_is_reported(started, wait_for):
    server, play = started()
    play.step([("Action", 3)])
    acted = []
    wait_for(lambda: acted.extend(server.actions()) or acted)
    server.refuse(acted[0], "no such action")
    *_, infos = play.until(lambda *step: "env.refused" in step[3][0])
    assert "no such action" in infos[0]["env.refused"]
    assert "error" not in infos[0]


def test_lags_are_reported(rewarder, vector):
    server = rewarder()
    play = vector(server)
    play.env.reset()
    play.until(lambda *step: GAUGES + "clock_skew" in step[3][0])
    play.until_seen()  # rewards before the episode runs are dropped
    sent = time.time()
    server.reward(1.0, info={"rewarder.lag.observation.timestamp": sent})
    *_, infos = play.until(lambda *step: GAUGES + "lag.reward" in step[3][0])
    seen = time.time()
    # Both ends have one clock here.
    least, most = infos[0][GAUGES + "clock_skew"]
    assert least <= 0 <= most
    least, most = infos[0][GAUGES + "lag.reward"]
    assert least <= seen - sent
    assert most >= 0
    assert GAUGES + "lag.rewarder_message" in infos[0]


def test_after_the_end(started, screen_of):
    server, play = started()
    screen = screen_of(server)
    play.env.close()
    play.env.close()
    assert screen.closed
    for _ in range(2):
        for call in (play.step, play.env.reset, lambda: play.env.act(0, [key("a", True)])):
            raised(ConnectionClosed, call)
        play.env._loop.close()


def test_page_names_the_arguments_that_replace_configure():
    page = (Path(__file__).parents[2] / "docs/howto/universe.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `env.configure`"))
    names = re.findall(r"`(\w+)`", row.partition(" arguments of `UniverseEnv`")[2])
    assert len(names) == 3
    assert {*names} <= {*inspect.signature(UniverseEnv).parameters}

"""The client's session: the draft's exchange, its table, and each way in which things get lost."""

import random
from dataclasses import replace

import pytest

from rlwire.codecs.perlert import AgentSlot, LobbyMessage
from rlwire.errors import EncodeError, LimitExceeded, LocalProtocolError
from rlwire.sessions.perlert import client as c
from rlwire.sessions.perlert.server import PerlertServerSession, RolloutStarted, SlotLeased
from tests.mutating import mutated
from tests.raising import raised

HOST = "10.0.0.1"
LOBBY = (HOST, 32322)
ROLLOUT = (HOST, 32323)
OPEN = "city:7;a=open,citizen,cpu,ready"
HELD = "city:7;a=close,citizen,ann,not_ready"
READY = "city:7;a=close,citizen,ann,ready"
OTHERS = "city:7;a=close,citizen,bob,not_ready"


class Player:
    """A session and a clock; everything the server says is plain text."""

    def __init__(self, **arguments):
        self.session = c.PerlertClientSession("city", 7, LOBBY, **arguments)
        self.now = 0.0

    @property
    def state(self):
        return self.session.state

    def hears(self, text, peer=LOBBY):
        return self.session.receive(text.encode(), peer, self.now)

    def step(self, number, timestamp, *, done=False, peer=ROLLOUT, obs="1"):
        flag = "true" if done else "false"
        return self.hears(f"city:7:{timestamp}:{number};obs={obs};reward=1.5;done={flag}", peer)

    def sent(self):
        taken = self.session.datagrams()
        return [f"{peer[1]} {datagram.decode()}" for datagram, peer in taken]

    def waits(self, until):
        seen = [(self.now, text) for text in self.sent()]
        while (due := self.session.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            events = self.session.advance(self.now)
            seen += [(self.now, text) for text in self.sent()]
            seen += [(self.now, event) for event in events]
        self.now = until
        return seen


EXCHANGE = [
    lambda player: player.session.register("a", "ann", player.now),
    lambda player: player.hears("city:7;registered=a") + player.hears(HELD),
    lambda player: player.session.set_ready(True, player.now) or player.hears(READY),
    lambda player: player.hears("city:7;start=port:32323"),
    lambda player: player.step(0, 1000),
    lambda player: player.step(1, 1033, done=True),
]
"""What leads from each state to the next."""


def player_in(state):
    player = Player()
    for number, lead in enumerate(EXCHANGE[: list(c.PerlertState).index(state)]):
        lead(player)
        if number < 4:
            player.sent()
    assert player.state is state
    return player


def texts(seen, part):
    return [round(when, 6) for when, what in seen if isinstance(what, str) and part in what]


def events(seen):
    return [(when, what) for when, what in seen if not isinstance(what, str)]


def test_sessions_exchange_the_datagrams_of_figure_1():
    server, client = PerlertServerSession(rollout_port=32323), ("10.0.0.9", 55555)
    city = server.add_instance("city", 7, {"agent0": "citizen"})
    player = Player()
    session = player.session

    def exchange(sent, *expected, port=server.lobby, address=LOBBY):
        events = []
        for datagram, peer in session.datagrams():
            assert (datagram, peer) == (f"city:7;{sent}".encode(), address)
            events += port.receive(datagram, client, player.now)
        replies = port.datagrams()
        assert [(data.decode(), peer) for data, peer in replies] == [
            (f"city:7{text}", client) for text in expected
        ]
        for datagram, _ in replies:
            events += session.receive(datagram, address, player.now)
        return events

    session.request_lobby(player.now)
    slot = AgentSlot("agent0", True, "citizen", "cpu", True)
    assert exchange("lobby", ";agent0=open,citizen,cpu,ready") == [c.LobbyChanged((slot,))]
    session.register("agent0", "patrick", player.now)
    slot = AgentSlot("agent0", False, "citizen", "patrick", False)
    assert exchange(
        "register=agent0,patrick", ";registered=agent0", ";agent0=close,citizen,patrick,not_ready"
    ) == [
        SlotLeased(city, "agent0", client, "patrick", None),
        c.SlotGranted("agent0"),
        c.LobbyChanged((slot,)),
    ]
    session.set_ready(True, player.now)
    assert exchange(
        "ready=agent0,true",
        ";agent0=close,citizen,patrick,ready",
        ";message=Simulation will start...",
        ";start=port:32323",
    ) == [
        RolloutStarted(city),
        c.LobbyChanged((replace(slot, ready=True),)),
        LobbyMessage("city", 7, "Simulation will start..."),
        c.EpisodeStarted("agent0", 32323),
    ]
    session.act("walk", player.now)
    assert exchange("action=walk", port=server.rollout, address=ROLLOUT) == []
    assert city.actions() == {"agent0": "walk"}
    stamps = [1590853116323, 1590853121058, 1590853126423, 1590853130429, 1590853134833]
    for stamp, observation, reward in zip(
        stamps, [45, 47, 48, 49, 51], [0, 0, 1, 0, 1], strict=True
    ):
        done = stamp == stamps[-1]
        city.publish({"agent0": (str(observation), reward, done, None)}, 0, stamp, stamp / 1000)
        flag = str(done).lower()
        text = f":{stamp}:0;obs={observation};reward={reward};done={flag}"
        [frame] = exchange("", text, port=server.rollout, address=ROLLOUT)
        assert frame[:5] == (0, stamp, str(observation), float(reward), done)
    assert player.state is c.PerlertState.DONE
    assert not server.dropped
    assert session.statistics() == {
        **dict.fromkeys(("skipped", "duplicates", "late", "stale", "foreign", "malformed"), 0),
        "frames": 5,
    }


def test_failed_encoding_does_not_change_the_state():
    player = player_in(c.PerlertState.REGISTERED)
    for key, tag in (("", "ann"), ("a,b", "ann"), ("a", "an;n")):
        raised(EncodeError, player.session.register, key, tag, player.now)
    raised(LimitExceeded, player.session.register, "a", "n" * 2000, player.now)
    assert player.state is c.PerlertState.REGISTERED
    assert player.session.key == "a"
    assert player.sent() == []
    player = player_in(c.PerlertState.ROLLOUT)
    player.session.act("walk", player.now)
    raised(EncodeError, player.session.act, "up:down", player.now)
    assert player.sent() == ["32323 city:7;action=walk"]


def test_lobby_request_is_repeated_with_back_off_until_the_reply():
    player = Player()
    player.session.request_lobby(0.0)
    assert texts(player.waits(8.0), "lobby") == [0.0, 0.25, 0.75, *(n + 0.75 for n in range(1, 8))]
    assert player.hears(OPEN) == [c.LobbyChanged((AgentSlot("a", True, "citizen", "cpu", True),))]
    assert player.waits(100.0) == []
    assert player.hears(OPEN) == []  # nothing new, and nobody asked
    player.session.request_lobby(100.0)
    assert len(player.hears(OPEN)) == 1


def test_registration_is_repeated_with_lobby_requests_until_timeout():
    player = Player()
    player.session.register("a", "ann", 0.0)
    seen = player.waits(100.0)
    times = [0.25, 0.75, *(second + 0.75 for second in range(1, 30))]
    assert texts(seen, "register") == [0.0, *times]
    assert texts(seen, "lobby") == times
    [(when, event)] = events(seen)
    assert when == 30.0
    assert event.what == "register"
    assert "10.0.0.1" in event.reason
    assert player.state is c.PerlertState.IDLE
    assert player.session.key is None


def test_slot_is_taken_once_two_replies_show_another_client():
    player = player_in(c.PerlertState.REGISTERING)
    player.now = 0.1
    assert player.hears(OTHERS)[1:] == []
    player.now = 0.2
    assert player.hears(OTHERS) == []
    assert texts(player.waits(0.36), "lobby") == [0.25]
    assert player.hears(OTHERS) == [c.SlotTaken("a", "bob")]
    assert player.state is c.PerlertState.IDLE
    assert player.waits(100.0) == []


@pytest.mark.parametrize("state", [c.PerlertState.REGISTERING, c.PerlertState.READY])
def test_registration_for_an_unknown_slot_fails(state):
    player = player_in(state)
    player.hears("city:7;b=open,citizen,cpu,ready")
    player.now = 0.3
    [event] = player.hears("city:7;b=open,citizen,cpu,ready")
    assert event == c.RequestFailed("register", "there is no slot 'a', only b")
    assert player.state is c.PerlertState.IDLE


@pytest.mark.parametrize("state", [c.PerlertState.REGISTERED, c.PerlertState.READY])
def test_registered_client_sends_keep_alive_requests(state):
    player = player_in(state)
    text = HELD if state is c.PerlertState.REGISTERED else READY
    times = []
    for _ in range(10):
        times += texts(player.waits(player.now + 2.0), "lobby")
        player.hears(text)
    assert times == [2.0 * n for n in range(1, 11)]
    seen = player.waits(player.now + 100.0)
    assert texts(seen, "lobby")[:4] == [22.0, 22.25, 22.75, 23.75]
    [(when, event)] = events(seen)
    assert (when, event.what) == (52.0, "lobby")
    assert player.state is c.PerlertState.IDLE


def test_client_sends_to_the_rollout_port_on_start():
    player = player_in(c.PerlertState.READY)
    player.hears("city:7;start=port:32323")
    seen = player.waits(0.6)
    # No action was chosen yet, so none is made up.
    assert seen == [(when, "32323 city:7;lobby") for when in (0.0, 0.25, 0.5)]
    assert player.hears("city:7;start=port:32323") == []
    player.step(0, 1000)
    assert texts(player.waits(1.9), "lobby") == [0.75, 1.25, 1.75]


@pytest.mark.parametrize("state", [c.PerlertState.READY, c.PerlertState.STARTING])
def test_step_replaces_a_lost_start_and_sets_the_rollout_port(state):
    player = player_in(state)
    port = (HOST, 40000)
    seen = player.step(3, 1000, peer=port)
    expected = [c.EpisodeStarted("a", 40000)] if state is c.PerlertState.READY else []
    assert seen == [*expected, c.Frame(3, 1000, "1", 1.5, False, None, 0, 0.0)]
    player.session.act("walk", 0.0)
    assert "40000 city:7;action=walk" in player.sent()
    assert player.step(4, 1033) == []
    assert player.session.foreign == 1
    assert len(player.step(4, 1033, peer=port)) == 1


def test_client_before_ready_ignores_start_and_steps():
    player = player_in(c.PerlertState.REGISTERED)
    assert player.hears("city:7;start=port:32323") == []
    assert player.step(1, 1000) == []
    assert player.state is c.PerlertState.REGISTERED
    assert player.session.stale == 2


def test_ipv6_addresses_keep_flow_and_scope():
    server = ("fe80::1", 32322, 0, 2)
    session = c.PerlertClientSession("city", 7, server)
    session.register("a", "ann", 0.0)
    session.receive(b"city:7;registered=a", server, 0.0)
    session.set_ready(True, 0.0)
    session.receive(b"city:7;start=port:5", server, 0.0)
    session.act("x", 0.0)
    assert (b"city:7;action=x", ("fe80::1", 5, 0, 2)) in session.datagrams()
    assert session.receive(b"city:7:1:1;obs=;reward=0;done=false", ("fe80::1", 5, 0, 2), 0.0)


def test_steps_are_delivered_in_order_and_late_ones_counted():
    player = player_in(c.PerlertState.ROLLOUT)
    taken = [
        frame.step
        for number, timestamp in [(1, 1033), (4, 1133), (4, 1133), (2, 1066), (4, 1100), (5, 1166)]
        for frame in player.step(number, timestamp)
    ]
    assert taken == [1, 4, 5]
    counts = {"frames": 4, "skipped": 2, "duplicates": 1, "late": 2}
    statistics = player.session.statistics()
    assert statistics == {**dict.fromkeys(statistics, 0), **counts}
    player = player_in(c.PerlertState.ROLLOUT)  # equal numbers are ordered by their timestamps
    stamps = (1001, 1003, 1002, 1003, 1004)
    assert [len(player.step(0, stamp)) for stamp in stamps] == [1, 1, 0, 0, 1]
    counts = player.session.statistics()
    assert (counts["late"], counts["duplicates"], counts["skipped"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "state", [c.PerlertState.READY, c.PerlertState.STARTING, c.PerlertState.ROLLOUT]
)
def test_datagrams_of_foreign_peers_are_counted_and_ignored(state):
    player = player_in(state)
    strangers = [("10.0.0.2", 32323), ("10.0.0.2", 32322), "nobody", None, ()]
    if state is c.PerlertState.ROLLOUT:
        strangers.append((HOST, 1))
    for peer in strangers:
        assert player.step(5, 2000, peer=peer) == []
        assert player.hears("city:7;start=port:1", peer) == []
    for text in ["city:8;message=x", "town:7;message=x", "city:8:2000:5;obs=;reward=;done=true"]:
        assert player.hears(text, LOBBY) == []
        assert player.hears(text, ROLLOUT) == []
    assert player.hears("city:7;message=x", ROLLOUT) == []
    assert player.session.foreign == 2 * len(strangers) + 7
    assert player.state is state


@pytest.mark.parametrize("state", list(c.PerlertState)[: len(EXCHANGE) + 1])
def test_mutated_datagrams_never_raise(state):
    player = player_in(state)
    chance = random.Random(state.value)
    seeds = [
        b"city:7:1590853116323:4;obs=x:0.54;reward=-1.5;done=true;extra=e",
        b"city:7;a=close,citizen,ann,ready;b=open,,,not_ready", b"city:7;registered=a",
        b"city:7;start=port:32323", b"city:007:0099:4;obs=;reward=0;done=false",
        b"city:7;action=left", b"",
    ]  # fmt: skip
    for _ in range(4000):
        datagram = mutated(chance, chance.choice(seeds))
        peer = chance.choice([LOBBY, ROLLOUT, (HOST, 9)])
        player.now += chance.random() * 0.01
        player.session.receive(datagram, peer, player.now)
        player.session.advance(player.now)
        player.session.datagrams()
    assert player.session.malformed > 100
    player = player_in(c.PerlertState.ROLLOUT)
    assert player.hears("city:7:1034:1;obs=;reward=0;done=perhaps", ROLLOUT) == []
    assert player.session.malformed == 1


def test_action_is_repeated_until_the_next_action():
    player = player_in(c.PerlertState.ROLLOUT)
    player.session.act("left", 0.0)
    times = []
    for number in range(1, 60):
        times += texts(player.waits(number / 30), "action=left")
        player.step(number, 1000 + number)
    assert times == [0.0, 0.5, 1.0, 1.5]
    for number in range(60, 90):
        player.session.act("right", player.now)
        assert player.sent() == ["32323 city:7;action=right"]
        assert player.waits(number / 30) == []
        player.step(number, 1000 + number)


@pytest.mark.parametrize("acted", [True, False])
def test_lost_done_is_requested_until_it_arrives(acted):
    player = player_in(c.PerlertState.ROLLOUT)
    if acted:
        player.session.act("left", 0.0)
    word = "action=left" if acted else "city:7;lobby"
    seen = texts(player.waits(3.0), word)
    assert seen == [0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0]
    [frame] = player.step(8, 1300, done=True)
    assert (frame.step, frame.skipped, frame.done) == (8, 7, True)
    # An rlwire server that stops then waits no longer; others have no such slot.
    assert player.sent() == ["32323 city:7;register=rlwire.leave,1300"]
    assert player.waits(100.0) == []
    raised(LocalProtocolError, player.session.act, "left", player.now)


def test_acting_client_requests_the_lobby_and_times_out_without_done():
    player = player_in(c.PerlertState.ROLLOUT)
    times = []
    gave_up = []
    while player.state is c.PerlertState.ROLLOUT:
        player.session.act("left", player.now)
        seen = player.waits(player.now + 0.1)
        gave_up += events(seen)
        times += texts(seen, "32322 city:7;lobby")
    [(when, event)] = gave_up
    assert (when, event.what) == (30.0, "rollout")
    assert "32323" in event.reason
    assert times[0] == pytest.approx(10.0, abs=0.3)


@pytest.mark.parametrize("text", [OPEN, HELD, OTHERS, "city:7;b=open,citizen,cpu,ready"])
def test_ended_run_is_detected_in_the_lobby(text):
    player = player_in(c.PerlertState.ROLLOUT)
    player.waits(9.9)
    player.hears(text)
    assert texts(player.waits(10.3), "32322 city:7;lobby") == [10.0, 10.25]
    player.hears(text)
    assert texts(player.waits(10.6), "32322 city:7;lobby") == [10.5]
    event = player.hears(text)[-1]
    assert event.what == "rollout"
    assert "has ended or the server" in event.reason
    assert player.state is c.PerlertState.IDLE


def next_run(player):
    player.session.register("a", "ann", player.now)
    player.hears("city:7;registered=a")
    player.session.set_ready(True, player.now)
    player.hears(READY)
    player.sent()
    return player


def test_start_of_the_previous_run_does_not_start_the_next():
    player = next_run(player_in(c.PerlertState.DONE))
    assert player.hears("city:7;start=port:32324") == []
    # It could be a new one, so that port is asked, and the lobby port soon.
    assert player.waits(0.3) == [(0.0, "32324 city:7;lobby"), (0.25, "32322 city:7;lobby")]
    assert player.step(1, 1033, done=True) == []
    assert player.step(0, 1000) == []
    assert player.session.stale == 2
    assert player.state is c.PerlertState.READY
    seen = player.step(0, 1100)
    assert seen == [c.EpisodeStarted("a", 32323), c.Frame(0, 1100, "1", 1.5, False, None, 0, 0.3)]
    # The old run had more steps than this one has yet.
    assert player.step(1, 1033, done=True) == []
    assert player.session.stale == 3
    assert player.step(1, 1133, done=True)[0].done


def test_server_whose_clock_was_set_back_is_accepted_after_a_timeout():
    player = next_run(player_in(c.PerlertState.DONE))
    player.now = 14.9
    assert player.step(5, 10) == []
    player.now = 15.0
    assert len(player.step(6, 11)) == 2
    assert len(player.step(7, 12)) == 1


def test_registration_waits_while_a_run_is_in_progress():
    player = player_in(c.PerlertState.DONE)
    player.session.register("a", "ann", player.now)
    for second in range(1, 300):
        assert events(player.waits(float(second))) == []
        player.hears(READY)
    assert player.state is c.PerlertState.REGISTERING
    player.hears(OPEN)
    assert texts(player.waits(301.0), "register=a,ann")
    assert player.hears("city:7;registered=a") == [c.SlotGranted("a")]
    # A server that falls silent is not waited for.
    player = player_in(c.PerlertState.DONE)
    player.session.register("a", "ann", player.now)
    player.hears(READY)
    [(when, event)] = events(player.waits(100.0))
    assert (when, event.what) == (30.0, "register")

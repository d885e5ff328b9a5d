"""The server session as a peer sees it: datagrams in, datagrams out; each test says what the draft
(draft-perlert-wg-00) does. Datagrams are written by hand, not by the codec."""

import pytest

from rlwire.errors import LocalProtocolError
from rlwire.limits import Limits
from rlwire.sessions.perlert.lobby import HOSTS, STRANGER_BURST, STRANGERS_BURST
from rlwire.sessions.perlert.server import (
    LeaseExpired,
    PerlertServerSession,
    RolloutStarted,
    SlotLeased,
)
from tests.raising import raised, raised_with

ANN, BOB, EVE = ("10.0.0.1", 55555), ("10.0.0.2", 55555), ("10.6.6.6", 6666)
STAMP = 1590853116323


def agents(slots):
    return dict.fromkeys(slots.split(), "agent")


class Server:
    """A session with one instance ``city:7``, driven at a time of its own."""

    def __init__(self, slots="a b", *, limits=None, players=None, decimals=None, **times):
        self.now = 1000.0
        self.session = PerlertServerSession(limits=limits or Limits(), rollout_port=32323, **times)
        self.city = self.session.add_instance(
            "city", 7, agents(slots), players=players, decimals=decimals
        )

    def lobby(self, peer, body, header="city:7"):
        return self.session.lobby.receive(f"{header};{body}".encode(), peer, self.now)

    def rollout(self, peer, body, header="city:7"):
        assert self.session.rollout.receive(f"{header};{body}".encode(), peer, self.now) == []

    def wait(self, seconds):
        until = self.now + seconds
        events = []
        for port in (self.session.lobby, self.session.rollout):
            while (deadline := port.next_deadline()) is not None and deadline <= until:
                events += port.advance(deadline)
        self.now = until
        return events

    def from_lobby(self):
        return [(datagram.decode(), peer) for datagram, peer in self.session.lobby.datagrams()]

    def from_rollout(self):
        return [(datagram.decode(), peer) for datagram, peer in self.session.rollout.datagrams()]

    def not_ready(self):
        return [lease.key for lease in self.city.lobby.leases.values() if not lease.ready]

    def silent(self):
        return not self.from_lobby() and not self.from_rollout()

    def dropped(self):
        dropped = dict(self.session.dropped)
        self.session.dropped.clear()
        return dropped

    def join(self, **clients):
        for key, peer in clients.items():
            self.lobby(peer, f"register={key},tag")
        self.wait(1)
        self.from_lobby()
        return self

    def play(self, **clients):
        self.join(**clients)
        for key, peer in clients.items():
            self.lobby(peer, f"ready={key},true")
        self.from_lobby()
        assert self.city.rollout is not None
        return self

    def publish(self, step, stamp=STAMP, **done):
        frames = {key: (step, 0.5, value, None) for key, value in done.items()}
        self.city.publish(frames, step, stamp, self.now)


def test_server_sends_nothing_to_unregistered_clients():
    server = Server("a b").join(a=ANN)
    for body in [
        *("ready=a,true", "ready=x,true", "register=a,eve", "register=x,eve", "action=run"),
        *("action=", "lobby;;", "nonsense", "", "registered=a", "a=open,agent,cpu,ready"),
        *("start=port:5", "message=hello"),
    ]:
        server.lobby(EVE, body)
        server.rollout(EVE, body)
    server.rollout(EVE, "lobby")
    server.rollout(EVE, "register=b,eve")
    server.wait(1)
    assert server.silent()
    server.lobby(EVE, "lobby")
    assert [peer for _, peer in server.from_lobby()] == [EVE]
    server.lobby(ANN, "register=a,changed")
    server.city.message("hello")
    server.wait(1)
    assert {peer for _, peer in server.from_lobby()} == {ANN}


@pytest.mark.parametrize("phase", ["lobby", "rollout"])
@pytest.mark.parametrize("peer", [ANN, EVE])
def test_lobby_information_is_sent_on_request(phase, peer):
    server = Server("a b", players=1).join(a=ANN)
    if phase == "rollout":
        server.lobby(ANN, "ready=a,true")
        server.wait(6)  # start is not repeated any more
        server.from_lobby()
    server.lobby(peer, "lobby")
    status = "ready" if phase == "rollout" else "not_ready"
    assert server.from_lobby() == [
        (f"city:7;a=close,agent,tag,{status};b=open,agent,cpu,ready", peer)
    ]


@pytest.mark.parametrize(
    ("peer", "body", "reason"),
    [
        (EVE, "ready=a,true", "not_registered"), (ANN, "ready=b,true", "not_your_slot"),
        (ANN, "ready=x,true", "unknown_slot"), (ANN, "ready=a,yes", "malformed"),
        (ANN, "ready=a", "malformed"), (ANN, "action=go", "wrong_port"),
        (EVE, "action=go", "wrong_port"), (EVE, "register=a,eve", "slot_taken"),
        (EVE, "register=x,eve", "unknown_slot"), (ANN, "register=b,ann", "slot_taken"),
        (ANN, "register=,ann", "malformed"), (ANN, "register=b", "malformed"),
        (ANN, "register=b,a,b", "malformed"),
    ],
)  # fmt: skip
def test_invalid_lobby_messages_are_dropped_and_counted(peer, body, reason):
    server = Server("a b").join(a=ANN, b=BOB)
    assert server.lobby(peer, body) == []
    assert server.dropped() == {reason: 1}
    server.wait(1)
    assert server.silent()
    assert server.not_ready() == ["a", "b"]
    assert server.city.clients == {"a": ANN, "b": BOB}


def test_lobby_information_is_sent_to_all_clients_on_change():
    server = Server("a b c").join(a=ANN)
    server.lobby(BOB, "register=c,bob")
    sent = "city:7;a=close,agent,tag,not_ready;b=open,agent,cpu,ready;c=close,agent,bob,not_ready"
    assert server.from_lobby() == [("city:7;registered=c", BOB), (sent, ANN), (sent, BOB)]
    server.wait(1)
    server.lobby(BOB, "ready=c,true")
    sent = sent[: -len("not_ready")] + "ready"
    assert server.from_lobby() == [(sent, ANN), (sent, BOB)]


def test_quick_lobby_changes_are_batched():
    server = Server("a b c").join(a=ANN, b=BOB)
    server.lobby(ANN, "ready=a,true")
    assert len(server.from_lobby()) == 2
    for number in range(7):
        server.wait(0.004)
        server.lobby(BOB, f"ready=b,{'false' if number % 2 else 'true'}")
        server.lobby(ANN, f"ready=a,{'true' if number % 2 else 'false'}")
    assert server.silent()
    server.wait(0.05)
    sent = "city:7;a=close,agent,tag,not_ready;b=close,agent,tag,ready;c=open,agent,cpu,ready"
    assert server.from_lobby() == [(sent, ANN), (sent, BOB)]
    server.wait(10)
    assert server.silent()


def test_client_occupies_one_slot_at_most():
    server = Server("a b").join(a=ANN)
    assert server.lobby(ANN, "register=b,ann") == [SlotLeased(server.city, "b", ANN, "ann", "a")]
    assert server.from_lobby() == [
        ("city:7;registered=b", ANN),
        ("city:7;a=open,agent,cpu,ready;b=close,agent,ann,not_ready", ANN),
    ]
    for registration in ("b,2", "a,3", "a,4", "b,5"):  # only the last one counts
        server.lobby(ANN, f"register={registration}")
    server.wait(1)
    sent = "city:7;a=open,agent,cpu,ready;b=close,agent,5,not_ready"
    assert server.from_lobby()[-1] == (sent, ANN)
    server.lobby(BOB, "register=a,bob")
    assert server.city.clients == {"b": ANN, "a": BOB}


def test_lobby_messages_are_sent_to_registered_clients():
    server = Server("a b c").join(a=ANN, b=BOB)
    server.lobby(EVE, "lobby")
    server.from_lobby()
    server.city.message("maps: a=1; b=2")
    expected = [("city:7;message=maps: a=1; b=2", ANN), ("city:7;message=maps: a=1; b=2", BOB)]
    assert server.from_lobby() == expected
    server.play(c=EVE, a=ANN, b=BOB)
    assert "runs" in str(raised(LocalProtocolError, server.city.message, "too late"))
    assert server.silent()


def test_server_start_is_sent_to_all_registered_clients():
    server = Server("a b c").join(a=ANN, b=BOB)
    for key, peer in (("a", ANN), ("b", BOB)):
        server.lobby(peer, f"ready={key},true")
        server.wait(1)
    server.from_lobby()
    assert server.city.rollout is None
    server.city.start(server.now)
    assert server.from_lobby() == [
        ("city:7;message=Simulation will start...", ANN),
        ("city:7;message=Simulation will start...", BOB),
        ("city:7;start=port:32323", ANN),
        ("city:7;start=port:32323", BOB),
    ]
    assert "runs" in str(raised(LocalProtocolError, server.city.start, server.now))


def test_rollout_does_not_start_before_all_clients_are_ready():
    server = Server("a b c").join(a=ANN, b=BOB, c=EVE)
    server.lobby(ANN, "ready=a,true")
    assert "b, c" in str(raised(LocalProtocolError, server.city.start, server.now))
    # A client is not ready when it registers, also once more.
    for body in ("ready=b,true", "ready=b,false", "ready=b,true", "register=b,tag"):
        assert RolloutStarted(server.city) not in server.lobby(BOB, body)
    assert RolloutStarted(server.city) not in server.lobby(EVE, "ready=c,true")
    assert server.not_ready() == ["b"]
    assert server.city.rollout is None
    assert server.lobby(BOB, "ready=b,true")[-1] == RolloutStarted(server.city)


def test_each_registered_client_receives_its_own_rollout_steps():
    """It is recommended to round numbers."""
    server = Server("a b c", players=2, decimals=2).play(a=ANN, c=BOB)
    frames = {key: ({key: 0.123456}, 2 / 3, False, None) for key in "abc"}
    unsent = {**frames, "a": ("1", 0, True, None), "c": ("no;such", 0, False, None)}
    assert "OBSERVATION" in str(raised(ValueError, server.city.publish, unsent, 7, 0, server.now))
    assert server.silent()
    server.city.publish(frames, 3, STAMP, server.now)
    assert server.from_rollout() == [
        (f"city:7:{STAMP}:3;obs=a:0.12;reward=0.67;done=false", ANN),
        (f"city:7:{STAMP}:3;obs=c:0.12;reward=0.67;done=false", BOB),
    ]


@pytest.mark.parametrize("rate", [5, 30, 31, 60, 97, 1000])
def test_server_sends_at_most_30_steps_a_second(rate):
    server = Server("a b").play(a=ANN, b=BOB)
    for peer in (ANN, BOB):
        server.rollout(peer, "lobby")
    sent = []
    began = server.now
    for tick in range(10 * rate):
        server.now = began + tick / rate
        server.publish(tick, a=False, b=False)
        sent += [(server.now, peer) for _, peer in server.from_rollout()]
    for peer in (ANN, BOB):
        times = [time for time, to in sent if to == peer]
        assert len(times) in range(10 * min(rate, 30) - 1, 10 * min(rate, 30) + 3)
        for first in times:  # one frame may come an interval early
            assert sum(first <= time < first + 1 for time in times) <= 31


@pytest.mark.parametrize("body", ["lobby", "ready=a,true", "register=a,tag", "action=go"])
def test_start_is_resent_for_5_seconds_on_any_client_message(body):
    server = Server("a b").play(a=ANN, b=BOB)
    for pause in (0.0, 2.5, 2.4):
        server.wait(pause)
        server.lobby(ANN, body)
        sent = server.from_lobby()
        assert sent[-1] == ("city:7;start=port:32323", ANN)
        assert len(sent) == (2 if body == "lobby" else 1)
    server.wait(0.2)
    server.lobby(ANN, body)
    assert len(server.from_lobby()) == (body == "lobby")
    assert not server.from_rollout()  # each message comes from its port
    # Nothing of it changed anything.
    assert server.city.clients == {"a": ANN, "b": BOB}
    assert server.city.actions() == {}


@pytest.mark.parametrize("body", ["lobby", "ready=a,true", "register=a,tag", "action=go"])
@pytest.mark.parametrize("last", [True, False])
def test_done_is_resent_for_10_seconds_on_any_client_message(body, last):
    server = Server("a b").play(a=ANN, b=BOB)
    server.publish(0, a=False, b=False)
    server.wait(1)
    server.publish(1, a=True, b=last)
    done = (f"city:7:{STAMP}:1;obs=1;reward=0.5;done=true", ANN)
    assert server.from_rollout()[2] == done
    assert (server.city.rollout is None) == last
    for pause in (0.1, 5.0, 4.8):
        server.wait(pause)
        server.rollout(ANN, body)
        assert server.from_rollout() == [done]
        assert not server.from_lobby()
    server.wait(0.2)
    server.rollout(ANN, body)
    assert server.silent()
    assert server.dropped() == {"stranger" if last else "too_late": 1}


def test_lobby_reopens_once_all_clients_are_done():
    server = Server("a b c", players=2).play(a=ANN, b=BOB)
    server.publish(0, a=True, b=False, c=False)
    assert server.city.rollout is not None
    assert server.lobby(EVE, "register=c,eve") == []
    assert server.dropped() == {"running": 1}
    server.publish(1, b=True, c=False)
    assert server.city.rollout is None
    server.from_rollout()
    server.lobby(EVE, "lobby")
    opened = "a=open,agent,cpu,ready;b=open,agent,cpu,ready;c=open,agent,cpu,ready"
    assert server.from_lobby() == [(f"city:7;{opened}", EVE)]
    raised(LocalProtocolError, server.publish, 2, c=False)
    # The old run's clients play again, and done of the old run is nobody's any more.
    server.play(b=ANN, a=BOB)
    server.publish(0, a=False, b=False)
    assert {peer for _, peer in server.from_rollout()} == {ANN, BOB}
    server.rollout(ANN, "lobby")
    assert server.silent()


def test_timestamps_never_decrease_between_runs():
    server = Server("a").play(a=ANN)
    for step, stamp in enumerate((500, 700, 600)):
        server.wait(1)
        server.publish(step, stamp, a=step == 2)
    server.play(a=ANN)
    server.publish(0, 300, a=False)
    server.wait(1)
    server.publish(1, 900, a=False)
    stamps = [int(text.split(":")[2]) for text, _ in server.from_rollout()]
    assert stamps == [500, 700, 700, 701, 900]


def test_silent_client_rate_drops_to_one_step_a_second():
    server = Server("a b", unheard_timeout=2.0).play(a=ANN, b=EVE)
    counts = {ANN: [0] * 10, EVE: [0] * 10}
    for tick in range(300):
        second = tick // 30
        if tick == 30:
            server.lobby(ANN, "lobby")  # a message to either port shows that it lives
        if tick == 240:
            server.rollout(EVE, "action=late")
        server.publish(tick, a=False, b=False)
        for _, peer in server.from_rollout():
            counts[peer][second] += 1
        server.wait(1 / 30)
    assert min(counts[ANN][:9]) >= 29
    assert counts[EVE][1] == 30
    assert max(counts[EVE][3:8]) == 1
    assert counts[EVE][8] >= 29
    assert sum(counts[EVE][2:8]) <= 8


@pytest.mark.parametrize("times", [{}, {"unheard_timeout": None}])
def test_client_without_actions_keeps_its_frame_rate(times):
    """Section 3.2: "It is not needed to send a rollout action message per each timestep"."""
    server = Server("a", **times).play(a=ANN)
    for tick in range(59 * 30):
        server.publish(tick, a=False)
        server.wait(1 / 30)
    assert len(server.from_rollout()) == 59 * 30
    assert server.city.actions() == {}  # "server instances can choose which action" until then
    for action in ("left", "5,6.78"):
        server.rollout(ANN, f"action={action}")
        for _ in range(3):
            server.wait(10)
            assert server.city.actions() == {"a": action}


def test_leave_message_frees_a_slot_and_ends_the_rollout_of_the_client():
    server = Server("a b", players=1).join(a=ANN, b=BOB)
    server.lobby(ANN, "ready=a,true")
    server.lobby(EVE, "register=rlwire.leave,eve")
    assert server.city.clients == {"a": ANN, "b": BOB}
    # The others' rollout starts without it.
    assert server.lobby(BOB, "register=rlwire.leave,bob") == [RolloutStarted(server.city)]
    assert server.city.clients == {"a": ANN}
    server = Server("a b").join(a=ANN, b=BOB)
    server.lobby(BOB, "register=rlwire.leave,bob")
    server.play(a=ANN, b=BOB)
    server.publish(0, a=False, b=False)
    server.lobby(BOB, "register=rlwire.leave,bob")
    server.from_rollout()
    server.publish(1, a=False, b=False)
    assert [peer for _, peer in server.from_rollout()] == [ANN]
    server.lobby(ANN, "register=rlwire.leave,ann")
    server.publish(2, a=False, b=False)
    assert server.city.rollout is None
    assert server.from_rollout() == []
    assert not server.session.unconfirmed


def test_silent_client_is_dropped_from_a_rollout():
    server = Server("a b", idle_timeout=5.0).play(a=ANN, b=BOB)
    server.publish(0, a=False, b=False)
    server.wait(4)
    server.lobby(ANN, "lobby")
    server.wait(2)
    server.from_rollout()
    assert server.city.drop_silent(server.now) == ["b"]
    [(last, peer)] = server.from_rollout()
    assert (peer, ";done=true" in last) == (BOB, True)
    server.publish(1, a=False, b=False)
    assert [peer for _, peer in server.from_rollout()] == [ANN]
    assert Server("a", idle_timeout=None).play(a=ANN).city.drop_silent(1e9) == []


def test_done_is_confirmed_by_its_own_timestamp():
    server = Server("a").play(a=ANN)
    server.publish(0, a=True)
    [(last, _)] = server.from_rollout()
    stamp = int(last.split(":")[2])
    server.rollout(ANN, f"register=rlwire.leave,{stamp - 1}")
    assert server.session.unconfirmed
    server.rollout(ANN, "lobby")
    assert [text for text, _ in server.from_rollout()] == [last]
    server.rollout(ANN, f"register=rlwire.leave,{stamp}")
    assert not server.session.unconfirmed


def test_replies_to_an_unregistered_peer_are_rate_limited():
    server = Server("a b").join(a=ANN)
    asked = 10_000
    for _ in range(asked):
        server.wait(0.001)
        server.lobby(EVE, "lobby")
    sent = server.from_lobby()
    assert {peer for _, peer in sent} == {EVE}
    most = STRANGER_BURST + 10 * 4096  # 4 KiB a second
    assert most - 100 <= sum(len(text) for text, _ in sent) <= most
    assert server.dropped() == {"over_budget": asked - len(sent)}
    # Another host, and a client, are answered nevertheless.
    server.lobby(BOB, "lobby")
    server.lobby(ANN, "lobby")
    assert [peer for _, peer in server.from_lobby()] == [BOB, ANN]


def test_replies_to_many_unregistered_hosts_are_rate_limited():
    server = Server("a b")
    for number in range(20_000):
        server.wait(0.0001)
        server.lobby((f"host{number}", 5), "lobby")
    most = STRANGERS_BURST + 2 * 128 * 1024  # 128 KiB a second
    assert sum(len(text) for text, _ in server.from_lobby()) <= most
    assert len(server.session.budget.buckets) == HOSTS
    # They keep nobody from joining.
    server.lobby(ANN, "register=a,ann")
    assert ("city:7;registered=a", ANN) in server.from_lobby()
    assert server.session.dropped["over_budget"] > 0


def test_requests_of_a_flooding_client_are_rate_limited():
    server = Server("a b").join(a=ANN, b=BOB)
    server.wait(100)
    for number in range(10_000):
        server.wait(0.001)
        server.lobby(EVE if number % 2 else ANN, f"ready=a,{'false' if number % 4 else 'true'}")
        server.lobby(ANN, f"register=a,{number}")
        server.lobby(ANN, "lobby")
    sent = server.from_lobby()
    assert sum(peer == BOB for _, peer in sent) <= 20 + 10 * 5
    assert sum(peer == ANN for _, peer in sent) <= 3 * (20 + 10 * 5)
    assert server.session.dropped["over_budget"] >= 15_000 - 3 * 70
    server.lobby(BOB, "lobby")
    assert [peer for _, peer in server.from_lobby()] == [BOB]


def test_repeated_replies_are_rate_limited():
    server = Server("a b").play(a=ANN, b=BOB)
    for _ in range(2000):
        server.wait(0.001)
        server.lobby(ANN, "action=x")
    assert len(server.from_lobby()) in range(58, 62)
    server.publish(0, a=True, b=True)
    server.from_rollout()
    for _ in range(2000):
        server.wait(0.001)
        server.rollout(ANN, "action=x")
    assert len(server.from_rollout()) in range(58, 62)
    assert server.session.statistics()["resends"] in range(116, 124)


def test_slot_of_a_silent_client_expires():
    server = Server("a b c", players=2).join(a=ANN, b=BOB, c=EVE)
    server.lobby(ANN, "ready=a,true")
    server.lobby(BOB, "ready=b,true")
    for _ in range(97):
        events = server.wait(3)
        server.lobby(ANN, "lobby")
        server.lobby(BOB, "nonsense of a client")
        server.lobby(BOB, "action=also")
        assert events == []
    server.from_lobby()
    # Only it kept the others from starting.
    assert server.wait(31) == [LeaseExpired(server.city, "c", EVE), RolloutStarted(server.city)]
    opened = "city:7;a=close,agent,tag,ready;b=close,agent,tag,ready;c=open,agent,cpu,ready"
    assert server.from_lobby()[:2] == [(opened, ANN), (opened, BOB)]


def test_state_of_finished_runs_is_bounded():
    server = Server("a b")
    for number in range(200):
        peers = [("10.2.0.1", 2 * number), ("10.2.0.2", 2 * number + 1)]
        server.join(a=peers[0], b=peers[1])
        server.lobby(peers[0], "ready=a,true")
        server.lobby(peers[1], "ready=b,true")
        server.publish(0, a=True, b=True)
        server.now -= 0.99  # a run each hundredth of a second
    assert len(server.city.past) <= 8
    server.from_rollout()
    server.rollout(peers[0], "lobby")
    assert len(server.from_rollout()) == 1
    server.wait(20)
    assert not server.city.past


def test_header_selects_the_instance():
    server = Server("a")
    other = server.session.add_instance("city", 8, agents("a"))
    third = server.session.add_instance("town", 7, agents("a"))
    assert list(server.session.instances) == [("city", 7), ("city", 8), ("town", 7)]
    server.lobby(ANN, "register=a,ann", header="city:8")
    assert (server.city.clients, other.clients, third.clients) == ({}, {"a": ANN}, {})
    server.lobby(ANN, "register=a,ann", header="town:7")
    server.lobby(ANN, "register=a,ann", header="city:007")  # digits are a number
    # The same client, one slot in each.
    for header in ("city:7", "city:8", "town:7"):
        server.lobby(ANN, "ready=a,true", header=header)
        server.rollout(ANN, f"action=in {header.replace(':', ' ')}", header=header)
    assert other.actions() == {"a": "in city 8"}
    third.publish({"a": (1, 0, True, None)}, 0, 5, server.now)
    assert server.from_rollout() == [("town:7:5:0;obs=1;reward=0;done=true", ANN)]
    assert [one.rollout is None for one in (server.city, other, third)] == [False, False, True]
    for header in ("city:9", "village:7"):
        server.lobby(ANN, "lobby", header=header)
        server.rollout(ANN, "action=x", header=header)
    assert server.dropped() == {"unknown_instance": 4}


def test_finish_ends_the_rollout():
    server = Server("a b").play(a=ANN, b=BOB)
    frames = {"a": ("1,2", 1, False, "total:5"), "b": ("3,4", 1, True, None)}
    server.city.publish(frames, 6, STAMP, server.now)
    server.from_rollout()
    server.city.finish(server.now)
    assert server.from_rollout() == [
        (f"city:7:{STAMP + 1}:7;obs=1,2;reward=0;done=true;extra=total:5", ANN)
    ]
    assert server.city.rollout is None
    server.play(a=ANN, b=BOB)
    server.city.finish(server.now, STAMP + 60)
    assert server.from_rollout() == [
        (f"city:7:{STAMP + 60}:0;obs=;reward=0;done=true", ANN),
        (f"city:7:{STAMP + 60}:0;obs=;reward=0;done=true", BOB),
    ]
    raised(LocalProtocolError, server.city.finish, server.now)


@pytest.mark.parametrize(
    ("name", "slots", "players"),
    [
        *(("city", slots, None) for slots in ("", "x a=b", "a;b", "message")),
        *((name, "a", None) for name in ("", "a:b", "a;b", "a,b", "a=b", "\ud800")),
        *(("city", "a b", players) for players in (0, 3, -1)),
        ("city", " ".join(f"agent{number}" for number in range(100)), None),
    ],
)
def test_invalid_instances_are_rejected(name, slots, players):
    session = PerlertServerSession()
    raised_with(ValueError, r"\w", session.add_instance, name, 7, agents(slots), players=players)
    assert not session.instances
    session.add_instance("city", 7, agents("a"))
    assert "7" in str(raised(LocalProtocolError, session.add_instance, "city", 7, agents("a")))

"""The stream core without any I/O: frames however they are cut, conversations, ends and times."""

import random
import re
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire import errors
from rlwire.buffers import Arena, Block
from rlwire.sessions import openpi, rlx, websocket
from rlwire.sessions.rllink import RLlinkClientSession
from rlwire.sessions.stack import Stack
from rlwire.streams import INBOX, NOTHING, TURN, FrameReader, StreamCore, StreamPhase
from tests.ends import frames_in
from tests.raising import raised

# The session's frames have a header of 20 bytes; what follows it is to be aligned.
HEADER = 20


def feed(*given):
    return list(frames_in(*given))


def body(size):
    return random.Random(size).randbytes(size)


class Plain:
    def frame_size(self, buffer, start, end):
        return int.from_bytes(buffer[start : start + 4], "big") if end - start >= 4 else 0

    def data_offset(self, buffer, start, end):
        return 4


# Sizes that come again are what the reader bets on after a large frame.
sizes = st.integers(0, 3 * INBOX) | st.sampled_from([0, 10, INBOX - 4, INBOX - 3, 5000, 9000])


@given(
    sizes=st.lists(sizes, max_size=12),
    cuts=st.lists(st.integers(1, 2 * INBOX), min_size=1, max_size=20),
    fetches=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_frame_reader_reassembles_any_segmentation(sizes, cuts, fetches):
    reader = FrameReader(Plain())
    sent = [(4 + size).to_bytes(4, "big") + body(size) for size in sizes]
    data, got, turn = b"".join(sent), [], 0
    while True:
        space = reader.room()
        count = min(len(space), len(data), cuts[turn % len(cuts)])
        space[:count] = data[:count]
        data = data[count:]
        reader.advance(count)
        if not data or fetches[turn % len(fetches)]:
            while (frame := reader.frame()) is not None:
                got.append(bytes(frame))
        if not data:
            break
        turn += 1
    assert got == sent
    assert reader.partial == (0, 0)


@pytest.mark.parametrize("chunk", [2**30, 1000, 1])
def test_large_frame_is_received_into_an_aligned_block(blobs, chunk):
    (frame,) = feed(FrameReader(blobs()), blobs.frame(body(20_000)), chunk)
    assert isinstance(frame, memoryview)
    assert isinstance(frame.obj, Block)
    assert np.frombuffer(frame, np.uint8)[HEADER:].ctypes.data % 64 == 0
    assert not frame.readonly


def test_frame_after_a_large_one_is_received_into_a_block(blobs):
    reader = FrameReader(blobs())
    sent = blobs.frame(body(20_000))
    feed(reader, sent)
    assert reader.expecting
    space = reader.room()
    assert isinstance(space.obj, Block)
    assert len(space) == len(sent)
    assert not reader.direct, "it is not known yet that the next frame does not fit in"
    assert reader.frame() is None
    assert reader.partial == (0, 0)
    space[:7000] = sent[:7000]
    reader.advance(7000)
    assert reader.frame() is None
    assert reader.direct
    (frame,) = feed(reader, sent[7000:])
    assert isinstance(frame, memoryview)
    assert frame.obj is space.obj
    assert bytes(frame) == sent
    assert np.frombuffer(frame, np.uint8)[HEADER:].ctypes.data % 64 == 0


@pytest.mark.each("sizes", [[10], [10, 20, 30], [0] * 400, [9_999, 30], [50_000], [10_001]])
def test_frame_reader_receives_frames_of_unexpected_size(blobs, sizes):
    reader = FrameReader(blobs())
    feed(reader, blobs.frame(body(10_000)))
    sent = [blobs.frame(body(size)) for size in sizes]
    assert [bytes(frame) for frame in feed(reader, b"".join(sent))] == sent
    assert [bytes(frame) for frame in feed(reader, sent[0])] == [sent[0]]
    while reader.expecting:
        feed(reader, blobs.frame(b"small"))
    assert len(reader.room()) == INBOX, "a larger store is not kept"


def test_frame_over_the_limit_allocates_no_block(blobs):
    class Untouched(Arena):
        def take(self, size):
            raise AssertionError(f"{size} bytes were asked for")

    reader = FrameReader(blobs(), Untouched())
    assert raised(errors.LimitExceeded, feed, reader, b"\x7f" + bytes(10)).limit == "received"


TIMES = SimpleNamespace(read=2.0, write=3.0, idle=10.0, first_message=1.0)


def plain(value):
    """The value, comparable, with every bit of its arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


# Sessions of both sides, and a conversation: who sends what, which the other then hears.

LARGE = np.random.default_rng(0).random((40, 40), dtype=np.float32)


def rlx_talk():
    steps = [(0, {"command": "init", "exploit": False}), (1, {"response": "ready"})]
    for state in ([1.5, 2.5], LARGE, LARGE, "small again", LARGE):
        steps.append((0, {"command": "update", "reward": 1.0, "state": state, "terminal": False}))
        steps.append((1, {"response": "action", "data": state}))
    return rlx.RLXClientSession(), rlx.RLXServerSession(), steps


def websocket_talk():
    bodies = ["text", b"", b"x" * 125, b"y" * 5000, "z" * 5000, b"y" * 5000, "end"]
    steps = [(side, body) for body in bodies for side in (0, 1, 1, 0)]
    return websocket.WebSocketClientSession("ws://a/"), websocket.WebSocketServerSession(), steps


def openpi_talk():
    steps = [(1, {"name": "policy"})]
    for image in (LARGE, LARGE[:3], LARGE):
        steps += [(0, {"image": image, "prompt": "up"}), (1, {"actions": image})]
    return openpi.OpenPIClientSession(), openpi.OpenPIServerSession(), steps


def in_websocket(talk):
    def make():
        client, server, steps = talk()
        outer, outer_server, _ = websocket_talk()
        return Stack(outer, client), Stack(outer_server, server), steps

    return make


TALKS = {
    "rlx": rlx_talk,
    "websocket": websocket_talk,
    "websocket > rlx": in_websocket(rlx_talk),
    "websocket > openpi": in_websocket(openpi_talk),
}


class Wire:
    def __init__(self, one, two, chunk=2**30, cut=None):
        self.cores = StreamCore(one, "two", TIMES), StreamCore(two, "one", TIMES, True)
        self.chunk = chunk
        self.cut = cut
        self.stopped = False  # at the cut
        self.way = bytearray(), bytearray()  # to whom
        self.sent = [0, 0]  # bytes by whom
        self.borders = {0}, {0}  # where whole messages end
        self.heard = [], []
        for core in self.cores:
            core.begin(5.0)
        self.move()

    def send(self, side, event):
        core = self.cores[side]
        data = core.put(event)
        assert data is None or core.output() == [data]
        self.flush(side)

    def flush(self, side):
        """Write what there is, in pieces, onto the way to the other."""
        core = self.cores[side]
        while core.sending:
            data = b"".join(core.output())[: self.chunk]
            assert len(data) <= core.waiting
            self.way[1 - side].extend(data)
            self.sent[side] += len(data)
            core.wrote(len(data))
        self.borders[side].add(self.sent[side])

    def move(self):
        """Deliver all that is under way, and what is said about it."""
        for side in (0, 1):
            self.flush(side)
        while any(self.way) and not self.stopped:
            for side in (0, 1):
                self.deliver(side)
                self.flush(side)

    def deliver(self, side):
        core, way = self.cores[side], self.way[side]
        if not way:
            return
        space = core.room()
        count = min(len(space), len(way), self.chunk)
        if self.cut is not None and self.cut[0] == side:
            count = min(count, self.cut[1])
            self.cut = side, self.cut[1] - count
            if not count:
                self.stopped = True
                return
        space[:count] = way[:count]
        del way[:count]
        event = core.feed(count)
        while event is not NOTHING:
            self.heard[side].append(plain(event))
            event = core.next()


def converse(make, chunk=2**30, cut=None):
    """Have the whole conversation, or as much of it as comes before the cut."""
    one, two, steps = make()
    wire = Wire(one, two, chunk, cut)
    for side, event in steps:
        if not wire.stopped:
            wire.send(side, event)
            wire.move()
    return wire


def expected(make):
    heard = [], []
    for side, event in make()[2]:
        heard[1 - side].append(plain(event))
    return heard


@pytest.mark.parametrize("chunk", [2**30, 1, 7, 1460], ids=["whole", "bytes", "sevens", "packets"])
@pytest.mark.parametrize("talk", TALKS)
def test_conversation_survives_any_segmentation(talk, chunk):
    wire = converse(TALKS[talk], chunk)
    assert wire.heard == expected(TALKS[talk])
    assert [core.phase for core in wire.cores] == [StreamPhase.OPEN, StreamPhase.OPEN]
    for core in wire.cores:
        assert core.partial == (0, 0)
        assert not core.sending
        assert core.waiting == 0


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
@pytest.mark.parametrize("talk", TALKS)
def test_stream_cut_at_any_byte_ends_with_connection_closed(talk, side):
    make = TALKS[talk]
    whole, events = converse(make), expected(make)
    total = whole.sent[1 - side]
    places = range(total) if total < 500 else random.Random(5).sample(range(total), 400)
    for place in sorted({*places, *whole.borders[1 - side]} - {total}):
        wire = converse(make, cut=(side, place))
        assert wire.stopped
        core = wire.cores[side]
        raised(errors.ConnectionClosed, core.feed, 0)
        raised(errors.ConnectionClosed, core.next)
        assert core.phase is StreamPhase.READ_CLOSED
        assert wire.heard[side] == events[side][: len(wire.heard[side])]
        inside = place not in whole.borders[1 - side]
        assert ("message bytes" in core.ended) == inside
        if inside:
            assert core.broken


def core_of(session):
    return StreamCore(session, "the peer", TIMES)


def give(core, data):
    """Write bytes into the room, as one read would."""
    space = core.room()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    event = core.feed(count)
    return event if count == len(data) else give(core, data[count:])


def rest_of_a_turn(core):
    events = []
    while (event := core.next()) is not NOTHING:
        events.append(bytes(event))
    return events


def test_core_yields_after_a_bounded_number_of_events(blobs):
    core = core_of(blobs())
    sent = [b"%d" % number for number in range(2 * TURN + 1)]
    turn = [bytes(give(core, b"".join(map(blobs.frame, sent)))), *rest_of_a_turn(core)]
    assert turn == sent[:TURN]
    assert core.more
    assert rest_of_a_turn(core) == sent[TURN : 2 * TURN]
    assert core.more
    assert rest_of_a_turn(core) == sent[2 * TURN :]
    assert not core.more


def test_core_yields_after_a_bounded_number_of_messages(blobs):
    core = core_of(blobs())
    event = give(core, blobs.frame(b"nothing") * (2 * TURN + 1) + blobs.frame(b"last"))
    for turn in (1, 2):
        assert event is NOTHING
        assert core.count == turn * TURN
        assert core.more
        event = core.next()
    assert bytes(event) == b"last"
    assert core.next() is NOTHING
    assert not core.more


def test_core_queues_events_and_accepts_one_put_back(blobs):
    core = core_of(blobs())
    assert core.silent
    assert give(core, blobs.frame(b"twice") + blobs.frame(b"last")) == b"one"
    assert not core.idle()
    assert not core.silent
    core.put_back(b"one")
    assert [core.next() for _ in range(2)] == [b"one", b"two"]
    assert bytes(core.next()) == b"last"
    assert core.next() is NOTHING
    assert core.idle()


def test_core_is_idle_between_messages_of_any_size(blobs):
    core = core_of(blobs())
    for size in (10, 20_000, 20_000, 10):
        assert core.idle()
        sent = blobs.frame(body(size))
        assert give(core, sent[:5]) is NOTHING
        assert not core.idle()
        assert bytes(give(core, sent[5:])) == body(size)


def test_greeting_is_what_the_server_sent():
    core = core_of(RLlinkClientSession(form="msgpack"))
    core.silence = "its protocol is another"
    assert raised(errors.DecodeError, give, core, b"hi\r\n").greeting == b"hi\r\n"


@pytest.mark.parametrize("method", ["receive", "receive_whole"])
def test_message_that_was_interrupted_ends_the_connection(blobs, method):
    session = blobs()
    setattr(session, method, Mock(side_effect=KeyboardInterrupt))
    core = core_of(session)
    raised(KeyboardInterrupt, give, core, blobs.frame(b"lost"))
    assert core.phase == StreamPhase.CLOSED
    assert "inside a message" in str(raised(errors.ConnectionClosed, core.next))


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_partial_writes_send_all_output_without_a_copy(blobs, piece):
    core = core_of(blobs())
    body = bytearray(b"large")
    parts = [b"one", body, b"", b"three" * 7]
    assert core.put(parts) is None
    assert core.output()[2] is body
    assert core.sending
    assert core.put([b"the next"]) is None
    wire = b""
    while core.sending:
        ready = b"".join(core.output())
        assert len(ready) == core.waiting
        wire += ready[:piece]
        assert core.wrote(len(ready[:piece])) == (not core.sending)
    assert wire == blobs.frame(b"".join(parts)) + blobs.frame(b"the next")
    assert core.output() == []


def test_core_reads_and_answers_a_half_closed_peer(blobs):
    core = core_of(blobs())
    assert bytes(give(core, blobs.frame(b"one") + blobs.frame(b"two"))) == b"one"
    core.eof()
    assert core.phase is StreamPhase.DRAINING
    assert bytes(core.next()) == b"two"
    core.put(b"answer")
    core.wrote(core.waiting)
    raised(errors.ConnectionClosed, core.next)
    assert core.phase is StreamPhase.READ_CLOSED
    assert not core.broken
    core.put(b"late")
    core.close()
    assert core.phase is StreamPhase.CLOSED
    assert not core.sending
    raised(errors.ConnectionClosed, core.put, b"later")


def test_lost_connection_is_broken_unless_closed_locally(blobs):
    core = core_of(blobs())
    assert "lost: broken pipe" in str(core.lost(OSError("broken pipe")))
    assert core.broken
    assert core.phase is StreamPhase.CLOSED
    core = core_of(blobs())
    core.close()
    assert "closed on this side" in str(core.lost(OSError("bad descriptor")))
    assert not core.broken
    for begun in (b"", b"\0"):  # between messages, and inside one
        session = blobs()
        session.ends_by_reset = True
        core = core_of(session)
        if begun:
            give(core, begun)
        core.lost(ConnectionResetError("reset"))
        assert core.broken is bool(begun)
    core = core_of(blobs())
    core.put(b"x")
    core.abort("gone")
    raised(errors.ConnectionClosed, core.wrote, 1)


def test_invalid_bytes_end_receiving_and_can_be_rejected(blobs):
    core = core_of(blobs())
    caught = raised(errors.DecodeError, give, core, b"\xff" * 30)
    assert core.phase is StreamPhase.READ_CLOSED
    raised(errors.ConnectionClosed, core.next)
    core.reject(caught)
    assert core.phase is StreamPhase.LINGERING
    assert core.half_close
    assert b"refused" in b"".join(core.output())
    assert core.next() is NOTHING
    assert give(core, bytes(100_000)) is NOTHING  # junk
    core.wrote(core.waiting)
    assert core.feed(0) is NOTHING
    assert core.phase is StreamPhase.CLOSED


def late(core, now, waiting=True):
    """What is late at a time, and the error's text; empty if nothing is."""
    try:
        core.check(now, waiting)
    except errors.DeadlineExceeded as error:
        return f"{core.late}: {error}"
    return ""


def test_idle_and_read_timeouts_expire_at_their_deadlines(blobs):
    core = core_of(blobs())
    at = partial(late, core)
    assert not at(100.0)
    assert core.next_deadline(100.0) == 110.0
    assert core.next_deadline(100.0, waiting=False) is None
    assert not at(109.0)
    give(core, blobs.frame(b"a message between"))
    assert not at(109.5)
    assert not at(119.0)
    assert re.search(r"the peer: .* idle=10\.0 s", at(119.5))
    assert core.phase is StreamPhase.OPEN
    assert not at(120.0, waiting=False)
    assert not at(1000.0)
    give(core, blobs.frame(bytes(100))[:50])
    assert not at(1001.0)
    assert core.next_deadline(1001.5) == 1003.0
    assert re.search(r"the peer: .*50 of 120 bytes .* read=2\.0 s", at(1003.0))
    core.put(b"x" * 10)
    assert not at(1004.0, waiting=False)
    core.wrote(3)
    assert not at(1006.9)
    assert re.search(r"the peer.* write=3\.0 s", at(1007.0))
    core.await_from(1005.0)
    assert core.next_deadline(1007.0) == 1008.0


def test_first_message_timeout_applies_to_a_new_peer(blobs):
    core = StreamCore(blobs(), "the peer", TIMES, accepted=True)
    at = partial(late, core)
    assert core.phase is StreamPhase.FIRST
    assert not at(5.0)
    assert core.next_deadline(5.0) == 6.0
    assert re.search(r"the peer: .* first=1\.0 s", at(6.0))
    assert bytes(give(core, blobs.frame(b"hello"))) == b"hello"
    assert core.phase is StreamPhase.OPEN
    assert not at(7.0)
    assert not at(16.9)
    assert "idle" in at(17.0)


def test_handshake_expires_at_the_connect_timeout():
    core = core_of(websocket.WebSocketClientSession("ws://a/"))
    core.begin(4.0)
    assert core.phase is StreamPhase.OPENING
    at = partial(late, core)
    assert not at(0.0)
    core.wrote(core.waiting)
    assert not at(3.9)
    assert "connect: the peer: no handshake within connect=4.0 s" in at(4.0)


def test_both_sides_exchange_close_messages():
    wire = Wire(*websocket_talk()[:2])
    client, server = wire.cores
    server.close()
    assert server.phase is StreamPhase.CLOSING
    wire.flush(1)
    assert "1000" in str(raised(errors.ConnectionClosed, wire.deliver, 0))
    assert client.phase is StreamPhase.LINGERING, "the server hangs up first"
    assert not client.half_close
    wire.flush(0)
    wire.deliver(1)
    assert server.phase is StreamPhase.CLOSED
    assert client.feed(0) is NOTHING
    assert client.phase is StreamPhase.CLOSED


actions = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(["eof", "close", "stop", "refuse", "lost", "check", "put", "wrote", "abort"]),
)


@given(
    seed=st.sampled_from(sorted(TALKS)),
    side=st.integers(0, 1),
    how=st.lists(actions, max_size=25),
    cut=st.integers(0, 400),
)
def test_core_stays_consistent_under_any_order_of_events(seed, side, how, cut):
    core = converse(TALKS[seed], cut=(side, cut)).cores[side]
    now, before = 0.0, core.phase
    for action in how:
        try:
            if isinstance(action, bytes):
                give(core, action)
            elif action == "check":
                now += 1.0
                core.check(now)
            elif action == "put":
                core.put({"command": "init"} if seed == "rlx" else b"x")
            elif action == "wrote":
                core.wrote(min(core.waiting, 7))
            elif action == "refuse":
                core.reject(errors.RemoteProtocolError("no"))
            elif action == "lost":
                core.lost(OSError("lost"))
            else:
                getattr(core, action)()
        except errors.RlwireError:
            pass
        assert core.phase >= before or (before, core.phase) == (StreamPhase.FIRST, StreamPhase.OPEN)
        before = core.phase
        assert core.sending == bool(core.waiting)
        assert core.sending == bool(core.output())
        if core.phase >= StreamPhase.READ_CLOSED:
            assert not core.idle()
            assert core.ended

"""Replies that come later, over each kind of server, from the loop's own thread and from others."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.streams import NOTHING
from rlwire.transports import tcp
from rlwire.transports.deferred import DeferredReply, ReplyQueue
from tests.raising import raised
from tests.transports.drivers import SERVERS, Echo, reset, serving
from tests.waiting import eventually

WAYS = [*((kind, False) for kind in SERVERS), *((kind, True) for kind in SERVERS[1:])]


@pytest.fixture(params=WAYS, ids=lambda way: way[0] + (" in its thread" if way[1] else ""))
def way(request, blobs):
    """A server whose replies are deferred, and those that were made."""
    kind, inside = request.param

    class Later(Echo):
        made: ClassVar[list[DeferredReply]] = []
        loops: ClassVar[list[asyncio.AbstractEventLoop]] = []

        def __init__(self, connection):
            super().__init__(connection)
            if kind != "threads":
                self.loops.append(asyncio.get_running_loop())

        def answer(self, event):
            self.made.append(DeferredReply())
            return self.made[-1]

        @classmethod
        def do(cls, call, *arguments):
            if inside:
                cls.loops[0].call_soon_threadsafe(call, *arguments)
            else:
                call(*arguments)

    with serving(kind, "127.0.0.1:0", blobs, make_handler=Later) as server:
        yield server, Later


@pytest.fixture
def peer(way, blobs):
    with tcp.connect(way[0].address, blobs()) as connection:
        yield connection


def deferred(way, peer, word):
    made = way[1].made
    count = len(made)
    peer.send(word)
    eventually(lambda: len(made) > count)
    return made[-1]


def test_deferred_replies_are_sent_in_order(way, peer):
    _, later = way
    for word in (b"one", b"two" * 100_000, b"three"):
        peer.send(word)
    for number in range(3):
        eventually(lambda n=number: len(later.made) == n + 1)
        later.do(later.made[number].set, b"%d" % number * 100_000)
        assert peer.receive() == b"%d" % number * 100_000
    assert len(later.made) == 3


def test_deferred_reply_may_be_none_or_fail_alone(way, peer, log):
    do = way[1].do
    do(deferred(way, peer, b"x").cancel)
    do(deferred(way, peer, b"x").set, b"y")
    assert peer.receive() == b"y"
    do(deferred(way, peer, b"number").set, 5)
    assert peer.receive() == b"number: TypeError"
    do(deferred(way, peer, b"x").fail, ZeroDivisionError("one of those days"))
    raised(ConnectionClosed, peer.receive)
    eventually(lambda: "one of those days" in log.text)


def test_disconnected_peer_cancels_its_deferred_reply(way, blobs, raw):
    server, later = way
    peer = raw(server.address)
    peer.sendall(blobs.frame(b"x"))
    eventually(lambda: later.made)
    reset(peer)
    eventually(lambda: server.statistics()["open"] == 0)
    assert later.made[0].cancelled()
    later.made[0].set(b"for nobody")


def test_stopping_server_waits_for_deferred_replies(way, peer):
    server, later = way
    reply = deferred(way, peer, b"x")
    with ThreadPoolExecutor(1) as pool:
        if later.loops:
            stopping = asyncio.run_coroutine_threadsafe(server.stop(10), later.loops[0])
        else:
            stopping = pool.submit(server.stop, 10)
        time.sleep(0.7)  # a thread has looked once whether the peer is there
        later.do(reply.set, b"done")
        assert peer.receive() == b"done"
        raised(ConnectionClosed, peer.receive)
        stopping.result(10)


def test_deferred_reply_keeps_its_first_result():
    reported = []
    reply = DeferredReply()
    reply.add_done_callback(reported.append)
    assert not reply.wait(0.0)
    reply.set(1)
    reply.set(2)
    reply.fail(ValueError())
    reply.cancel()
    assert reply.done()
    assert not reply.cancelled()
    assert reply.wait()
    assert reply.result() == 1
    failed = DeferredReply()
    failed.fail(SystemExit(1))
    failed.set(3)
    assert "SystemExit" in str(raised(RuntimeError, failed.result))
    cancelled = DeferredReply().then(lambda *_: reported.clear())
    cancelled.cancel()
    cancelled.set(3)
    assert cancelled.cancelled()
    assert cancelled.result() is NOTHING


def test_then_converts_the_result_of_a_deferred_reply():
    def convert(event, value, error):
        return event, value, error

    reply = DeferredReply().then(convert, "event")
    reply.set(1)
    assert reply.result() == ("event", 1, None)
    failed, error = DeferredReply().then(convert, "event"), KeyboardInterrupt()
    failed.fail(error)
    assert failed.result() == ("event", NOTHING, error)


def test_reply_queue_that_is_closed_twice_ends_its_busy_thread():
    replies, release = ReplyQueue("a peer"), threading.Event()
    replies.run(release.wait)
    replies.close()
    replies.close()
    release.set()
    eventually(lambda: "a peer helper" not in [each.name for each in threading.enumerate()])


def test_reply_queue_does_not_keep_the_work_of_a_failed_call(monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    replies, done = ReplyQueue("a peer"), []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        raised(RuntimeError, lambda: replies.run(lambda: done.append("refused")))
    replies.run(lambda: done.append("accepted"))
    eventually(lambda: done == ["accepted"])
    replies.close()


def test_reply_queue_does_work_after_its_end_and_keeps_no_thread():
    replies, done = ReplyQueue("a peer"), []
    replies.run(lambda: done.append("before"))
    eventually(lambda: done == ["before"])
    replies.close()
    for number in range(3):
        replies.run(lambda number=number: done.append(number))
    eventually(lambda: sorted(done[1:]) == [0, 1, 2])
    eventually(lambda: "a peer helper" not in [each.name for each in threading.enumerate()])

"""Which reply is to which request, and that what is remembered is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from rlwire.codecs.rewarder import ReplyControlPing, ReplyEnvReset, ReplyError
from rlwire.errors import RemoteProtocolError
from rlwire.sessions.rewarder.client import NEVER, PendingRequests, RequestDone


def pong(parent: Any) -> ReplyControlPing:
    return ReplyControlPing(parent_message_id=parent)


def error(parent: Any) -> ReplyError:
    return ReplyError("no", parent_message_id=parent)


def waiting(*numbers: int, timeout: float = 10.0) -> PendingRequests:
    requests = PendingRequests()
    for number in numbers:
        requests.add(number, "ping", float(number), timeout)
    return requests


def test_a_reply_finds_its_request() -> None:
    requests = waiting(1, 2, 3)
    for parent in (2, "1", "03"):
        request = requests.answered(pong(parent), "ping")
        assert request is not None
        assert (request.number, request.what) == (int(parent), "ping")
        assert request.due == request.sent + 10.0
    assert (len(requests.waiting), requests.due) == (0, NEVER)


def test_the_first_that_is_due() -> None:
    requests = waiting(1, 2)
    requests.add(3, "reset", 3.0, 1.0)
    assert requests.due == 4.0
    assert [request.number for request in requests.expire(4.0)] == [3]
    assert requests.due == 11.0
    assert requests.expire(10.9) == []
    requests.answered(pong(1), "ping")
    assert requests.due == 12.0
    requests.answered(pong(2), "ping")
    assert requests.due == NEVER
    requests.add(4, "ping", 5.0, 1.0)
    requests.clear()
    assert (len(requests.waiting), requests.due) == (0, NEVER)


def test_late_replies_are_counted_once() -> None:
    requests = waiting(1, 2)
    requests.expire(100.0)
    assert requests.answered(pong(1), "ping") is None
    assert requests.failed(error(2), 2, 0.0) is None
    assert requests.late == 2
    for number in (1, 2):
        with pytest.raises(RemoteProtocolError, match="second reply"):
            requests.answered(pong(number), "ping")


def test_errors_may_be_about_any_message() -> None:
    requests = waiting(1, 3)
    assert requests.failed(error("3"), 5, 4.0) == RequestDone(3, "ping", 1.0, "no")
    assert requests.failed(error(4), 5, 4.0) == RequestDone(4, "message", error="no")
    assert requests.failed(error(None), 5, 4.0) == RequestDone(None, "message", error="no")
    for wrong, words in ((6, "no message"), ("x", "no message"), (3, "second reply")):
        with pytest.raises(RemoteProtocolError, match=words):
            requests.failed(error(wrong), 5, 4.0)


def test_replies_to_nothing() -> None:
    requests = waiting(1)
    with pytest.raises(RemoteProtocolError, match="without a parent_message_id"):
        requests.answered(pong(None), "ping")
    for wrong in (0, 2, "x"):
        with pytest.raises(RemoteProtocolError, match="no message that it can answer"):
            requests.answered(pong(wrong), "ping")
    with pytest.raises(RemoteProtocolError, match="to message 1, a ping"):
        requests.answered(ReplyEnvReset(parent_message_id=1), "reset")


def test_what_is_remembered_is_bounded() -> None:
    requests = PendingRequests()
    for number in range(1000):
        requests.add(number, "ping", 0.0, 1.0)
        if number % 2:
            requests.answered(pong(number), "ping")
        else:
            requests.expire(2.0)
    assert len(requests._gone) <= 256
    with pytest.raises(RemoteProtocolError, match="no message"):
        requests.answered(pong(0), "ping")
    assert requests.answered(pong(998), "ping") is None

"""What wakes who waits for remotes."""

from __future__ import annotations

import threading

from rlwire.universe.hub import News


def test_what_has_come_already_is_not_waited_for() -> None:
    news = News()
    seen = news.seen()
    assert not news.wait(seen, 0)
    news.note()
    assert news.wait(seen)
    assert not news.wait(seen, 0, turns=True)
    news.note(turn=True)
    assert news.wait(seen, turns=True)
    assert not news.wait(news.seen(), 0)
    other = News()
    news.pass_on(other)
    seen = other.seen()
    news.note(turn=True)
    assert other.wait(seen, 0, turns=True)


def test_who_waits_is_woken() -> None:
    news, begun, woken = News(), threading.Barrier(2, timeout=20), []

    def wait() -> None:
        seen = news.seen()
        begun.wait()
        woken.append(news.wait(seen, 20, turns=True))

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    news.note()
    news.note(turn=True)
    thread.join(20)
    assert woken == [True]

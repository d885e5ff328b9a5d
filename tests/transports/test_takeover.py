"""A connection is taken over from a slow handler."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

from rlwire.transports.takeover import Monitor, Watched


def test_only_the_checked_event_is_taken_over():
    slow, later = ("call", "slow"), ("other call", "later")
    taken = []

    def waits():
        if len(watched.running) == 1:
            watched.running["other call"] = later
        return True

    watched = Watched(Monitor("monitor"), waits, taken.append)
    watched.running["call"] = slow
    assert watched.check()
    assert not taken
    assert watched.check()
    assert taken == [slow]
    assert watched.is_taken_over("call")
    assert not watched.is_taken_over("other call")


def test_monitor_may_be_closed_while_its_thread_starts(monkeypatch):
    """A server that stopped at its first call's start raised a RuntimeError of that thread."""
    monitor, start, closing = Monitor("monitor"), threading.Thread.start, []

    def close_and_start(thread):
        if thread.name == "monitor":
            closing.append(pool.submit(monitor.close))
            wait(closing, 0.2)
        start(thread)

    with ThreadPoolExecutor() as pool:
        pool.submit(bool).result()
        monkeypatch.setattr(threading.Thread, "start", close_and_start)
        monitor.wake()
        closing[0].result(20)

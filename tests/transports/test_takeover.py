"""A connection is taken over from a slow handler."""

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

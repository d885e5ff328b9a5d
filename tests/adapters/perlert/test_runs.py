"""What drives the runs of a server; how they go is in `test_server.py`."""

from __future__ import annotations

import asyncio
import time

from rlwire.adapters.perlert.runs import Clock


def test_a_clock_calls_in_order_and_sends_once():
    async def main():
        log = []
        over = asyncio.Event()
        clock = Clock(lambda: log.append("sent"))
        begun = time.monotonic()

        def called(name):
            def call(now):
                assert now >= begun
                log.append(name)
                if name == "b":  # what is due at once has its turn after all others
                    clock.at(now - 1, called("again"))
                if name == "last":
                    over.set()

            return call

        clock.at(begun + 0.05, called("last"))
        clock.at(begun - 0.1, called("b"))
        clock.at(begun - 0.2, called("a"))
        clock.at(begun - 0.1, called("c"))
        await asyncio.wait_for(over.wait(), 10)
        await asyncio.sleep(0)
        assert time.monotonic() - begun >= 0.05
        assert log == ["a", "b", "again", "c", "sent", "last", "sent"]
        clock.at(time.monotonic(), called("never"))
        clock.stop()
        await asyncio.sleep(0.01)
        assert "never" not in log

    asyncio.run(main())


def test_a_call_that_raises_does_not_stop_the_clock(caplog):
    async def main():
        over = asyncio.Event()
        clock = Clock(lambda: None)
        clock.at(0.0, lambda now: 1 / 0)
        clock.at(1.0, lambda now: over.set())
        await asyncio.wait_for(over.wait(), 10)

    asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text

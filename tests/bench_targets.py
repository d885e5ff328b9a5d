"""What the benchmark's server processes run in tests: they import it by name."""

import os
import threading
import time

from rlwire.bench.payloads import replaying
from rlwire.bench.processes import ServerProcess
from rlwire.bench.rows import EchoAgent
from rlwire.errors import EncodeError


def good(report):
    report("here")
    threading.Event().wait()


def broken(report):
    raise ValueError("no such agent")


def unfit(report):
    raise EncodeError("no text has it")


def quitting(report):
    os._exit(3)


def crashing(report):
    report("here")
    raise OSError("out of sockets")


def cores(report):
    report(sorted(os.sched_getaffinity(0)))
    threading.Event().wait()


def lying(wrong, steps):
    """Replay steps of which the second has another state or reward."""
    steps = list(steps)
    state, reward, terminal = steps[1]
    steps[1] = type(steps[1])(state + (wrong == "byte"), reward + (wrong == "reward"), terminal)
    return replaying(steps)


class Liar(EchoAgent):
    """Keeps another state than it receives."""

    def __setattr__(self, name, value):
        if name == "kept" and value is not None:
            value = [-value[0], value[1]]
        super().__setattr__(name, value)


if __name__ == "__main__":
    with ServerProcess("test", good) as server:
        print(server.pid, flush=True)
        time.sleep(60)

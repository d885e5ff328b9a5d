"""What worker processes run: they import it by name, so it is in a module."""

import os
import signal
import time

from rlwire.serving import workers


def note(path, what):
    with open(path, "a") as file:
        print(what, os.getpid(), file=file)


def wait_longer_for_a_drain():
    """However long the program pauses between the signal and the drain."""
    workers._KILL_AFTER = 60.0


def pid(listener, stop, greeting=b""):
    listener.settimeout(0.02)
    while not stop.is_set():
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            continue
        with sock:
            sock.sendall(greeting + b"%d" % os.getpid())


def until_stopped(listener, stop, path):
    note(path, "begin")
    stop.wait()
    note(path, "end")


def dying(listener, stop, path):
    note(path, "begin")
    os._exit(3)


def ignoring_stop(listener, stop, path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(path, "begin")
    time.sleep(60)

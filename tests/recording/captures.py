"""What the tests of recordings share: an agent, a relay that keeps what it carries, damage."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np

from rlwire.recording.recorder import Recorder
from rlwire.rllink import SetState
from tests.mutating import mutated


class AgentAndPolicy:
    """An agent of RLX, which is also a policy of openpi and a learner of RLlink."""

    def __init__(self, parameter_server=None):
        self._random = Random(2)

    def init(self, exploit=False):
        return True

    reset = init

    def update(self, **_):
        return [self._random.randrange(3), self._random.randrange(2)]

    def infer(self, observation):
        if "observation" in observation:
            return {"actions": np.array([[2, 1]])}
        return {"actions": 2 * observation["state"], "text": "done"}

    def get_state(self):
        return SetState(1, {"w": np.arange(3.0)})

    def learn(self, episodes):
        return self.get_state()


class Relay:
    """Carries one connection to the server at `port`; `chunks` is what it carried."""

    def __init__(self, port):
        self.chunks = []
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._sockets[0].getsockname()[1]
        self._pool = ThreadPoolExecutor()
        self._pool.submit(self._accept, port)

    def _accept(self, port):
        client, server = self._sockets[0].accept()[0], socket.create_connection(("127.0.0.1", port))
        self._sockets += [client, server]
        self._pool.submit(self._carry, client, server, True)
        self._carry(server, client, False)

    def _carry(self, source, sink, from_client):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.chunks.append((from_client, data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._pool.shutdown()


def finish():
    """Write and close the files of all recordings."""
    for each in list(Recorder._all.values()):
        each.finish()


def relay(port):
    return contextlib.closing(Relay(port))


def dissected(made, chunks):
    return [found for side, data in chunks for found in made.dissect(data, side)]


def damage(make, chunks, times=300):
    """Dissect mutated conversations; return how many of them had damaged messages."""
    random, damaged = Random(1), 0
    for _ in range(times):
        other, made, errors = list(chunks), make(), 0
        for at in random.choices(range(len(chunks)), k=random.randrange(1, 4)):
            other[at] = other[at][0], mutated(random, other[at][1]) or b"\0"
        for side, data in other:
            for found in made.dissect(data, side, random.random() < 0.01):
                assert (found.kind == "damaged") == bool(found.error)
                errors += bool(found.error)
        damaged += errors > 0
    return damaged

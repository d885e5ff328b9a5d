"""A server and its clients, each in a thread, play some runs over whatever network there is.

Prints as JSON what came of it. Arguments: how many clients, how many runs, and ``cipher`` or
``plain``. The environment says where to bind and whom to ask, see
``tests/transports/bad_network.py``.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rlwire.codecs.perlert import text_to_array, text_to_mapping
from rlwire.perlert import Client, Outcome, Server

STEPS = 45


class Game:
    """Lasts for `STEPS` steps, fewer for each further agent; the reward is the last action."""

    name = "game"

    def __init__(self, agents: int) -> None:
        self.agents = {f"agent_{number}": "agent" for number in range(agents)}
        self.step_number = 0

    def _outcomes(self, actions):
        outcomes = {}
        for place, key in enumerate(self.agents):
            last = STEPS - place
            if self.step_number <= last:
                seen = np.array([self.step_number, place, 1 / 3])
                over = self.step_number == last
                outcomes[key] = Outcome(seen, actions.get(key, 0.0), over, False, {}, seen)
        return outcomes

    def reset(self, seed):
        self.step_number = 0
        return self._outcomes({})

    def step(self, actions):
        self.step_number += 1
        return self._outcomes(actions)

    def parse(self, key, text):
        return float(text)

    def default(self, key):
        return 0.0

    def close(self):
        pass


def play(client):
    """Play a run; return what can be held against what should have been."""
    client.wait_start(60)
    steps = []
    ages = []
    while True:
        frame = client.frame(60)
        seen = text_to_array(frame.observation)
        assert seen[0] == frame.step
        assert seen[2] == 1 / 3
        steps.append(frame.step)
        ages.append(frame.timestamp)
        if frame.done:
            total = text_to_mapping(frame.extra)["total"]
            return {"steps": steps, "place": int(seen[1]), "total": total, "stamps": ages}
        client.act(1.0)


def take_part(address, number, runs, key):
    played = []
    with Client(address, "game", tag=f"client {number}", auth=key) as client:
        for _ in range(runs):
            slot = client.register(f"agent_{number}", wait=60)
            assert slot == f"agent_{number}"
            client.ready()
            played.append(play(client))
        return {"runs": played, **client.statistics()}


def main():
    clients, runs = int(sys.argv[1]), int(sys.argv[2])
    key = os.urandom(32) if sys.argv[3] == "cipher" else None
    bind, host = os.environ["BAD_NETWORK_BIND"], os.environ["BAD_NETWORK_HOST"]
    with Server(lambda: Game(clients), f"{bind}:0", rate=30.0, auth=key) as server:
        address = f"{host}:{server.address.port}"
        with ThreadPoolExecutor(clients) as pool:
            told = [pool.submit(take_part, address, n, runs, key) for n in range(clients)]
            found = [each.result(90) for each in told]
        statistics = server.statistics()
    json.dump({"clients": found, "server": statistics}, sys.stdout)


if __name__ == "__main__":
    main()

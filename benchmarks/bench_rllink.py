"""How long is a batch of 500 steps of CartPole on its way, from a simulator to a trainer and back?

Server and client are a process each. The trainer reads the episodes and answers with small weights.
Ray's functions send what Ray's client sends, an array a step, and read it as Ray's runner does;
`to_numpy()` makes one array a column of it first. `RLlinkClient` and `RLlinkServer` have an array a
column from the beginning. Exchanges of all kinds take turns.

`python benchmarks/bench_rllink.py` prints the table: medians, and how many times shorter ours is.
Ray is no part of the benchmarks' packages; without it there are ours alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import socket
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
from pairs import TINY, print_head, print_table

from rlwire.adapters.rllink import Episode, RLlinkClient, RLlinkServer, SetConfig, SetState
from rlwire.bench.processes import ServerProcess

ROUNDS = 3 if TINY else 300
STEPS = 10 if TINY else 500
WEIGHTS = {"rl_module": {"w": np.zeros((8, 8), np.float32)}}
RAY = importlib.util.find_spec("ray") is not None


def columns() -> Episode:
    """The steps, one array a column."""
    return Episode(
        np.random.default_rng(0).random((STEPS + 1, 4), np.float32),
        np.zeros(STEPS, np.int64),
        np.ones(STEPS),
        outputs={
            "action_dist_inputs": np.zeros((STEPS, 2), np.float32),
            "action_logp": np.full(STEPS, -0.5, np.float32),
        },
    )


def states(whole: bool) -> list[dict[str, Any]]:
    """The steps as Ray has them."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    steps = columns()
    episode = SingleAgentEpisode(observations=[steps.observations[0]])
    for number in range(STEPS):
        episode.add_env_step(
            action=0,
            reward=1.0,
            observation=steps.observations[number + 1],
            extra_model_outputs={
                "action_dist_inputs": steps.outputs["action_dist_inputs"][number],
                "action_logp": -0.5,
            },
        )
    return [(episode.to_numpy() if whole else episode).get_state()]


def serve(report: Callable[[Any], None]) -> None:
    """Run in the process of rlwire's server."""
    logging.disable()
    with RLlinkServer("127.0.0.1:0", config=SetConfig(STEPS, True)) as server:
        report(str(server.address))
        while True:
            if server.sample(1.0):
                server.set_state(SetState(1, WEIGHTS))


def serve_ray(report: Callable[[Any], None]) -> None:
    """Run in the process of what Ray's runner does with a message."""
    from ray.rllib.env.external.rllink import get_rllink_message, send_rllink_message
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(listener.getsockname()[1])
        while True:
            with listener.accept()[0] as client, contextlib.suppress(ConnectionError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    _, body = get_rllink_message(client)
                    for state in body["episodes"]:
                        SingleAgentEpisode.from_state(state).to_numpy()
                    answer = {"type": "SET_STATE", "state": {**WEIGHTS, "weights_seq_no": 1}}
                    send_rllink_message(client, answer)


def sends_ray(sock: socket.socket, episodes: list[dict[str, Any]]) -> Callable[[], None]:
    from ray.rllib.env.external.rllink import get_rllink_message, send_rllink_message

    def exchange() -> None:
        send_rllink_message(
            sock,
            {"type": "EPISODES_AND_GET_STATE", "episodes": episodes, "timesteps": STEPS},
        )
        get_rllink_message(sock)

    return exchange


def measure() -> dict[str, float]:
    """Microseconds of an exchange, by who does it."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(ServerProcess("rllink", serve)).address
        client = stack.enter_context(RLlinkClient(address))
        batch = [columns()]
        exchanges: dict[str, Callable[[], Any]] = {"rlwire": lambda: client.send(batch)}
        if RAY:
            port = stack.enter_context(ServerProcess("ray", serve_ray)).address
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            exchanges["Ray's functions, its client's episodes"] = sends_ray(sock, states(False))
            exchanges["Ray's functions, after to_numpy()"] = sends_ray(sock, states(True))
        times: dict[str, list[float]] = {name: [] for name in exchanges}
        for _ in range(ROUNDS):
            for name, exchange in exchanges.items():
                begun = time.perf_counter()
                exchange()
                times[name].append(1e6 * (time.perf_counter() - begun))
    return {name: median(taken) for name, taken in times.items()}


def test_rllink() -> None:
    """A batch is answered."""
    assert measure()["rlwire"] > 0


@pytest.mark.parametrize("whole", [False, True])
def test_ray_s_episodes_are_ours(whole: bool) -> None:
    """What is compared is the same."""
    pytest.importorskip("ray")
    episode = Episode.from_state(states(whole)[0])
    np.testing.assert_array_equal(episode.observations, columns().observations)


def main() -> None:
    """Print the table."""
    print_head(f"A batch of {STEPS} steps, from send to answer")
    times = measure()
    rows = [
        (name, f"{taken:,.0f}", f"{taken / times['rlwire']:.1f}x") for name, taken in times.items()
    ]
    print_table(("who", "median us", "of rlwire's"), rows)
    if not RAY:
        print("Ray is not installed, so it is not compared: pip install 'ray[rllib]'")


if __name__ == "__main__":
    main()

"""Times a batch of 500 steps to a trainer and back, and counts the samples of 64 simulators.

Client and server are a process each. The trainer reads the episodes and replies with small weights.
Ray's functions send an array a step, as Ray's client does, and read it up to Ray's episodes, as
Ray's runner does. `rllink.Client` sends an array a column. Blocks of ten exchanges take turns, and
the first of each is not counted, because it runs with cold caches.

Ray's functions, and rlwire's codec and connection alone, have one thread at each end. With
`rllink.Server` four threads wake up for an exchange, since its trainer has a thread.

The second table compares the runners, which are RLlib's own objects and sample in a loop: rlwire's
has 64 clients in four processes, and Ray's accepts one at a time. Ray is not in the dependency
group.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import logging
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from pairs import TINY, print_head, print_table
from rounds import take_turns

from rlwire.bench.processes import ServerProcess
from rlwire.codecs.rllink import Pong
from rlwire.rllink import Client, Episode, Server, SetConfig, SetState
from rlwire.sessions.rllink import RLlinkServerSession
from rlwire.transports.connection import Connection
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import Backoff

EXCHANGING = 0.1 if TINY else 8.0  # seconds
STEPS = 10 if TINY else 500
CLIENTS, PROCESSES = (2, 1) if TINY else (64, 4)
TURNS, SECONDS = (1, 0.1) if TINY else (5, 2.0)
WEIGHTS = {"rl_module": {"w": np.zeros((8, 8), np.float32)}}
BACKOFF = Backoff(attempts=1000, first=0.1, longest=0.2, deadline=200)
RAY = importlib.util.find_spec("ray") is not None


def columns() -> Episode:
    """Return the steps with one array a column."""
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
    """Return the steps as Ray's episodes."""
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
    """Run rlwire's server."""
    logging.disable()
    with Server("127.0.0.1:0", config=SetConfig(STEPS, True)) as server:
        report(str(server.address))
        while True:
            if server.sample(1.0):
                server.set_state(SetState(1, WEIGHTS))


def serve_alone(report: Callable[[Any], None], rays: bool) -> None:
    """Run a server that replies in the connection's thread."""
    logging.disable()

    def answer(connection: Connection) -> None:
        if rays:  # importing Ray takes seconds, and the client waits
            from ray.rllib.env.single_agent_episode import SingleAgentEpisode
        connection.receive()
        connection.send(Pong())
        while True:
            for episode in connection.receive().episodes:
                if rays:
                    SingleAgentEpisode.from_state(episode.to_state()).to_numpy()
            connection.send(SetState(1, WEIGHTS))

    with ThreadServer("127.0.0.1:0", RLlinkServerSession, answer) as server:
        report(str(server.address))
        server.wait()


def serve_ray(report: Callable[[Any], None]) -> None:
    """Run a server that does what Ray's runner does with a message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(listener.getsockname()[1])
        from ray.rllib.env.external.rllink import get_rllink_message, send_rllink_message
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

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
            sock, {"type": "EPISODES_AND_GET_STATE", "episodes": episodes, "timesteps": STEPS}
        )
        get_rllink_message(sock)

    return exchange


def measure() -> dict[str, float]:
    """Return the microseconds of an exchange, by rival."""
    with contextlib.ExitStack() as stack:
        batch = [columns()]
        exchanges: dict[str, Callable[[], Any]] = {}
        servers: list[tuple[str, Any, Any]] = [
            ("rlwire's server", serve, ()),
            ("rlwire alone", serve_alone, (False,)),
        ]
        if RAY:
            servers.append(("rlwire to Ray's episodes", serve_alone, (True,)))
        for name, run, arguments in servers:
            address = stack.enter_context(ServerProcess("rllink", run, *arguments)).address
            client = stack.enter_context(Client(address))
            exchanges[name] = functools.partial(client.send, batch)
        if RAY:
            port = stack.enter_context(ServerProcess("ray", serve_ray)).address
            sock = stack.enter_context(connected(port))
            exchanges["Ray's functions, its client's episodes"] = sends_ray(sock, states(False))
            exchanges["Ray's functions, after to_numpy()"] = sends_ray(sock, states(True))
        return take_turns(exchanges, EXCHANGING, 10)


def runner_of(port: int) -> Any:
    """Return a function that starts a runner on a port, Ray's or rlwire's."""
    import gymnasium
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = (
        PPOConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
            env_config={"port": port, "steps": STEPS},
        )
        .env_runners(num_env_runners=0)
        .rl_module(model_config=DefaultModelConfig(vf_share_layers=True, fcnet_hiddens=[64, 64]))
    )
    return lambda cls: cls(config=config, worker_index=0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def train(runner: Any, steps: Any) -> None:
    """Sample, set weights and count steps, without end."""
    number, weights = 0, runner.get_state()["rl_module"]
    while True:
        steps.value += sum(map(len, runner.sample()))
        number += 1
        runner.set_state({"rl_module": weights, "weights_seq_no": number})


def run_ours(report: Callable[[Any], None], steps: Any) -> None:
    """Run rlwire's runner."""
    logging.disable()
    port = free_port()
    report(f"127.0.0.1:{port}")  # importing Ray takes seconds, and clients retry
    from rlwire.rllib.rllink import RLlinkEnvRunner

    train(runner_of(port)(RLlinkEnvRunner), steps)


def run_ray(report: Callable[[Any], None], steps: Any) -> None:
    """Run Ray's runner."""
    logging.disable()
    port = free_port()
    report(port)
    from ray.rllib.env.external.env_runner_server_for_external_inference import (
        EnvRunnerServerForExternalInference,
    )

    with contextlib.redirect_stdout(io.StringIO()):
        train(runner_of(port)(EnvRunnerServerForExternalInference), steps)


def simulate(report: Callable[[Any], None], address: str, clients: int) -> None:
    """Run clients that send the next batch when the reply arrives."""
    batch = [columns()]

    connected = threading.Barrier(clients + 1)

    def send() -> None:
        with Client(address, backoff=BACKOFF) as client:
            connected.wait()
            while True:
                client.send(batch, wait=True)

    for _ in range(clients):
        threading.Thread(target=send, daemon=True).start()
    connected.wait()
    report(None)
    threading.Event().wait()  # it is killed


def rate(steps: Any) -> float:
    """Return steps a second, from now on."""
    before, begun = steps.value, time.perf_counter()
    time.sleep(SECONDS)
    return float(steps.value - before) / (time.perf_counter() - begun)


def throughput() -> dict[str, float]:
    """Return steps a second of rlwire's runner with all clients and of Ray's with one, in turns."""
    ours, theirs = f"rlwire's runner, {CLIENTS} clients", "Ray's runner, one client"
    rates: dict[str, list[float]] = {ours: [], theirs: []}
    count = multiprocessing.get_context("spawn").Value
    with contextlib.ExitStack() as stack:
        steps = {name: count("q", 0) for name in rates}
        address = stack.enter_context(ServerProcess("rlwire", run_ours, steps[ours])).address
        port = stack.enter_context(ServerProcess("ray", run_ray, steps[theirs])).address
        sock = connected(port)
        stack.callback(sock.close)
        exchange = sends_ray(sock, states(False))
        exchange()
        with Client(address, backoff=BACKOFF):
            pass  # both listen
        for _ in range(TURNS):
            with contextlib.ExitStack() as simulators:
                for _ in range(PROCESSES):
                    clients = CLIENTS // PROCESSES
                    simulators.enter_context(ServerProcess("s", simulate, address, clients))
                rates[ours].append(rate(steps[ours]))
            done = threading.Event()
            sender = threading.Thread(target=until, args=(done, exchange))
            sender.start()
            rates[theirs].append(rate(steps[theirs]))
            done.set()
            sender.join()
    return {name: median(found) for name, found in rates.items()}


def until(done: threading.Event, call: Callable[[], Any]) -> None:
    while not done.is_set():
        call()


def connected(port: int) -> socket.socket:
    """Connect to Ray's runner as soon as it listens."""
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


def main() -> None:
    """Print the table."""
    print_head(f"A batch of {STEPS} steps, from send to answer")
    times = measure()
    ours = [name for name in times if name.startswith("rlwire")]
    rows = [
        (name, f"{taken:,.0f}", *(f"{taken / times[one]:.1f}x" for one in ours))
        for name, taken in times.items()
    ]
    print_table(("who", "median us", *(f"of {one}" for one in ours)), rows)
    if RAY:
        print()
        rates = throughput()
        best = max(rates.values())
        print_table(
            ("who", "steps a second", "of rlwire's"),
            [(name, f"{found:,.0f}", f"1/{best / found:.1f}") for name, found in rates.items()],
        )
    else:
        print("Ray is not installed, so it is not compared: pip install 'ray[rllib]'")


if __name__ == "__main__":
    main()

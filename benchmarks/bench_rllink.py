"""Times a step, and a batch of 500, to a trainer and back, and counts the samples of 64 simulators.

Client and server are a process each, on one core for a step. Its floor is a raw exchange of the
same bytes, prebuilt, and msgspec, which reads both messages. Blocks of exchanges take turns, and
the first of each are not counted, because they run with cold caches.

The trainer reads the episodes and replies with small weights. Ray's functions send an array a step,
as Ray's client does, and read it up to Ray's episodes, as Ray's runner does. `rllink.Client` sends
an array a column.

The last table compares the runners, which are RLlib's own objects and sample in a loop: rlwire's
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

import msgspec
import numpy as np
from pairs import TINY, print_head, print_table
from rounds import take_turns

import rlwire
from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.bench.raw import RawMessages, raw_exchange
from rlwire.codecs.rllink import Codec, EpisodesAndGetState
from rlwire.codecs.rllink.messages import HEAD
from rlwire.rllink import Client, Episode, SetState
from rlwire.transports.sockets import Backoff

EXCHANGING = 0.1 if TINY else 8.0  # seconds
STEPS = 10 if TINY else 500
CLIENTS, PROCESSES = (2, 1) if TINY else (64, 4)
TURNS, SECONDS = (1, 0.1) if TINY else (5, 2.0)
WEIGHTS = {"rl_module": {"w": np.zeros((8, 8), np.float32)}}
BACKOFF = Backoff(attempts=1000, first=0.1, longest=0.2, deadline=200)
RAY = importlib.util.find_spec("ray") is not None


def taken(count: int, *shape: int) -> tuple[Any, ...]:
    """Return observations, actions and rewards of steps."""
    observations = np.random.default_rng(0).random((count + 1, *shape), np.float32)
    return observations, np.zeros(count, np.int64), np.ones(count)


def columns() -> Episode:
    """Return the steps with one array a column."""
    return Episode(
        *taken(STEPS, 4),
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


class Learner:
    """Replies with small weights."""

    def get_state(self, episodes: Any = None) -> SetState:
        return SetState(1, WEIGHTS)

    learn = get_state


class RayLearner(Learner):
    def learn(self, episodes: list[Episode]) -> SetState:
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

        for episode in episodes:
            SingleAgentEpisode.from_state(episode.to_state()).to_numpy()
        return self.get_state()


def serve(report: Callable[[Any], None], learner: type[Learner]) -> None:
    """Run rlwire's server."""
    logging.disable()
    with rlwire.serve(learner, "rllink://127.0.0.1:0", steps=STEPS) as server:
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


def lockstep(*shape: int) -> dict[str, float]:
    """Return the microseconds of an exchange of one step, by rival, with both ends on one core."""
    read, batch = msgspec.msgpack.decode, [Episode(*taken(1, *shape))]
    request = b"".join(Codec().encode_parts(EpisodesAndGetState(batch, 1, 1), brief=True))
    reply = Codec().encode(Learner().get_state())
    with contextlib.ExitStack() as stack:
        stack.callback(pin, allowed_cores())
        pin(cores := allowed_cores()[-1:])
        server = stack.enter_context(ServerProcess("rllink", serve, Learner, cores=cores))
        client = stack.enter_context(Client(server.address))
        raw = stack.enter_context(raw_exchange(RawMessages([request], [reply]), cores))
        exchanges = {
            "rlwire": functools.partial(client.send, batch, wait=True),
            "the floor": lambda: (raw(), read(request[HEAD:]), read(reply[HEAD:])),
            "raw sockets": raw,
        }
        return take_turns(exchanges, EXCHANGING / 2, 30)


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
        servers = {"rlwire": Learner, **({"rlwire to Ray's episodes": RayLearner} if RAY else {})}
        for name, learner in servers.items():
            address = stack.enter_context(ServerProcess("rllink", serve, learner)).address
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


def train(runner: Any, steps: Any) -> None:
    """Sample, set weights and count steps, without end."""
    number, weights = 0, runner.get_state()["rl_module"]
    while True:
        steps.value += sum(map(len, runner.sample()))
        number += 1
        runner.set_state({"rl_module": weights, "weights_seq_no": number})


def run(report: Callable[[Any], None], steps: Any, ours: bool) -> None:
    """Run rlwire's runner, or Ray's."""
    logging.disable()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    report(port)  # importing Ray takes seconds, and clients retry
    if ours:
        from rlwire.rllib.rllink import RLlinkEnvRunner as Runner
    else:
        from ray.rllib.env.external.env_runner_server_for_external_inference import (
            EnvRunnerServerForExternalInference as Runner,
        )
    with contextlib.redirect_stdout(io.StringIO()):
        train(runner_of(port)(Runner), steps)


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
        port = stack.enter_context(ServerProcess("rlwire", run, steps[ours], True)).address
        address = f"127.0.0.1:{port}"
        port = stack.enter_context(ServerProcess("ray", run, steps[theirs], False)).address
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
    """Print the tables."""
    print_head(f"One step, and a batch of {STEPS}, from send to answer", "msgspec")
    rows = []
    for shape in ((4,), (84, 84, 4)):
        steps = lockstep(*shape)
        raw = steps["raw sockets"]
        rows += [(str(shape), who, f"{us:.1f}", f"{us / raw:.2f}x") for who, us in steps.items()]
    print_table(("a step of float32", "who", "median us", "of raw sockets"), rows)
    print()
    times = measure()
    rows = [(who, f"{us:,.0f}", f"{us / times['rlwire']:.1f}x") for who, us in times.items()]
    print_table(("who", "median us", "of rlwire"), rows)
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

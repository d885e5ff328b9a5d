"""A cluster of Ray's of three machines, of which one is lost; prints what became of it as JSON.

    unshare --map-root-user --net --pid --fork --kill-child --mount-proc python ray_nodes.py FOLDER

A machine is a namespace with a network, a loopback and processes of its own, on a bridge in the
network of this program, which nothing leaves; all ends with this program. Each has one core, so
Ray places two runners on two machines, and has the third when one is lost.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

HEAD, *OTHERS = "10.98.0.1", "10.98.0.2", "10.98.0.3"
PORT = 6379
ALGORITHM = Path(__file__).parents[1] / "relaax" / "summing.py"


def ip(words):
    subprocess.run(["ip", *words.split()], check=True)


def start(address, folder):
    """Start Ray as on a machine of this address."""
    ray = [
        str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1",
        f"--node-ip-address={address}", f"--temp-dir={folder / address[-1]}",
        "--object-store-memory=80000000", "--disable-usage-stats",
        *(["--head", f"--port={PORT}"] if address == HEAD else [f"--address={HEAD}:{PORT}"]),
    ]  # fmt: skip
    with open(folder / f"{address}.log", "wb") as log:
        if address == HEAD:
            return subprocess.Popen(ray, stdout=log, stderr=log)
        plug = (
            f"read plugged; ip link set lo up; ip addr add {address}/24 dev plug;"
            'ip link set plug up; exec "$@"'
        )
        machine = subprocess.Popen(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", plug, "sh", *ray],
            stdin=subprocess.PIPE, stdout=log, stderr=log,
        )  # fmt: skip
    own = os.readlink("/proc/self/ns/net")
    wait(lambda: os.readlink(f"/proc/{machine.pid}/ns/net") != own)
    name = f"to{machine.pid}"
    ip(f"link add {name} type veth peer name plug netns {machine.pid}")
    ip(f"link set {name} master bridge up")
    assert machine.stdin is not None
    machine.stdin.write(b"plugged\n")
    machine.stdin.flush()
    return machine


def wait(condition, seconds=200.0):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.1)


def main(folder):
    ip("link set lo up")
    ip("link add bridge type bridge")
    ip(f"addr add {HEAD}/24 dev bridge")
    ip("link set bridge up")
    os.environ.update(
        RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64, RAY_TMPDIR=str(folder),
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1", OMP_NUM_THREADS="1",
    )  # fmt: skip
    machines = {HEAD: start(HEAD, folder)}

    import numpy as np
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    import rlwire
    from rlwire.environments.remote import spaces_like
    from rlwire.errors import RlwireError
    from rlwire.relaax import load_algorithm, open_parameter_server
    from rlwire.rllib.directory import runners
    from rlwire.rllib.rllink import RLlinkEnvRunner
    from rlwire.rlx import Metrics
    from rlwire.urls import parse_url

    def count():
        return sum(node["Alive"] for node in ray.nodes())

    def again(address):
        """Start a machine once more if Ray gave it up, as it does after half a minute."""
        ended = machines[address].poll() is not None
        if ended:
            machines[address] = start(address, folder)
        return ended

    while not ray.is_initialized():
        again(HEAD)
        with contextlib.suppress(ConnectionError):
            ray.init(address=f"{HEAD}:{PORT}", log_to_driver=False)
    for address in OTHERS:
        machines[address] = start(address, folder)
        wait(lambda: not again(address) and count() == len(machines))  # noqa: B023
    found = {}

    handle = open_parameter_server(load_algorithm(ALGORITHM), home="ray", metrics=Metrics())

    def add(server):
        return ray.util.get_node_ip_address(), server.session.op_add(1)

    agent = ray.remote(add)

    found["agents"] = [
        ray.get(agent.options(num_cpus=0, resources={f"node:{address}": 0.01}).remote(handle))
        for address in OTHERS
    ]
    handle.close()

    observation_space, action_space, _ = spaces_like("CartPole-v1")
    algorithm = (
        PPOConfig()
        .environment(
            observation_space=observation_space,
            action_space=action_space,
            env_config={"host": "0.0.0.0", "port": 0, "steps": 100, "server": {"auth": "secret"}},
        )
        .env_runners(env_runner_cls=RLlinkEnvRunner, num_env_runners=2)
        .training(train_batch_size_per_learner=200, num_epochs=1)
        .fault_tolerance(restart_failed_env_runners=True)
        .build_algo()
    )

    def act(observation, weights):
        inputs = np.zeros(2, np.float32)
        return 0, {"action_dist_inputs": inputs, "action_logp": np.float32(-0.6931)}

    def play(number):
        while True:
            with contextlib.suppress(RlwireError, OSError, KeyError):  # none has its number
                url = runners()[number]
                rlwire.play("gym:CartPole-v1", url, policy=act, episodes=10**9, auth="secret")
            time.sleep(0.1)

    def sampled():
        """Return the steps that came to each runner since it began."""
        return dict(
            algorithm.env_runner_group.foreach_env_runner(
                lambda runner: (runner.worker_index, runner.server.statistics()["steps"]),
                local_env_runner=False,
            )
        )

    for number in (1, 2):
        threading.Thread(target=play, args=(number,), daemon=True).start()

    def train(condition):
        wait(lambda: (algorithm.train(), condition())[1])
        return int(algorithm.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime")))

    found["steps"] = [train(lambda: all(sampled().values()))]
    found["urls"] = [runners()]
    lost, where = next(
        (number, parse_url(url).host) for number, url in runners().items() if HEAD not in url
    )
    found["lost"] = lost
    machines[where].kill()
    machines[where].wait()
    found["steps"].append(train(lambda: where not in runners()[lost] and sampled().get(lost)))
    found["urls"].append(runners())
    found["alive"] = count()
    algorithm.stop()
    ray.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

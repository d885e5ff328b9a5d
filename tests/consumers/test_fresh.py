"""Each how-to's programs, in an environment that has what the page's install line installs."""

import functools
import os
import re
import shlex
import shutil
import sys

import pytest

import rlwire
from rlwire.registry import PROTOCOLS
from tests import (
    howtos,
    programs,
    test_howto_c_simulator,
    test_howto_game_engine,
    test_howto_gateway,
    test_howto_own_algorithm,
    test_howto_watch_and_play,
)
from tests.consumers import test_page
from tests.programs import Serving, free_port, listens, running
from tests.relaax.applications import test_templates
from tests.test_howto_train import PYTHON_CALLERS, check_that_it_learns
from tests.training import test_train
from tests.waiting import eventually

run = functools.partial(programs.run, check=True, timeout=600)


def bench(folder):
    words = "bench --env gym:Acrobot-v1 --protocol rlx --seconds 0.05"
    run(["rlwire", *words.split()], cwd=folder)


def build(folder):
    """Run the page's program, and then its commands in a checkout in which nothing is built."""
    test_howto_c_simulator.test_c_simulator_trains_its_trainer(folder)
    not_built = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for name in ("rlwire", "tests/consumers"):
        shutil.copytree(howtos.ROOT / name, folder / name, ignore=not_built)
    (lists,) = howtos.code(howtos.PAGES["c_simulator"], "cmake")
    (folder / "CMakeLists.txt").write_text(lists, "utf-8")
    commands = howtos.code(howtos.PAGES["c_simulator"], "sh")
    if shutil.which("cmake") is None:
        commands = [each for each in commands if not each.startswith("cmake ")]
    words = ["sh", "-ec", "".join(commands).replace("pip install", "true")]
    output = run(words, cwd=folder).stdout
    assert "city:7:1590853116323:5;obs=1,-2;reward=1.26;done=false" in output  # perlert
    assert shutil.which("cmake") is None or (folder / "made" / "corridor").exists()


def inspect(folder):
    """Run the commands of inspect.md on the recording that its program makes."""
    page = howtos.PAGES["inspect"]
    howtos.run(page, folder)
    commands = [each for each in howtos.code(page, "sh") if not each.startswith("pip")]
    environment = {**os.environ, "COLUMNS": "160"}
    words = ["sh", "-ec", "".join(commands)]
    text = run(words, cwd=folder, env=environment).stdout
    _head, asked, answer, *rest = text.splitlines()
    assert asked.split()[3:6:2] == ["StepRequest", "#10412"]
    assert answer.split()[3:6:2] == ["StepResponse", "#10412"]
    assert ['"step": 10412' in line for line in rest[:2]] == [True, True]
    assert "TERMINATED" in rest[3]
    assert [line.split()[2] for line in rest[4:] if line.endswith("terminated")] == ["471"]
    assert rest[-1].startswith("1 passed")  # the test against a recording


def drop_ins(folder):
    howtos.run(howtos.PAGES["drop_ins"], folder)
    (line,) = re.findall(r"&& pip install (.*openpi-client)$", howtos.PAGES["drop_ins"], re.M)
    pip = [os.environ["OUTER_PYTHON"], "-m", "pip", "--python", sys.executable, "install", "-q"]
    run([*pip, *line.split()])
    use = "import rlwire, openpi_client.websocket_client_policy; rlwire.install('openpi_client')"
    run([sys.executable, "-c", use], cwd=folder)


FRONT_DOOR = """
import numpy as np
import rlwire
for url in ("dm-env-rpc://localhost:0", "perlert://localhost:0", "universe://localhost:+0"):
    with rlwire.serve("gym:CartPole-v1", url) as server, rlwire.make(server.url) as env:
        env.reset(seed=1)
        env.step(1)
class Agent:
    init = reset = lambda self, exploit=False: True
    update = lambda self, reward, state, terminal: 1
for url, played in (
    ("rlx://localhost:0", lambda server: Agent()),
    ("openpi://localhost:0", lambda observation: {"actions": np.array([1])}),
):
    with rlwire.serve(played, url) as server:
        assert rlwire.play("gym:CartPole-v1", server.url, episodes=1)
"""


def front_door(folder):
    """Each protocol works, and lists its options."""
    run([sys.executable, "-c", FRONT_DOOR], cwd=folder)
    for scheme in PROTOCOLS:
        words = ["rlwire", "serve", f"{scheme}://", "--help"]
        assert "--record" in run(words, cwd=folder).stdout


def browser(folder):
    """Run the page's commands, and open its address until a cart has balanced."""
    (agent,), port = howtos.code(howtos.PAGES["browser"]), str(free_port())
    (folder / "my_agents.py").write_text(agent, "utf-8")
    serve, site = howtos.code(howtos.PAGES["browser"], "")[0].replace("8000", port).splitlines()
    serve = serve.replace(":9000", ":0")
    with Serving(folder, "-m", *shlex.split(serve)) as server, running(["sh", "-c", site]):
        address = f"http://localhost:{port}/cartpole.html?speed=0&proxy=ws"
        address += server.url.removeprefix("rlx-ws")
        eventually(lambda: listens(int(port)))
        with test_page.browser("about:blank", folder) as page:
            page.call("Page.navigate", url=address)
            test_page.wait_until(lambda: page.text("best") in map(str, range(100, 501)))


def game_engine(folder):
    _, compile_ = howtos.code(howtos.PAGES["game_engine"], "sh")
    (folder / "tests").symlink_to(howtos.ROOT / "tests")
    run(["sh", "-ec", compile_], cwd=folder)
    test_howto_game_engine.check_that_rllib_trains(folder / "sampler")


PICKLE = """
import os, pickle, sys, grpc
from lerobot.transport import services_pb2, services_pb2_grpc
class Bomb:
    def __reduce__(self):
        return os.mkdir, ("ran",)
stub = services_pb2_grpc.AsyncInferenceStub(grpc.insecure_channel(sys.argv[1]))
stub.Ready(services_pb2.Empty(), wait_for_ready=True, timeout=600)
try:
    stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(Bomb())))
except grpc.RpcError as error:
    print(error.details())
"""


def lerobot(folder):
    """The policy server loads no pickle, and the robot's client starts."""
    server, client = howtos.code(howtos.PAGES["lerobot"], "")
    client = "".join(server.splitlines(True)[:2]) + client
    words, address = [sys.executable, "-c"], f"127.0.0.1:{free_port()}"
    with running([*words, server, "--host=127.0.0.1", f"--port={address[10:]}"], cwd=folder):
        refused = run([*words, PICKLE, address], cwd=folder, timeout=700).stdout
    assert 'rlwire.install("lerobot")' in refused
    assert not (folder / "ran").exists()
    options = run([*words, client, "--help"], cwd=folder, timeout=300).stdout
    assert "--server_address" in options


def rllib(folder):
    from tests import test_howto_rllib
    from tests.training import test_howto_ray_cluster

    test_howto_rllib.test_rllib_program_trains_with_an_rlx_caller(folder, "", True)
    test_howto_ray_cluster.test_environments_find_runners_by_name("local", folder)


def train(folder):
    test_train.test_howto_trainer_learns_cartpole_over_each_protocol(
        0, test_train.TRAINER_CALLS[0], folder
    )
    check_that_it_learns(PYTHON_CALLERS, folder, {**os.environ})


def watch(folder):
    howtos.run(howtos.PAGES["watch_and_play"], folder)
    test_howto_watch_and_play.test_viewers_receive_pixels_from_each_command(
        test_howto_watch_and_play.LINES[0], folder
    )


# What to run of a page, if it is more than programs that end.
OWN = {
    "applications": test_templates.test_howto_commands_create_and_run_an_application,
    "browser": browser,
    "c_simulator": build,
    "drop_ins": drop_ins,
    "front_door": front_door,
    "game_engine": game_engine,
    "gateway": lambda to: [test(to) for test in test_howto_gateway.PAIRS],
    "inspect": inspect,
    "lerobot": lerobot,
    "measure": bench,
    "rllib": rllib,
    "own_algorithm": test_howto_own_algorithm.test_algorithm_folder_learns,
    "train": train,
    "watch_and_play": watch,
}
# LeRobot with what it requires has 8 GB.
MARKS = {
    "game_engine": pytest.mark.ray,
    "lerobot": pytest.mark.long,
    "rllib": pytest.mark.ray,
    "train": pytest.mark.training,
}
made = {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=MARKS.get(page, pytest.mark.consumers))
        for page in sorted(howtos.PAGES)
    ],
)
def test_howto_runs_with_only_the_packages_it_installs(page, tmp_path_factory, monkeypatch):
    packages = tuple(sorted({*howtos.requirements(page)}))
    if packages not in made:
        folder = tmp_path_factory.mktemp("fresh")
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        run([*pip, "install", "-q", "--no-compile", *packages], timeout=800)
        made[packages] = folder / "bin" / "python"
    monkeypatch.setenv("OUTER_PYTHON", sys.executable)
    monkeypatch.setattr(sys, "executable", str(made[packages]))
    for name, value in howtos.shell(tmp_path_factory.mktemp("shell")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(rlwire, "__path__", [os.environ["PYTHONPATH"] + "/rlwire"])
    folder = tmp_path_factory.mktemp(page)
    if page in OWN:
        OWN[page](folder)
    else:
        assert howtos.run(howtos.PAGES[page], folder)

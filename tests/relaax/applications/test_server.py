"""The processes of an application: its RLX server, and its environments."""

import logging
import re
import sys

import pytest

from rlwire.relaax.applications import environment
from rlwire.relaax.applications.server import make_metrics, make_server, serve
from rlwire.rlx import AgentProxy, Server
from rlwire.transports.sockets import Backoff
from tests.agents import Agent
from tests.reference.events import read_events

pytest.importorskip("ruamel.yaml")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_metrics_are_written_to_the_configured_folder(read, tmp_path, caplog):
    pytest.importorskip("tensorboardX")
    caplog.set_level(logging.INFO)
    sink = make_metrics(
        read("relaax-metrics-server: {metrics_dir: logs, log_metrics_to_console: yes}")
    )
    sink.scalar("a", 1.5, 2)
    sink.scalar("a", 3.5, 4)
    sink.close()
    assert read_events(tmp_path / "logs") == {"a": [(2, 1.5), (4, 3.5)]}
    assert re.findall(r"metric '(\w)' at", caplog.text) == ["a", "a"]


def test_application_server_serves_its_algorithm(read, tmp_path):
    application = read(
        f"relaax-rlx-server: {{bind: 'unix:{tmp_path}/rlx', max_connections: 1}}\n"
        "relaax-parameter-server: {checkpoint-dir: kept, checkpoints_to_keep: 2}\n"
        "algorithm: {name: bandit, output: {action_size: 2}}"
    )
    with make_server(application), AgentProxy(f"unix:{tmp_path}/rlx") as agent:
        agent.init()
        assert agent.update(None, []) in (0, 1)
        for _ in range(10):
            agent.update(1.0, [])
    assert [path.name for path in (tmp_path / "kept").iterdir()] != []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("environment: {}", "app.yaml has no section relaax-rlx-server"),
        ("relaax-rlx-server: {}\nalgorithm: {}", "app.yaml:2: .*algorithm .*name .*path"),
        (
            "relaax-rlx-server: {bind: 'unix:/no/such/folder/s'}\nalgorithm: {name: bandit}",
            "listen",
        ),
    ],
)
def test_invalid_application_is_a_one_line_error(read, capsys, text, expected):
    assert environment.main(serve, read(text).path) == 1
    written = capsys.readouterr().err
    assert re.search(expected, written), written
    assert written.startswith("rlwire: ")
    assert written.count("\n") == 1


def play(*arguments):
    return environment.main(environment.play, [*map(str, arguments)])


def test_environment_starts_after_the_server_accepts_connections(tmp_path, monkeypatch, capsys):
    where = f"unix:{tmp_path}/rlx"
    with Server(Agent, where):
        assert play("--wait", where, "environment-0", "exit 7") == 7
    monkeypatch.setattr(environment, "_BACKOFF", Backoff(attempts=2, first=0.01))
    assert play("--wait", where, "environment-0", f"touch {tmp_path}/begun") == 1
    assert f"{tmp_path}/rlx" in capsys.readouterr().err
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(("others", "status"), [((0, 0), 0), ((0, 5), 5)])
def test_environment_exits_with_the_status_of_its_copies(tmp_path, others, status):
    for number, other in enumerate(others, 1):
        (tmp_path / f"environment-{number}").write_text(str(other))
    assert play("--ends", tmp_path, "--copies", 3, "environment-0", "exit 0") == status

"""One copy of an environment, as `rlwire run` starts it."""

from __future__ import annotations

import pytest

from rlwire.relaax.applications import environment
from rlwire.rlx import Server
from rlwire.transports.sockets import Backoff
from tests.agents import Agent


def test_its_status_is_the_commands(tmp_path):
    assert environment.play(["environment-0", "exit 0"]) == 0
    assert environment.play(["environment-0", "exit 7"]) == 7


def test_it_waits_for_the_server(tmp_path, monkeypatch, capsys):
    where = f"unix:{tmp_path}/rlx"
    with Server(Agent, where):
        assert environment.play(["--wait", where, "environment-0", "true"]) == 0
    monkeypatch.setattr(environment, "_PATIENCE", Backoff(attempts=2, first=0.01))
    assert environment.play(["--wait", where, "environment-0", f"touch {tmp_path}/begun"]) == 1
    assert f"{tmp_path}/rlx" in capsys.readouterr().err
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(("others", "status"), [((0, 0), 0), ((0, 5), 5)])
def test_it_ends_with_the_others_and_what_failed(tmp_path, others, status):
    for number, other in enumerate(others, 1):
        (tmp_path / f"environment-{number}").write_text(str(other))
    arguments = ["--ends", str(tmp_path), "--copies", "3", "environment-0", "exit 0"]
    assert environment.play(arguments) == status

"""docs/howto/from_relaax.md: what its tables say is here, and what they say is not."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from rlwire import cli
from rlwire.adapters import relaax
from rlwire.adapters.relaax.config import Options, setting_name
from rlwire.algorithms.pg.settings import Settings
from rlwire.applications import configuration

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "from_relaax.md").read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the rows below the heading of a table, cell by cell."""
    [found] = re.findall(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.M)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.splitlines()]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


COMMANDS = sorted(
    {
        command
        for heading in ("RELAAX | rlwire |\n|---|---|\n| `relaax new NAME", "RELAAX's programs")
        for command in re.findall(r"`(rlwire [^`]+)`", PAGE[PAGE.index(heading) :].split("\n\n")[0])
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_their_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, sub, *words = command.split()
    url = [word.replace("HOST:PORT", "localhost:1") for word in words if "://" in word][:2]
    served = ["algorithm:pg", *url[:1]] if sub == "serve" and len(url) == 1 else url
    with pytest.raises(SystemExit) as ended:
        cli.main([sub, *(served if sub == "serve" else []), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(^|[\s\[,]){word}\b", text), (command, word)


def test_it_has_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"new", "generate", "config", "run"}
    assert len(COMMANDS) >= 10


def test_settings_of_sections_are_what_the_page_says() -> None:
    kinds = {
        "environment": configuration.EnvironmentSection,
        "relaax-rlx-server": configuration.RLXServerSection,
        "relaax-parameter-server": configuration.ParameterServerSection,
        "relaax-metrics-server": configuration.MetricsServerSection,
        "relaax-wsproxy": configuration.ProxySection,
        "algorithm": configuration.AlgorithmSection,
    }
    seen: dict[str, set[str]] = {name: set() for name in kinds}
    for where, names, here in table("section | setting | here"):
        if not where:
            continue
        [section] = spans(where)
        kind = kinds[section]
        known = {field.name for field in dataclasses.fields(kind)}
        for name in map(setting_name, spans(names)):
            seen[section].add(name)
            if here.startswith("same") and not kind.open:
                assert name in known, (section, name)
            elif here.startswith("passed over") and not kind.open:
                assert name in kind.passed_over, (section, name)
            elif here.startswith("renamed"):
                assert name in {*kind.refused, *kind.passed_over}, (section, name)
    # What the file's reader knows of RELAAX's stands on the page.
    for section, kind in kinds.items():
        relaaxs = {*kind.passed_over, *kind.refused}
        ours = {"metrics_server", "parameter_server", "rlx_server"}  # flags of its programs
        ours |= {"aws_access_key", "aws_secret_key"}  # in the file that aws-keys names
        assert relaaxs - ours <= seen[section], section


def test_settings_of_pg_are_what_the_page_says(caplog: pytest.LogCaptureFixture) -> None:
    least = {"input": {"shape": [2]}, "output": {"action_size": 2}}
    values = {"activation": "relu", "combine_gradients": "fifo", "continuous": False, "seed": 1}
    values |= {"use_linear_schedule": False, "normalize_advantage": True, "hidden_sizes": [3]}
    values |= {"shape": [2], "action_low": [0, 0], "action_high": [1, 1]}
    said: dict[str, set[str]] = {}
    for names, here in table("setting | pg"):
        for path in spans(names):
            section, _, name = path.rpartition("/")
            config: dict[str, Any] = {key: dict(value) for key, value in least.items()}
            place = config[section] if section else config
            word = re.match(r"[\w ]+", here)
            assert word
            said.setdefault(word[0].split()[0], set()).add(name)
            caplog.clear()
            if here.startswith("refused"):
                place[name] = 7
                with pytest.raises(ValueError, match=rf"algorithm/{path}: pg can do with"):
                    Settings.of(Options(config))
                continue
            place[name] = values.get(name, 2)
            Settings.of(Options(config))
            passed_over = f"algorithm/{path} is no setting of pg" in caplog.text
            assert passed_over == here.startswith("passed over"), path
    assert said["same"] >= {"shape", "action_size", "batch_size"}
    ours = {"gae_lambda", "patience"}  # `patience` is not RELAAX's
    assert {field.name for field in dataclasses.fields(Settings)} - said["same"] <= ours


def test_algorithms_are_mapped_as_the_page_says() -> None:
    seen = set()
    for originals, here, _ in table("RELAAX | here |"):
        [thing] = spans(here)
        for original in spans(originals):
            seen.add(original)
            section = configuration.AlgorithmSection(name=original)
            if thing == "pg":
                assert section.thing == "algorithm:pg"
            else:
                with pytest.raises(configuration.ApplicationError, match=f"{thing} comes near"):
                    _ = section.thing
    assert seen == {"policy_gradient", "da3c", "trpo", "dppo", "dqn", "ddpg"}


CLASSES = PAGE[PAGE.index("## Classes") :]


def test_classes_of_the_page_are_there() -> None:
    found = 0
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|$", CLASSES, re.M):
        here = row[1]
        if here.startswith("left out"):
            continue
        for name in spans(here.partition(" behind")[0].partition("; `RLXPort`")[0]):
            if name.startswith("rlwire."):
                module, _, attribute = name.rpartition(".")
                assert hasattr(importlib.import_module(module), attribute), name
            elif re.fullmatch(r"[A-Z]\w+|options|open_parameter_server|load_algorithm", name):
                assert name in relaax.__all__, name
            elif re.fullmatch(r"[a-z_]+", name) and name not in ("op_", "connect"):
                assert hasattr(relaax.ParameterServer, name), name
            else:
                continue
            found += 1
    assert found >= 25

"""docs/howto/applications.md: the names in its tables exist."""

import dataclasses
import importlib
import re

import pytest

from rlwire import cli, relaax, rlx
from rlwire.relaax.applications import configuration
from rlwire.rlx.config import setting_name
from tests.howtos import PAGES
from tests.raising import raised

PAGE = PAGES["applications"]


def table(heading):
    """Return the rows of the page's table with this heading, cell by cell."""
    [found] = re.findall(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.M)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.splitlines()]


def spans(cell):
    return re.findall(r"`([^`]+)`", cell)


COMMANDS = sorted(
    {
        command
        for heading in ("RELAAX | rlwire |\n|---|---|\n| `relaax new NAME", "RELAAX's programs")
        for command in re.findall(r"`(rlwire [^`]+)`", PAGE[PAGE.index(heading) :].split("\n\n")[0])
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_have_their_options(command, capsys):
    _, sub, *words = command.split()
    url = [word.replace("HOST:PORT", "localhost:1") for word in words if "://" in word][:2]
    served = ["algorithm:pg", *url[:1]] if sub == "serve" and len(url) == 1 else url
    ended = raised(SystemExit, cli.main, [sub, *(served if sub == "serve" else []), "--help"])
    assert ended.code == 0
    text = capsys.readouterr().out
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(^|[\s\[,]){word}\b", text), (command, word)


def test_page_lists_the_application_commands():
    assert {command.split()[1] for command in COMMANDS} >= {"new", "generate", "config", "run"}
    assert len(COMMANDS) >= 10


def test_settings_of_the_page_exist_in_their_sections():
    rows = table("section | settings")
    assert len(rows) == 5
    for where, names in rows:
        attribute, kind = configuration._SECTIONS[setting_name(spans(where)[0])]
        known = {field.name for field in dataclasses.fields(kind)}
        assert set(map(setting_name, spans(names.partition(", and ")[0]))) <= known, attribute


CLASSES = PAGE[PAGE.index("## Classes") :]


def test_classes_of_the_page_exist():
    found = 0
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|$", CLASSES, re.M):
        for name in spans(row[1]):
            if name.startswith("rlwire."):
                module, _, attribute = name.rpartition(".")
                assert hasattr(importlib.import_module(module), attribute), name
            elif re.fullmatch(r"[A-Z]\w+|options|open_parameter_server|load_algorithm", name):
                assert name in {*relaax.__all__, *rlx.__all__}, name
            elif re.fullmatch(r"[a-z_]+", name) and name not in ("op_", "connect"):
                assert hasattr(relaax.ParameterServer, name), name
            else:
                continue
            found += 1
    assert found >= 20

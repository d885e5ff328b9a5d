"""What a RELAAX environment is started with: command line, file, and what is said about them."""

import logging
import re
import sys
import textwrap
from pathlib import Path

import pytest

from rlwire.rlx import TrainingBase
from rlwire.rlx.config import EnvironmentOptions, Options, options
from tests.raising import raised

# In the manner of RELAAX's own files: hyphens, dashes in front, numbers of YAML 1.2.
APP = """
    ---
    environment:
      run: python environment/training.py
      name: CartPole-v0
      shape: [42, 42, 3]
      max_episodes: 3
      infinite_run: no
    relaax-metrics-server:
      enable_unknown_metrics: false
      metrics:
        episode_reward: true
        action: false
    relaax-rlx-server:
      --bind: 127.0.0.1:7009
      log-level: INFO
    version: 1.1.0
    algorithm:
      output:
        action_size: 2
      initial_learning_rate: 1e-4
"""


@pytest.fixture
def write(tmp_path):
    def write(text=APP, name="app.yaml"):
        pytest.importorskip("ruamel.yaml")
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), "utf-8", "surrogateescape")
        return str(path)

    return write


@pytest.fixture
def start(monkeypatch):
    def start(*arguments):
        monkeypatch.setattr(sys, "argv", ["training.py", *arguments])
        vars(options).pop("_values", None)  # read again
        return options

    return start


def loaded(*arguments):
    return EnvironmentOptions().load(arguments)


def test_options_have_defaults_without_a_file():
    found = loaded()
    assert (found.exploit, found.show_ui, found.config) == (False, False, None)
    assert found.rlx_server_address == "localhost:7001"


def test_settings_are_found_by_path(write):
    found = loaded("--config", write())
    for path, default, value in (
        ("environment/name", "Pong", "CartPole-v0"),
        ("environment/frame_skip", None, None),
        ("environment/frame_skip", 4, 4),
        ("environment/name/deeper", 5, 5),
        ("nothing/at/all", 6, 6),
        ("environment/shape", None, [42, 42, 3]),
        ("relaax_rlx_server/bind", None, "127.0.0.1:7009"),
        ("relaax-rlx-server/--bind", None, "127.0.0.1:7009"),
    ):
        assert found.get(path, default) == value, path
    assert found.get("environment").get("max_episodes") == 3


def test_settings_are_attributes_of_their_section(write):
    found = loaded("--config", write())
    assert found.algorithm.output.action_size == 2
    assert found.algorithm.initial_learning_rate == 0.0001
    assert hasattr(found.relaax_rlx_server, "log_level")
    assert not hasattr(found.relaax_rlx_server, "profile_dir")
    assert "'beta'" in str(raised(AttributeError, getattr, found.algorithm, "beta"))
    assert list(found.algorithm) == ["output", "initial_learning_rate"]


def test_setting_names_are_normalized_to_identifiers():
    found = Options({"--a-b": 1, "2nd": 2, 3: 3, "c d": {"e/f": 4}})
    assert (found.a_b, found.get("nd"), found.get("3"), found.c_d.e_f) == (1, 2, 3, 4)


def test_options_are_parsed_from_the_command_line(start):
    assert start("--exploit", "True").exploit is True


def test_training_starts_with_the_documented_arguments(start, write, tmp_path, monkeypatch, caplog):
    write()
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/protocols/rlx.md").read_text("utf-8")
    [arguments] = re.findall(r"starts an environment as `training.py ([^`]+)`", page)
    start(*arguments.replace("False", "True").split())
    training = TrainingBase()
    assert training.addresses == ["127.0.0.1:7009"]
    assert (training.exploit, training.max_episodes, training.infinite_run) == (True, 3, False)
    assert options.show_ui is True
    assert caplog.records == []


def test_command_line_flags_override_the_file(start, write):
    start(
        "--config", write(), "--rlx-server-address", "a:1, b:2", "--max-episodes", "9",
        "--infinite-run",
    )  # fmt: skip
    training = TrainingBase()
    assert training.addresses == ["a:1", "b:2"]
    assert (training.max_episodes, training.infinite_run) == (9, True)
    assert options.get("environment/max_episodes") == 9


def test_invalid_value_in_the_file_is_an_error_beside_its_flag(start, write):
    start("--config", write("exploit: xx"), "--exploit", "True")
    assert "exploit" in str(raised(ValueError, options.load))


def test_server_address_is_read_from_an_environment_variable(start, write, monkeypatch):
    text = """
        relaax-rlx-server:
          bind: a:1
          bind_by_env_var: RLX_FOR_THE_TEST
    """
    assert start("--config", write(text)).rlx_server_address == "a:1"
    monkeypatch.setenv("RLX_FOR_THE_TEST", "b:2")
    assert loaded("--config", write(text)).rlx_server_address == "b:2"


def test_unknown_arguments_are_ignored_with_a_warning(caplog):
    assert loaded("--level", "3", "map.txt", "--exploit", "True", "x\ny").exploit is True
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "'--level 3 map.txt x\\ny'" in record.getMessage()


def test_missing_address_and_another_version_are_logged(write, caplog):
    loaded("--config", write("environment: {steps: 3}"))
    loaded("--config", write(APP.replace("1.1.0", "2.0.0")))
    missing, version = [record.getMessage() for record in caplog.records]
    assert "has no relaax-rlx-server/bind" in missing
    assert "version 2.0.0" in version


@pytest.mark.each(
    ("text", "words"),
    [
        ("environment: {max_episodes: many}", "environment/max_episodes: expected int"),
        ("environment: {max_episodes: 1.5}", "expected int, not 1.5"),
        ("environment: {max_episodes: .inf}", "environment/max_episodes"),
        ("environment: {max_episodes: true}", "expected int, not True"),
        ("environment: {infinite_run: maybe}", "environment/infinite_run: expected True or"),
        ("environment: 3", "environment must be a section, not 3"),
        ("relaax-rlx-server: {bind: 7001}", "bind must be 'host:port', not 7001"),
        ("exploit: perhaps", "exploit: expected True or False, not 'perhaps'"),
        ("log_level: loud", "log_level must be DEBUG"),
        ("- a\n- b", "must hold sections, such as 'environment:', not list"),
        ("", "must hold sections, such as 'environment:', not NoneType"),
        ("a: [", "cannot be read as YAML"),
        ("a: 1\na: 2", "cannot be read as YAML"),
        ("a: \udcff", "cannot be read as YAML"),  # not UTF-8
        ("a: !!python/object/apply:os.getcwd []", "cannot be read as YAML"),
    ],
)
def test_invalid_configuration_is_named(write, text, words):
    error = str(raised(ValueError, loaded, "--config", write(text)))
    assert "app.yaml" in error
    assert words in error


def test_missing_file_is_an_error(tmp_path):
    pytest.importorskip("ruamel.yaml")
    raised(FileNotFoundError, loaded, "--config", str(tmp_path / "none.yaml"))


def test_invalid_flag_value_is_named_in_the_usage_error(capsys):
    raised(SystemExit, loaded, "--show-ui", "maybe")
    assert "'maybe'" in capsys.readouterr().err

"""`rlwire new`, `generate` and `config`: what they write, and what they keep."""

from pathlib import Path

import pytest

from rlwire import cli
from rlwire.relaax import applications, load_algorithm
from rlwire.relaax.applications.generating import ENVIRONMENTS

pytest.importorskip("ruamel.yaml")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_new_creates_an_application_for_each_environment(tmp_path, environment):
    folder = applications.new(tmp_path / "deep" / "demo", environment)
    application = applications.read_application(folder / "app.yaml")
    assert application.algorithm.name in ("bandit", "pg")
    assert application.metrics_server.metrics_dir == "logs/metrics"
    assert application.parameter_server.checkpoint_dir == "logs/checkpoints"
    python, script = application.environment.run.split()
    assert python == "python"
    assert (folder / script).is_file()
    text = (folder / "app.yaml").read_text()
    assert text.count("\n\n\n") == 0
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(applications.ApplicationError, match=r"demo.*exists"):
        applications.new(folder)


def test_new_creates_an_application_with_the_chosen_algorithm(tmp_path):
    folder = applications.new(tmp_path / "a", "bandit", "pg")
    assert applications.read_application(folder / "app.yaml").algorithm.name == "pg"
    with pytest.raises(applications.ApplicationError, match=r"algorithm bandit for .* gym"):
        applications.new(tmp_path / "b", "gym", "bandit")
    with pytest.raises(applications.ApplicationError, match=r"chess: .* bandit, gym"):
        applications.new(tmp_path / "b", "chess")
    assert not (tmp_path / "b").exists()


def test_generate_keeps_backups_of_replaced_files(tmp_path):
    folder = applications.new(tmp_path / "demo")
    config = folder / "app.yaml"
    before = config.read_text()
    (folder / "environment" / "mine.py").write_text("mine")
    applications.generate("gym", config=config)
    assert (folder / "environment.~1~" / "mine.py").read_text() == "mine"
    assert (folder / "app.yaml.~1~").read_text() == before
    assert files(folder / "environment") == {"training.py"}
    application = applications.read_application(config)
    assert application.environment.type == "gym"
    assert application.environment.own["name"] == "CartPole-v1"
    assert application.algorithm.name == "bandit"
    assert "# address for environments" in config.read_text()  # comments stay
    applications.generate("ale", config=config)
    assert (folder / "environment.~2~").is_dir()


def test_generated_algorithm_is_loaded_from_its_copy(tmp_path):
    folder = applications.new(tmp_path / "demo")
    config = folder / "app.yaml"
    applications.generate(algorithm="bandit", config=config)
    application = applications.read_application(config)
    assert application.algorithm.path == "./algorithm"
    assert application.algorithm.own["epsilon"] == 0.1
    assert files(folder / "algorithm") == {"__init__.py", "agent.py", "parameter_server.py"}
    algorithm = load_algorithm(folder / "algorithm", {"output": {"action_size": 2}})
    assert Path(algorithm.agent.__init__.__code__.co_filename).is_relative_to(folder)
    applications.generate(algorithm="bandit", config=config)
    assert (folder / "algorithm.~1~").is_dir()
    assert config.read_text().count("path: ./algorithm") == 1


@pytest.mark.each(
    ("name", "similar"),
    [("da3c", "algorithm:pg"), ("trpo", "rllib:PPO"), ("dqn", "rllib:DQN"), ("ddpg", "rllib:SAC"),
     ("dppo", "rllib:PPO"), ("policy-gradient", "algorithm:pg"),
     ("policy_gradient", "algorithm:pg"), ("chess", None)],
)  # fmt: skip
def test_relaax_algorithms_are_rejected_with_a_remedy(tmp_path, name, similar):
    config = applications.new(tmp_path / name) / "app.yaml"
    for call in (
        lambda: applications.generate(algorithm=name, config=config),
        lambda: applications.configure(algorithm=name, config=config),
        lambda: applications.new(tmp_path / "other", algorithm=name),
        lambda: load_algorithm(name),
    ):
        with pytest.raises((applications.ApplicationError, ImportError), match=name) as raised:
            call()
        assert ("rlwire serve" in str(raised.value)) == (similar is not None)
        assert similar is None or f"rlwire serve {similar}" in str(raised.value)
    assert not (tmp_path / "other").exists()


def test_generate_of_an_unknown_algorithm_that_the_file_names_changes_nothing(tmp_path):
    config = applications.new(tmp_path / "demo") / "app.yaml"
    config.write_text(config.read_text().replace("name: bandit", "name: dqn", 1))
    (config.parent / "algorithm").mkdir()
    (config.parent / "algorithm" / "own.py").write_text("")
    before = config.read_text(), files(config.parent)
    with pytest.raises(applications.ApplicationError, match=r"dqn.*rllib:DQN"):
        applications.generate(algorithm="dqn", config=config)
    assert (config.read_text(), files(config.parent)) == before


def test_algorithm_is_generated_for_an_application_without_a_type_of_environment(tmp_path):
    config = tmp_path / "app.yaml"
    config.write_text("environment:\n  run: ./train\nalgorithm:\n  name: own\n  path: ./own\n")
    applications.generate(algorithm="pg", config=config)
    assert applications.read_application(config).algorithm.name == "pg"
    assert (tmp_path / "algorithm" / "agent.py").is_file()


def test_relaax_environments_are_created_or_rejected(tmp_path):
    made, theirs = (applications.new(tmp_path / name, name) for name in ("gym", "openai-gym"))
    assert theirs.joinpath("app.yaml").read_text() == made.joinpath("app.yaml").read_text()
    assert files(theirs / "environment") == files(made / "environment")
    config = applications.new(tmp_path / "changed") / "app.yaml"
    applications.generate("openai-gym", config=config)
    applications.configure("openai-gym", "pg", config=config)
    assert applications.read_application(config).environment.type == "gym"
    config.write_text(config.read_text().replace("type: gym", "type: openai-gym"))
    applications.configure(algorithm="pg", config=config)
    before = files(config.parent)
    for name in ("deepmind-lab", "vizdoom"):
        with pytest.raises(applications.ApplicationError, match=f"{name}.*openai-gym"):
            applications.new(tmp_path / name, name)
        with pytest.raises(applications.ApplicationError, match=f"{name}.*openai-gym"):
            applications.generate(name, config=config)
        assert not (tmp_path / name).exists()
    assert files(config.parent) == before


def test_configure_applies_a_configuration_by_name(tmp_path):
    found = applications.configurations()
    assert set(found) == {"bandit", "pg-bandit", "pg-gym", "pg-ale"}
    assert all(len(text) > 20 for text in found.values())
    config = applications.new(tmp_path / "demo", "gym") / "app.yaml"
    applications.configure("bandit", "bandit", config=config)
    application = applications.read_application(config)
    assert (application.algorithm.name, application.environment.type) == ("bandit", "bandit")
    with pytest.raises(applications.ApplicationError, match=r"trpo .*bandit, pg-ale, "):
        applications.configure(algorithm="trpo", config=config)
    config.write_text("environment: {run: x}")
    with pytest.raises(applications.ApplicationError, match="environment/type "):
        applications.configure(algorithm="pg", config=config)


def test_new_generate_and_config_commands_report_success_and_errors(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new", "demo", "-e", "gym"]) == 0
    assert cli.main(["new", "demo"]) == 1
    assert "rlwire: demo " in capsys.readouterr().err
    assert cli.main(["config"]) == 0
    assert "pg-gym\n    `pg`: " in capsys.readouterr().out
    monkeypatch.chdir("demo")
    assert cli.main(["generate", "-e", "bandit"]) == 0
    assert cli.main(["config", "-a", "pg"]) == 0
    assert applications.read_application("app.yaml").algorithm.own["hidden_sizes"] == [10]
    assert cli.main(["config", "-a", "bandit", "--config", "app.yaml"]) == 0
    assert cli.main(["generate"]) == 1
    assert cli.main(["generate", "-a", "dqn"]) == 1
    monkeypatch.chdir("..")
    assert cli.main(["config", "-a", "pg"]) == 1
    errors = capsys.readouterr().err
    assert "pass --environment" in errors
    assert "algorithm dqn" in errors
    assert "there is no app.yaml" in errors
    assert cli.main(["new", "other", "-e", "chess"]) == 1
    assert "template chess" in capsys.readouterr().err

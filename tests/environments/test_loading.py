"""Environments by name."""

import contextlib
import inspect

import gymnasium
import pytest

from rlwire.dm_env_rpc import StatusError
from rlwire.dm_env_rpc.environment_world import EnvironmentWorlds
from rlwire.environments.loading import load_environment


def test_loader_loads_an_attribute_of_a_module():
    assert load_environment("collections.abc:Mapping.get").__name__ == "get"


def test_loader_loads_gymnasium_ids_with_their_arguments():
    make = load_environment("gym:CartPole-v1")
    assert {"max_episode_steps", "render_mode"} <= set(inspect.signature(make).parameters)
    accepts = ["max_episode_steps"]
    agent = EnvironmentWorlds(make, accepts=accepts)({"max_episode_steps": 3}).join({"seed": 1})
    agent.begin()
    assert [agent.step({"action": 1}).state for _ in range(3)] == [1, 1, 3]
    with pytest.raises(StatusError, match="accepted: max_episode_steps"):
        EnvironmentWorlds(make, accepts=accepts)({"render_mode": "human"})
    with pytest.raises(ValueError, match="'colour'; it has max_episode_steps, "):
        EnvironmentWorlds(make, accepts=["colour"])
    assert make().spec.id == load_environment("CartPole-v1")().spec.id == "CartPole-v1"


def test_loader_imports_the_module_that_registers_an_id(tmp_path, monkeypatch):
    (tmp_path / "registering.py").write_text(
        "import gymnasium\n"
        "def make(**anything): return gymnasium.make('CartPole-v1')\n"
        "gymnasium.register('Registered-v0', make)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    make = load_environment("gym:registering:Registered-v0")
    assert list(inspect.signature(make).parameters) == ["env_kwargs"]
    assert isinstance(make(), gymnasium.Env)
    del gymnasium.registry["Registered-v0"]


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("NoSuch-v1", ValueError, "NoSuch.*expected 'module:environment', 'gym:id' or a URL"),
        ("gym:", ValueError, "expected"),
        (":x", ValueError, "expected"),
        ("gym:NoSuch-v0", ValueError, "NoSuch"),
        ("no_such_module_at_all:X", ImportError, "no_such_module_at_all"),
        ("json:NoSuchName", AttributeError, "NoSuchName"),
        ("gym:ALE/NoSuchGame-v5", ValueError, "gym:ale_py:ALE/NoSuchGame-v5"),
        ("gym:NoSuch-v7", ValueError, "gym:MODULE:NoSuch-v7"),
        ("gym:json:NoSuch-v7", ValueError, "Importing json "),
    ],
)
def test_missing_environments_are_named(name, kind, text):
    with pytest.raises(kind, match=text):
        load_environment(name)


def test_hinted_module_registers_the_environment():
    pytest.importorskip("ale_py")
    with contextlib.closing(load_environment("gym:ale_py:ALE/Pong-v5")()) as environment:
        assert environment.action_space.n == 6

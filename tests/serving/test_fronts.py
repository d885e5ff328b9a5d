"""Things with a prefix: a table of modules that make servers of them."""

import sys
from types import ModuleType

import pytest

import rlwire
from rlwire.serving import fronts
from rlwire.serving.fronts import served
from rlwire.urls import parse_url
from tests.raising import raised


@pytest.fixture
def made(monkeypatch):
    made = []

    class Server:
        url = "rlx://nowhere:1"

        def check(self):
            made.append("checked")

        def start(self):
            return self

    def server(name, url, **options):
        made.append((name, url.port, options))
        return Server()

    module = ModuleType("a_module_of_servers")
    module.server = server
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(fronts.LEARNERS, "learned", module.__name__)
    return made


@pytest.mark.parametrize("scheme", ["rlx", "openpi"])
def test_target_prefix_selects_its_server(made, scheme):
    server = rlwire.serve("learned:PPO:x", f"{scheme}://localhost:0", like="CartPole-v1")
    assert server.url == "rlx://nowhere:1"
    (name, port, options), checked = made
    assert (name, port, options["like"], checked) == ("PPO:x", 0, "CartPole-v1", "checked")


@pytest.mark.parametrize("thing", ["my_agents:Agent", "learned", object])
def test_targets_without_a_prefix_select_no_server(made, thing):
    assert served(thing, parse_url("rlx://localhost"), {}) is None
    assert not made


def test_agent_server_rejects_options_of_algorithms():
    raised(TypeError, rlwire.serve, "tests.none:Agent", "rlx://localhost:0", like="CartPole-v1")

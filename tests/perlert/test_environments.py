"""Environments of both kinds as simulations."""

import gymnasium
from gymnasium import spaces

from rlwire.errors import EncodeError
from rlwire.perlert.environment import Simulation, simulations_of
from tests.raising import raised, raised_with


def test_parser_rejects_texts_that_are_not_actions(worlds):
    simulation = Simulation(worlds.Walk())
    for text in ("", "3", "-1", "left", "1.5", "1,2", "nan"):
        raised_with(ValueError, r".+", simulation.parse, "agent0", text)
    pendulum = Simulation(gymnasium.make("Pendulum-v1"))
    assert pendulum.parse("agent0", "1.25").tolist() == [1.25]
    for text in ("2.5", "inf", "nan", "1,1"):
        raised_with(ValueError, r".+", pendulum.parse, "agent0", text)


def test_agent_names_are_unique_once_escaped(worlds):
    class Odd(worlds.Crowd):
        def __init__(self, *names):
            super().__init__()
            self.possible_agents = [*names]

    assert Simulation(Odd("a:b", "c_1")).agents == {"a_b": "a_b", "c_1": "c"}
    for names in (("a:b", "a_b"), ("", "a")):
        assert "keys" in str(raised(EncodeError, Simulation, Odd(*names)))


def test_environment_with_unsupported_spaces_is_closed(worlds):
    made = []

    def make():
        made.append(worlds.Walk())
        made[0].observation_space = spaces.Sequence(spaces.Discrete(2))
        return made[0]

    raised(EncodeError, simulations_of, make)
    assert made[0].closed

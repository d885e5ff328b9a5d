"""What may be set, by RELAAX's names, and what a wrong value is told."""

import logging

import pytest

from rlwire.relaax.algorithms.pg.settings import Settings
from rlwire.rlx.config import Options

LEAST = {"input": {"shape": [4]}, "output": {"action_size": 2}}


def of(**more):
    return Settings.of(Options({**LEAST, **more}))


def test_settings_of_a_relaax_file_are_accepted(caplog):
    # policy-gradient's, of a bandit: all that RELAAX 1.1.0 writes into it.
    found = of(
        name="policy_gradient",
        input={"shape": [0]},
        output={"continuous": False, "action_size": 4},
        hidden_sizes=[10],
        batch_size=10,
        initial_learning_rate=1e-2,
        rewards_gamma=0.97,
    )
    assert found == Settings(
        (0,), 4, hidden_sizes=(10,), batch_size=10, initial_learning_rate=0.01, rewards_gamma=0.97
    )
    assert found.state_size == 1
    assert not caplog.records


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"input": {}}, r"algorithm/input/shape must be set"),
        ({"output": {}}, r"algorithm/output/action_size must be set"),
        ({"input": {"shape": 4}}, r"algorithm/input/shape: expected tuple\[int, \.\.\.\], not 4"),
        ({"batch_size": 1.5}, r"algorithm/batch_size: expected int, not 1\.5"),
        ({"batch_size": "many"}, r"algorithm/batch_size: expected int, not 'many'"),
        ({"batch_size": 0}, r"algorithm/batch_size must be above 0, not 0"),
        ({"rewards_gamma": True}, r"algorithm/rewards_gamma: expected float, not True"),
        (
            {"output": {"action_size": 2, "continuous": "maybe"}},
            r"algorithm/output/continuous: expected True or False, not 'maybe'",
        ),
        (
            {"output": {"action_size": 2, "action_high": [1]}},
            r"algorithm/output/action_high must have 2 numbers .*, not 1",
        ),
    ],
)
def test_invalid_setting_is_rejected(wrong, text):
    with pytest.raises(ValueError, match=text):
        of(**wrong)


def test_unknown_settings_are_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert of(batchsize=3, GAMMA=0.5) == of()
        assert of(continuous=True).continuous is False  # it belongs to output
    texts = [record.getMessage() for record in caplog.records]
    assert ["GAMMA" in texts[0], "batchsize" in texts[1], "continuous" in texts[2]] == [True] * 3

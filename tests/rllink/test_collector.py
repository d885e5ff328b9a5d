"""Steps become episodes, cut where a batch is full."""

import numpy as np
import pytest

from rlwire.errors import EncodeError
from rlwire.rllink import EpisodeCollector
from tests.raising import raised, raised_with


def play(collector, lengths):
    """Play episodes of these lengths, and return the batches that were full."""
    batches, clock = [], 0
    for length in lengths:
        collector.reset(np.full(2, clock, np.float32))
        for number in range(length):
            clock += 1
            collector.step(
                number, np.full(2, clock, np.float32), clock, number == length - 1,
                outputs={"action_logp": -clock},
            )  # fmt: skip
            if collector.full:
                batches.append(collector.take())
        clock += 1
    return batches


def test_collector_splits_episodes_into_batches_of_exact_size():
    batches = play(EpisodeCollector(10), [4, 13, 7, 6])
    assert [[len(piece) for piece in batch] for batch in batches] == [[4, 6], [7, 3], [4, 6]]
    assert [[piece.done for piece in batch] for batch in batches] == [
        [True, False], [True, False], [True, True],
    ]  # fmt: skip
    first, second = batches[0][1], batches[1][0]
    assert first.id == second.id != batches[0][0].id
    assert (first.started, second.started) == (0, 6)
    # A piece begins with the observation that the one before ended with.
    np.testing.assert_array_equal(first.observations[-1], second.observations[0])
    np.testing.assert_array_equal(np.concatenate([first.actions, second.actions]), range(13))
    np.testing.assert_array_equal(second.outputs["action_logp"], -second.rewards)
    for batch in batches:
        for piece in batch:
            piece.check()
            assert piece.observations.dtype == np.float32


def test_reset_truncates_the_unfinished_episode():
    collector = EpisodeCollector(10)
    collector.reset(np.zeros(2))
    collector.step(0, np.ones(2), 1.0, False)
    collector.reset(np.zeros(2))
    assert [(piece.terminated, piece.truncated) for piece in collector.take()] == [(False, True)]
    assert len(collector) == 0


def test_collector_stacks_dicts_and_tuples():
    collector = EpisodeCollector(2)
    place = {"a": np.zeros(3), "b": (1.0, np.int64(2))}
    collector.reset(place)
    for _ in range(2):
        collector.step((0, 0.5), place, 0.0, False)
    [piece] = collector.take()
    assert piece.observations["a"].shape == (3, 3)
    assert piece.observations["b"][1].tolist() == [2, 2, 2]
    assert piece.actions[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "step",
    [
        {"action": 0.5}, {"action": [1]}, {"observation": np.zeros(3)}, {"observation": {"a": 1}},
        {"outputs": {}}, {"outputs": {"logp": 1.0, "more": 2.0}},
    ],
    ids=str,
)  # fmt: skip
def test_collector_rejects_steps_of_another_structure(step):
    collector = EpisodeCollector(10)
    collector.reset(np.zeros(2))
    fits = {
        "action": 1, "observation": np.zeros(2), "reward": 0.0, "terminated": False,
        "outputs": {"logp": 1.0},
    }  # fmt: skip
    collector.step(**fits)
    raised_with(ValueError, r"^(a step|the observation)", collector.step, **{**fits, **step})
    assert len(collector) == 1


def test_collector_rejects_steps_before_reset_and_past_the_batch():
    raised_with(ValueError, r"steps.*1.*0", EpisodeCollector, 0)
    collector = EpisodeCollector(1)
    assert "reset" in str(raised(RuntimeError, collector.step, 0, 0.0, 0.0, False))
    collector.reset(0.0)
    collector.step(0, 0.0, 0.0, False)
    assert "take" in str(raised(RuntimeError, collector.step, 0, 0.0, 0.0, False))
    raised(ValueError, EpisodeCollector(1).reset, "text")


def test_collector_rejects_integers_that_do_not_fit_their_column():
    collector = EpisodeCollector(4)
    collector.reset(np.zeros(2, np.int8))
    collector.step(np.int8(1), np.ones(2, int), 0.0, False)  # which fit
    fits = np.zeros(2, np.int8)
    for action, place in ((np.int64(300), fits), (300, fits), (1, np.array([0, 256]))):
        assert "int8" in str(raised(ValueError, collector.step, action, place, 0.0, False))
    np.testing.assert_array_equal(collector.take()[0].observations, [[0, 0], [1, 1]])


def test_integers_are_recorded_in_a_column_of_complex_numbers():
    collector = EpisodeCollector(4)
    collector.reset(np.zeros(2, complex))
    collector.step(1j, np.array([1, 2]), 0.0, False)
    collector.step(2, np.array([3, 2**53]), 0.0, True)
    np.testing.assert_array_equal(collector.take()[0].actions, [1j, 2])
    lossy = np.zeros(2, complex), np.array([0, 2**53 + 1])
    collector.reset(lossy[0])
    raised_with(ValueError, "fit complex128", collector.step, 1j, lossy[1], 0.0, False)


def test_values_that_a_column_would_change_are_rejected():
    collector = EpisodeCollector(4)
    masked = np.ma.array(np.zeros(2), mask=[True, False])
    raised_with(ValueError, "masked", collector.reset, masked)
    collector.reset(np.zeros(2))
    for seen, reward, why in ((masked, 0.0, "masked"), (np.zeros(2), "1.5", "must be one number")):
        raised_with(ValueError, why, collector.step, np.float32(0), seen, reward, False)
    collector.step(np.float32(0), np.zeros(2), 0.0, False)
    step = (2**24 + 1, np.zeros(2), 0.0, False)
    raised_with(ValueError, "step, actions.* fit float32", collector.step, *step)


@pytest.mark.parametrize("first", [np.float32(0), np.zeros(2, np.float32)], ids=["number", "array"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_number_beyond_the_dtype_of_its_column_is_refused(first, dtype):
    first = np.asarray(first).astype(dtype)[()]
    collector = EpisodeCollector(20)
    collector.reset(first)
    collector.step(first, first, 1.0, True)
    collector.reset(first)
    for number in (1e39, np.float64(1e39), -(2**24) - 1):
        value = [number, 0.5] if first.shape else number
        raised(EncodeError, collector.step, value, first, 1.0, False)
        raised(EncodeError, collector.reset, value)
        collector.reset(first)
    collector.reset(first)
    infinite = np.full_like(first, np.inf)
    collector.step(infinite, infinite.tolist(), 1.0, True)
    taken = collector.take()[-1]
    assert np.isinf(taken.observations[1]).all()

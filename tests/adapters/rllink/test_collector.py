"""Steps become episodes, cut where a batch is full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlwire.adapters.rllink import EpisodeCollector, MultiAgentCollector


def play(collector: EpisodeCollector, lengths: list[int]) -> list[Any]:
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


def test_batches_have_exactly_so_many_steps() -> None:
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


def test_what_was_taken_stays_as_it_was() -> None:
    collector = EpisodeCollector(3)
    [[first], [second]] = play(collector, [6])
    assert first.actions.tolist() == [0, 1, 2]
    assert second.actions.tolist() == [3, 4, 5]


def test_a_reset_truncates() -> None:
    collector = EpisodeCollector(10)
    collector.reset(np.zeros(2))
    collector.step(0, np.ones(2), 1.0, False)
    collector.reset(np.zeros(2))
    assert [(piece.terminated, piece.truncated) for piece in collector.take()] == [(False, True)]
    assert len(collector) == 0
    assert not collector.needs_reset


def test_dicts_tuples_and_infos() -> None:
    collector = EpisodeCollector(2, infos=True)
    place = {"a": np.zeros(3), "b": (1.0, np.int64(2))}
    collector.reset(place, {"first": 1})
    for _ in range(2):
        collector.step((0, 0.5), place, 0.0, False, info={"x": 1})
    [piece] = collector.take()
    assert piece.observations["a"].shape == (3, 3)
    assert piece.observations["b"][1].tolist() == [2, 2, 2]
    assert piece.actions[1].tolist() == [0.5, 0.5]
    assert piece.infos == [{"first": 1}, {"x": 1}, {"x": 1}]
    collector.step((0, 0.5), place, 0.0, True, info={"y": 1})
    [piece] = collector.take()
    assert piece.infos == [{"x": 1}, {"y": 1}]


@pytest.mark.parametrize(
    "step",
    [
        {"action": 0.5},
        {"action": [1]},
        {"observation": np.zeros(3)},
        {"observation": {"a": 1}},
        {"outputs": {}},
        {"outputs": {"logp": 1.0, "more": 2.0}},
    ],
    ids=str,
)
def test_steps_that_do_not_fit(step: dict[str, Any]) -> None:
    collector = EpisodeCollector(10)
    collector.reset(np.zeros(2))
    fits: dict[str, Any] = {
        "action": 1, "observation": np.zeros(2), "reward": 0.0, "terminated": False,
        "outputs": {"logp": 1.0},
    }  # fmt: skip
    collector.step(**fits)
    with pytest.raises(ValueError, match="has"):
        collector.step(**{**fits, **step})
    assert len(collector) == 1


def test_steps_out_of_turn() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        EpisodeCollector(0)
    collector = EpisodeCollector(1)
    with pytest.raises(RuntimeError, match="reset"):
        collector.step(0, 0.0, 0.0, False)
    collector.reset(0.0)
    collector.step(0, 0.0, 0.0, False)
    with pytest.raises(RuntimeError, match="take"):
        collector.step(0, 0.0, 0.0, False)
    with pytest.raises(ValueError, match="entries of type"):
        EpisodeCollector(1).reset("text")


# --- several agents


def one(agents: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(agents, value)


def test_several_agents_come_and_end() -> None:
    collector = MultiAgentCollector(5)
    clock = iter(range(1000))

    def seen(agents: str) -> dict[str, Any]:
        now = next(clock)
        return {agent: np.array([now, ord(agent)], np.float32) for agent in agents}

    collector.reset(seen("ab"))
    outputs = one("ab", {"action_logp": -1.0})
    collector.step(one("ab", 1), seen("abc"), one("ab", 1.0), {}, outputs=outputs)
    outputs = one("abc", {"action_logp": -1.0})
    collector.step(one("abc", 1), seen("abc"), one("abc", 1.0), {"b": True}, outputs=outputs)
    assert not collector.full
    for _ in range(3):
        collector.step(one("ac", 1), seen("ac"), one("ac", 2.0), {}, outputs=outputs)
    assert collector.full
    [first] = collector.take()
    for _ in range(2):
        collector.step(one("ac", 1), seen("ac"), one("ac", 2.0), {}, outputs=outputs)
    assert not collector.needs_reset
    collector.step(
        one("ac", 1), seen("ac"), one("ac", 2.0), {"a": True}, {"c": True}, outputs=outputs
    )
    assert collector.needs_reset
    collector.reset(seen("ab"))
    collector.step(one("ab", 1), seen("ab"), one("ab", 1.0), {}, outputs=outputs)
    collector.reset(seen("ab"))
    collector.step(one("ab", 1), seen("ab"), one("ab", 1.0), {}, outputs=outputs)
    second, third, fourth = collector.take()

    for piece in (first, second, third, fourth):
        piece.check()
    assert [len(piece) for piece in (first, second, third, fourth)] == [5, 3, 1, 1]
    assert first.id == second.id
    assert len({second.id, third.id, fourth.id}) == 3
    assert [piece.started for piece in (first, second, third, fourth)] == [0, 5, 0, 0]
    assert [(piece.terminated, piece.truncated) for piece in (first, second, third, fourth)] == [
        (False, False), (True, False), (False, True), (False, False),
    ]  # fmt: skip
    assert {agent: list(steps) for agent, steps in first.seen.items()} == {
        "a": [0, 1, 2, 3, 4, 5], "b": [0, 1, 2], "c": [1, 2, 3, 4, 5]
    }  # fmt: skip
    assert first.agents["b"].terminated
    assert not first.agents["a"].done
    assert list(second.agents) == ["a", "c"]
    assert (second.agents["a"].terminated, second.agents["a"].started) == (True, 5)
    assert (second.agents["c"].truncated, second.agents["c"].started) == (True, 4)
    assert first.agents["a"].id == second.agents["a"].id
    assert third.agents["a"].truncated
    np.testing.assert_array_equal(first.agents["c"].observations[:, 0], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(second.agents["c"].observations[:, 0], [5, 6, 7, 8])
    np.testing.assert_array_equal(first.agents["c"].outputs["action_logp"], [-1] * 4)
    assert second.agents["c"].multi_agent_episode_id == second.id


def in_turns(batch: int) -> list[Any]:
    """Return the pieces of 17 steps of three agents in turns, of whom all have a reward at each.

    "c" comes in late, and "a" ends early, as the last thing that "b" did.
    """
    collector, pieces = MultiAgentCollector(batch), []
    collector.reset({"a": np.float32(0)})
    order = "ab" + "abc" * 4 + "cbc"
    for step, agent in enumerate(order, 1):
        after = order[step : step + 1] or "bc"
        over = {"a": step == 14, **dict.fromkeys("bc", step == len(order))}
        observed = after if step != 14 else after + "a"
        collector.step(
            {agent: step}, {each: np.float32(step) for each in observed},
            {each: step / 8 for each in order[:step] if not (each == "a" and step > 14)}, over,
            outputs={agent: {"action_logp": -step}},
        )  # fmt: skip
        if collector.full or step == len(order):
            pieces += collector.take()
    assert collector.needs_reset
    return pieces


def test_agents_in_turns() -> None:
    [whole] = in_turns(100)
    whole.check()
    assert len(whole) == 17
    assert {agent: list(steps) for agent, steps in whole.seen.items()} == {
        "a": [0, 2, 5, 8, 11, 14], "b": [1, 3, 6, 9, 12, 15, 17], "c": [4, 7, 10, 13, 14, 16, 17]
    }  # fmt: skip
    assert all(one.terminated for one in whole.agents.values())
    assert whole.agents["a"].actions.tolist() == [1, 3, 6, 9, 12]
    for batch in range(1, 18):
        pieces = in_turns(batch)
        if batch > 1:  # with the first step nobody's own has ended
            assert [len(piece) for piece in pieces[:-1]] == [batch] * (len(pieces) - 1)
        assert sum(map(len, pieces)) == 17
        for agent, one in whole.agents.items():
            parts = [piece.agents[agent] for piece in pieces if agent in piece.agents]
            for piece in pieces:
                piece.check()
            for name in ("actions", "rewards"):
                columns = [getattr(part, name) for part in parts]
                np.testing.assert_array_equal(np.concatenate(columns), getattr(one, name))
            seen = [parts[0].observations[:1], *(part.observations[1:] for part in parts)]
            np.testing.assert_array_equal(np.concatenate(seen), one.observations)
            outputs = [part.outputs["action_logp"] for part in parts]
            np.testing.assert_array_equal(-np.concatenate(outputs), one.actions)
            assert [part.started for part in parts] == [
                sum(map(len, parts[:number])) for number in range(len(parts))
            ]
            assert [part.terminated for part in parts] == [False] * (len(parts) - 1) + [True]


def test_who_ends_before_it_acts_again_and_who_ends_before_it_comes() -> None:
    collector = MultiAgentCollector(10)
    collector.reset({"a": 0.0, "b": 0.0})
    collector.step({"a": 1}, {"a": 1.0}, {}, {})
    collector.step({"b": 1}, {"b": 1.0, "c": 0.0}, {}, {"a": True, "c": True}, {"b": True})
    assert collector.needs_reset
    [piece] = collector.take()
    piece.check()
    assert list(piece.agents) == ["a", "b"]
    assert piece.agents["a"].terminated
    assert piece.agents["b"].truncated
    collector.reset({"a": 0.0})
    collector.step({"a": 1}, {}, {}, {})
    collector.reset({"a": 0.0})  # nobody's own step had ended
    assert collector.take() == []


def test_steps_of_several_agents_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        MultiAgentCollector(0)
    collector = MultiAgentCollector(1)
    with pytest.raises(RuntimeError, match="reset"):
        collector.step({}, {}, {}, {})
    collector.reset(one("ab", 0.0))
    with pytest.raises(ValueError, match="no action of 'b', and another observation"):
        collector.step(one("a", 1), one("ab", 0.0), {}, {})
    with pytest.raises(ValueError, match="no last observation of 'a'"):
        collector.step(one("ab", 1), one("b", 0.0), {}, {"a": True})
    with pytest.raises(ValueError, match="'c' acts, and has not observed"):
        collector.step(one("abc", 1), one("ab", 0.0), {}, {})
    assert len(collector) == 0
    collector.step(one("ab", 1), one("ab", 0.0), {}, {})
    with pytest.raises(RuntimeError, match="full"):
        collector.step(one("ab", 1), one("ab", 0.0), {}, {})
    assert len(collector) == 1

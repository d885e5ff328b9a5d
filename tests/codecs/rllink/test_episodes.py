"""Episodes' columns, in Ray's form and in the document's."""

from __future__ import annotations

import copy
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from rlwire.codecs import _json
from rlwire.codecs import msgpack as ours
from rlwire.codecs.rllink import Episode, MultiAgentEpisode
from rlwire.errors import DecodeError, EncodeError
from rlwire.limits import DEFAULT


def episode(steps: int = 3, **others: Any) -> Episode:
    return Episode(
        np.arange(4 * (steps + 1), dtype=np.float32).reshape(steps + 1, 4),
        np.arange(steps),
        np.ones(steps),
        outputs={"action_logp": np.full(steps, -0.5)},
        **others,
    )


def unfinalized(steps: int = 3) -> dict[str, Any]:
    """What Ray's own client sends: an item a step."""
    state = episode(steps, terminated=True).to_state()
    for buffer in (
        state["observations"], state["actions"], state["rewards"],
        state["extra_model_outputs"]["action_logp"],
    ):  # fmt: skip
        buffer["data"] = list(buffer["data"])
        buffer["finalized"] = False
    return state


def assert_same(one: Episode, other: Episode) -> None:
    for name in ("observations", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.outputs.keys() == other.outputs.keys()
    for name in one.outputs:
        np.testing.assert_array_equal(one.outputs[name], other.outputs[name])
    for name in ("terminated", "truncated"):
        assert getattr(one, name) == getattr(other, name)


def test_ray_s_form_through_ray_s_msgpack() -> None:
    sent = episode(5, truncated=True, started=7, duration=1.5, agent_id="a", custom_data={"k": 1})
    frame = ours.encode(sent.to_state(), arrays="msgpack_numpy")
    fields = msgpack.unpackb(frame, object_hook=msgpack_numpy.decode, raw=False)
    assert fields["t"] == 12
    assert fields["t_started"] == 7
    assert fields["observations"]["finalized"] is True
    got = Episode.from_state(fields)
    assert_same(got, sent)
    assert (got.id, got.started, got.agent_id) == (sent.id, 7, "a")
    assert (got.custom_data, got.duration, len(got), got.done) == ({"k": 1}, 1.5, 5, True)


def test_an_item_a_step() -> None:
    got = Episode.from_state(unfinalized())
    assert_same(got, episode(terminated=True))
    assert got.observations.dtype == np.float32
    assert got.infos is None


def test_infos_are_kept_where_there_are_some() -> None:
    infos = [{}, {"lives": 3}, {}, {}]
    assert Episode.from_state(episode(infos=infos).to_state()).infos == infos
    assert len(episode().to_state()["infos"]["data"]) == 4


def test_columns_of_dicts_and_tuples() -> None:
    steps = 3
    places = {"a": np.zeros((steps + 1, 2)), "b": (np.ones(steps + 1), np.zeros(steps + 1, int))}
    sent = Episode(places, (np.zeros(steps), np.ones(steps)), np.zeros(steps))
    frame = ours.encode(sent.to_state(), arrays="msgpack_numpy")
    got = Episode.from_state(ours.decode(frame))
    np.testing.assert_array_equal(got.observations["a"], places["a"])
    assert isinstance(got.observations["b"], tuple)
    assert isinstance(got.actions, tuple)
    np.testing.assert_array_equal(got.actions[1], np.ones(steps))
    state = unfinalized()
    state["observations"]["data"] = [{"x": np.zeros(2), "y": 1.0} for _ in range(steps + 1)]
    got = Episode.from_state(state)
    assert got.observations["x"].shape == (4, 2)
    assert got.observations["y"].shape == (4,)


def test_the_document_s_form() -> None:
    sent = episode(truncated=True)
    text = _json.encode({"e": sent.to_document()}, DEFAULT)
    got = Episode.from_document(_json.arrays_of(_json.decode(text, DEFAULT))["e"])
    assert_same(got, sent)
    assert set(sent.to_document()) == {
        "obs", "actions", "rewards", "action_logp", "is_terminated", "is_truncated",
    }  # fmt: skip


def test_what_looks_back_is_not_of_the_document() -> None:
    sent = episode(5, lookback=2)
    assert len(sent) == 3
    assert len(sent.to_document()["rewards"]) == 3
    assert len(sent.to_document()["obs"]) == 4
    assert Episode.from_state(sent.to_state()).lookback == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("rewards"),
        lambda state: state.pop("is_terminated"),
        lambda state: state.update(is_terminated=1),
        lambda state: state.update(id_=3),
        lambda state: state.update(t_started=-1),
        lambda state: state.update(t_started="0"),
        lambda state: state.update(observations=[]),
        lambda state: state["observations"].pop("data"),
        lambda state: state["observations"].update(data=np.zeros((3, 4))),
        lambda state: state["observations"].update(data=3),
        lambda state: state["observations"].update(data=np.float32(3)),
        lambda state: state["actions"].update(data=[1, 2]),
        lambda state: state["actions"].update(data=[1, "2", 3]),
        lambda state: state["actions"].update(data=[[1], [1, 2], [1]]),
        lambda state: state["actions"].update(data={"a": np.zeros(3), "b": np.zeros(2)}),
        lambda state: state["actions"].update(data={}),
        lambda state: state["actions"].update(data=[np.zeros(2), np.zeros(3), np.zeros(2)]),
        lambda state: state["actions"].update(data=[{"a": 1}, {"b": 1}, {"a": 1}]),
        lambda state: state["rewards"].update(lookback=4),
        lambda state: state["rewards"].update(lookback=-1),
        lambda state: state["infos"].update(data=3),
        lambda state: state["extra_model_outputs"].update(x={"data": np.zeros(9)}),
        lambda state: state["extra_model_outputs"].update(x=3),
        lambda state: state.update(extra_model_outputs=3),
    ],
)
@pytest.mark.parametrize("kind", ["finalized", "unfinalized"])
def test_states_that_are_wrong(kind: str, change: Any) -> None:
    state = copy.deepcopy(episode().to_state() if kind == "finalized" else unfinalized())
    change(state)
    with pytest.raises(DecodeError) as caught:
        Episode.from_state(state, "$.episodes[4]")
    assert caught.value.path.startswith("$.episodes[4]")


def test_deep_columns() -> None:
    data: Any = np.zeros(4)
    for _ in range(50):
        data = {"a": data}
    state = episode().to_state()
    state["observations"]["data"] = data
    with pytest.raises(DecodeError, match="levels"):
        Episode.from_state(state)


def test_columns_that_cannot_be_sent() -> None:
    for wrong in (
        Episode(np.zeros((3, 4)), np.zeros(3), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(2), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(3), np.float64(1)),
        Episode({}, np.zeros(3), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(3), np.zeros(3), infos=[{}]),
    ):
        with pytest.raises(EncodeError):
            wrong.to_state()
        with pytest.raises(EncodeError):
            wrong.to_document()
    with pytest.raises(EncodeError, match="obs"):
        Episode(
            np.zeros((1, 4)), np.zeros(0), np.zeros(0), outputs={"obs": np.zeros(0)}
        ).to_document()


# --- several agents


def together(**others: Any) -> MultiAgentEpisode:
    """Ann plays all 4 steps, Bob the first 2, Cem comes after the first."""
    agents = {
        "ann": episode(4, started=10, agent_id="ann", module_id="p0"),
        "bob": episode(2, started=10, terminated=True, agent_id="bob"),
        "cem": episode(3, agent_id="cem"),
    }
    seen = {"ann": np.arange(5), "bob": np.arange(3), "cem": np.arange(1, 5)}
    return MultiAgentEpisode(agents, seen, 4, id="x", started=10, **others)


def test_state_of_several_agents() -> None:
    state = together(duration=0.5).to_state()
    wire = ours.encode(state, arrays="msgpack_numpy")
    back = MultiAgentEpisode.from_state(ours.decode(wire, arrays="bytes"))
    assert (len(back), back.started, back.id, back.duration, back.done) == (4, 10, "x", 0.5, False)
    assert list(back.agents) == ["ann", "bob", "cem"]
    assert [one.agent_id for one in back.agents.values()] == ["ann", "bob", "cem"]
    assert back.agents["bob"].terminated
    assert {agent: list(steps) for agent, steps in back.seen.items()} == {
        "ann": [0, 1, 2, 3, 4], "bob": [0, 1, 2], "cem": [1, 2, 3, 4]
    }  # fmt: skip
    for agent, one in together().agents.items():
        np.testing.assert_array_equal(back.agents[agent].observations, one.observations)
    # What Ray's own has, as Ray 2.60 gave it for such an episode.
    when = {agent: buffer["data"] for agent, buffer in state["env_t_to_agent_t"].items()}
    assert when == {
        "ann": [10, 11, 12, 13, 14], "bob": [10, 11, 12, "S", "S"], "cem": ["S", 0, 1, 2, 3]
    }  # fmt: skip
    assert (state["env_t_started"], state["env_t"]) == (10, 14)
    assert state["agent_t_started"] == {"ann": 10, "bob": 10, "cem": 0}


def test_an_agent_that_took_no_step_is_left_out() -> None:
    state = together().to_state()
    state["agent_episodes"].append(["dan", episode(0).to_state()])
    assert list(MultiAgentEpisode.from_state(state).agents) == ["ann", "bob", "cem"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("env_t"), "without 'env_t'"),
        (lambda state: state.update(env_t=10**15), "a list of"),
        (lambda state: state.update(env_t=3), "-7 steps|a list of"),
        (lambda state: state.update(agent_episodes=[], env_t=10**15), "steps of nobody"),
        (lambda state: state.update(agent_episodes={}), "not an agent and its episode"),
        (lambda state: state["agent_episodes"].append(["ann", {}]), "or twice"),
        (lambda state: state["agent_episodes"].append([7, {}]), "an agent called"),
        (lambda state: state["env_t_to_agent_t"].pop("bob"), "without 'bob'"),
        (lambda state: state["env_t_to_agent_t"]["bob"]["data"].append("S"), "a list of 5"),
        (lambda state: state["env_t_to_agent_t"]["bob"].update(data=["S"] * 5), "of 0 steps"),
        (lambda state: state["agent_episodes"][1][1].update(t_started=-1), "below 0"),
        (
            lambda state: state["agent_episodes"][0][1]["actions"].update(data=np.zeros(9)),
            "9 actions for 4 rewards",
        ),
    ],
)
def test_states_of_several_agents_that_are_wrong(change: Any, words: str) -> None:
    state = copy.deepcopy(together().to_state())
    change(state)
    with pytest.raises(DecodeError, match=words) as caught:
        MultiAgentEpisode.from_state(state, "$.episodes[3]")
    assert caught.value.path.startswith("$.episodes[3]")


def test_several_agents_that_do_not_fit() -> None:
    for seen in (np.array([0, 2, 2]), np.array([0, 1, 5]), np.array([-1, 0, 1]), np.arange(2)):
        wrong = together()
        wrong.seen["bob"] = seen
        with pytest.raises(EncodeError, match="agent 'bob'"):
            wrong.to_state()
    wrong = together()
    del wrong.seen["bob"]
    with pytest.raises(EncodeError, match="agents"):
        wrong.to_state()

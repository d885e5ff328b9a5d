"""Episodes' columns, in Ray's form and in the document's."""

import copy

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from rlwire.codecs import _json
from rlwire.codecs import msgpack as ours
from rlwire.codecs.rllink import Episode
from rlwire.errors import DecodeError, EncodeError
from rlwire.limits import DEFAULT
from tests.raising import raised


def episode(steps=3, **others):
    return Episode(
        np.arange(4 * (steps + 1), dtype=np.float32).reshape(steps + 1, 4),
        np.arange(steps),
        np.ones(steps),
        outputs={"action_logp": np.full(steps, -0.5)},
        **others,
    )


def unfinalized(steps=3):
    """What Ray's own client sends: an item a step."""
    state = episode(steps, terminated=True).to_state()
    for buffer in (
        state["observations"], state["actions"], state["rewards"],
        state["extra_model_outputs"]["action_logp"],
    ):  # fmt: skip
        buffer["data"] = list(buffer["data"])
        buffer["finalized"] = False
    return state


def assert_same(one, other):
    for name in ("observations", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.outputs.keys() == other.outputs.keys()
    for name in one.outputs:
        np.testing.assert_array_equal(one.outputs[name], other.outputs[name])
    for name in ("terminated", "truncated"):
        assert getattr(one, name) == getattr(other, name)


def test_episode_state_round_trips_through_the_msgpack_used_by_ray():
    sent = episode(5, truncated=True, started=7, duration=1.5, custom_data={"k": 1})
    frame = ours.encode(sent.to_state(), arrays="msgpack_numpy")
    fields = msgpack.unpackb(frame, object_hook=msgpack_numpy.decode, raw=False)
    assert fields["t"] == 12
    assert fields["t_started"] == 7
    assert fields["observations"]["finalized"] is True
    got = Episode.from_state(fields)
    assert_same(got, sent)
    assert (got.id, got.started) == (sent.id, 7)
    assert (got.custom_data, got.duration, len(got), got.done) == ({"k": 1}, 1.5, 5, True)


def test_unfinalized_columns_are_stacked_into_arrays():
    got = Episode.from_state(unfinalized())
    assert_same(got, episode(terminated=True))
    assert got.observations.dtype == np.float32
    assert got.infos is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"lookback": 2, "started": 3},
        {"infos": [{}, {"lives": 3}, {}, {}], "duration": 1.5, "custom_data": {"k": 1}},
        {"observations": {"a": np.arange(4), "b": (np.ones((4, 2)), np.zeros(4))}},
        {"observations": ["up", "down", "up", "up"], "actions": np.arange(3)[::-1]},
    ],
)
def test_brief_state_is_decoded_as_the_full_state(fields):
    sent = episode()
    for name, value in fields.items():
        setattr(sent, name, value)
    both = [
        Episode.from_state(ours.decode(ours.encode(state, arrays="msgpack_numpy"), arrays="bytes"))
        for state in (sent.to_state(), sent.to_state(brief=True))
    ]
    assert [repr(vars(one)) for one in both] == [repr(vars(both[0]))] * 2
    assert (both[0].lookback, both[0].infos) == (sent.lookback, sent.infos)
    assert len(sent.to_state()["infos"]["data"]) == 4


def test_dict_and_tuple_columns_round_trip():
    steps = 3
    places = {"a": np.zeros((steps + 1, 2)), "b": (np.ones(steps + 1), np.zeros(steps + 1, int))}
    sent = Episode(places, (np.zeros(steps), np.ones(steps)), np.zeros(steps))
    got = Episode.from_state(ours.decode(ours.encode(sent.to_state(), arrays="msgpack_numpy")))
    np.testing.assert_array_equal(got.observations["a"], places["a"])
    assert isinstance(got.observations["b"], tuple)
    assert isinstance(got.actions, tuple)
    np.testing.assert_array_equal(got.actions[1], np.ones(steps))
    state = unfinalized()
    state["observations"]["data"] = [{"x": np.zeros(2), "y": 1.0} for _ in range(steps + 1)]
    got = Episode.from_state(state)
    assert got.observations["x"].shape == (4, 2)
    assert got.observations["y"].shape == (4,)


def test_episode_document_form_round_trips():
    sent = episode(truncated=True)
    text = _json.encode({"e": sent.to_document()}, DEFAULT)
    assert_same(Episode.from_document(_json.arrays_of(_json.decode(text, DEFAULT))["e"]), sent)
    assert set(sent.to_document()) == {
        "obs", "actions", "rewards", "action_logp", "is_terminated", "is_truncated",
    }  # fmt: skip


def test_lookback_steps_are_omitted_from_the_document():
    sent = episode(5, lookback=2)
    assert len(sent) == 3
    assert len(sent.to_document()["rewards"]) == 3
    assert len(sent.to_document()["obs"]) == 4
    assert Episode.from_state(sent.to_state()).lookback == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("rewards"), lambda state: state.pop("is_terminated"),
        lambda state: state.update(is_terminated=1), lambda state: state.update(id_=3),
        lambda state: state.update(t_started=-1), lambda state: state.update(t_started="0"),
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
        lambda state: state["infos"].update(data=np.array(3)),
        lambda state: state["infos"].update(data=np.ones((2, 2))),
        lambda state: state.update(custom_data=np.ones(3)),
        lambda state: state["extra_model_outputs"].update(x={"data": np.zeros(9)}),
        lambda state: state["extra_model_outputs"].update(x=3),
        lambda state: state.update(extra_model_outputs=3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["finalized", "unfinalized"])
def test_invalid_states_are_rejected_with_their_path(kind, change):
    state = copy.deepcopy(episode().to_state() if kind == "finalized" else unfinalized())
    change(state)
    caught = raised(DecodeError, Episode.from_state, state, "$.episodes[4]")
    assert caught.path.startswith("$.episodes[4]")


def test_columns_nested_too_deep_are_rejected():
    data = np.zeros(4)
    for _ in range(50):
        data = {"a": data}
    state = episode().to_state()
    state["observations"]["data"] = data
    assert "levels" in str(raised(DecodeError, Episode.from_state, state))


def test_inconsistent_columns_are_not_encoded():
    for wrong in (
        Episode(np.zeros((3, 4)), np.zeros(3), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(2), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(3), np.float64(1)),
        Episode({}, np.zeros(3), np.zeros(3)),
        Episode(np.zeros((4, 4)), np.zeros(3), np.zeros(3), infos=[{}]),
    ):
        raised(EncodeError, wrong.to_state)
        raised(EncodeError, wrong.to_document)
    named = Episode(np.zeros((1, 4)), np.zeros(0), np.zeros(0), outputs={"obs": np.zeros(0)})
    assert "obs" in str(raised(EncodeError, named.to_document))

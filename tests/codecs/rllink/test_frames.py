"""Messages with plain episodes, which are encoded and decoded without a map, as with one."""

import dataclasses

import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs import rllink as r
from rlwire.codecs.rllink import Episode
from rlwire.codecs.rllink.frames import FrameEncoder, plain_episode
from rlwire.errors import EncodeError, RlwireError
from rlwire.limits import Limits
from tests.raising import raised


def episode(**others):
    plain = {
        "observations": np.arange(12, dtype=np.float32).reshape(3, 4),
        "actions": np.arange(2),
        "rewards": np.ones(2),
    }
    return Episode(**{**plain, **others})


PLAIN = {
    "small": episode(),
    "ended": episode(terminated=True, truncated=True, started=70_000, duration=0.25),
    "outputs": episode(outputs={"logp": np.zeros(2, np.float32), "é": np.zeros((2, 3))}),
    "frames": episode(observations=np.zeros((3, 84, 84), np.uint8)),
    "strided": episode(observations=np.zeros((4, 3, 2)).transpose(1, 2, 0)),
    "foreign order": episode(actions=np.arange(2, dtype=">i4"), rewards=np.ones((2, 1), ">f2")),
    "NumPy's flags": episode(terminated=np.True_),
    "an integer's duration": episode(duration=2),
    "no steps": episode(observations=np.zeros((1, 2)), actions=np.zeros(0), rewards=np.zeros(0)),
}
OTHERS = {
    "nested": episode(observations={"a": np.zeros(3), "b": (np.zeros(3), np.zeros((3, 2)))}),
    "lists": episode(rewards=[1.0, 2.0]),
    "texts": episode(actions=["up", "down"]),
    "looks back": episode(lookback=1),
    "infos": episode(infos=[{}, {"a": 1}, {}]),
    "custom": episode(custom_data={"k": [1, None]}),
    "outputs of other kinds": episode(outputs={"a": {"b": np.zeros(2)}}),
}
INVALID = {
    "rows": episode(actions=np.zeros(3)),
    "no rows": episode(rewards=np.float32(1.0)),
    "a scalar": episode(rewards=np.array(1.0)),
    "an output's rows": episode(outputs={"logp": np.zeros(1)}),
    "negative": episode(started=-1),
    "objects": episode(actions=np.array([None, None])),
    "long name": episode(outputs={"\ud800": np.zeros(2)}),
}


def by_map(message, limits=None):
    """Return the frame by way of a map, or its error."""
    try:
        states = [each.to_state(brief=True) for each in message.episodes]
        steps = message.timesteps
        steps = sum(map(len, message.episodes)) if steps is None else steps
        fields = {"type": r.messages.NAMES[type(message)], "episodes": states, "timesteps": steps}
        if message.weights_seq_no is not None:
            fields["weights_seq_no"] = message.weights_seq_no
        return b"".join(FrameEncoder(limits=limits).encode_parts(fields))
    except RlwireError as error:
        return type(error), str(error)


def encoded(message, limits=None):
    try:
        return b"".join(r.Codec(limits=limits).encode_parts(message, brief=True))
    except RlwireError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", [r.Episodes, r.EpisodesAndGetState])
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS, *INVALID])
def test_frame_of_episodes_equals_that_of_their_map(kind, name):
    one = {**PLAIN, **OTHERS, **INVALID}[name]
    for message in (
        kind([one]), kind([one, PLAIN["small"], one], None, 3), kind([], 7), kind([one], 10, 2**40)
    ):  # fmt: skip
        assert encoded(message) == by_map(message)
        name_on_wire = r.messages.NAMES[kind]
        parts = FrameEncoder().episodes_parts(name_on_wire, message, Episode)
        assert (parts is not None) is (name in PLAIN or not message.episodes)


@pytest.mark.parametrize(
    "limits",
    [
        *({"message": size} for size in range(330, 400)),
        *({"items": count} for count in range(1, 24)),
        *({"depth": levels} for levels in range(1, 12)),
        *({"string": size} for size in (1, 12, 20, 30, 40)),
    ],
    ids=str,
)
def test_limits_apply_to_episodes_as_to_their_map(limits):
    limits = Limits(**limits)
    for one in (PLAIN["small"], PLAIN["outputs"]):
        message = r.Episodes([one])
        assert encoded(message, limits) == by_map(message, limits)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "infos", "outputs"])
def test_column_in_itself_is_nested_too_deeply(name):
    named = {}
    named["a"] = named
    for column in (named, {"a": (named,)}):
        kind, text = encoded(r.Episodes([episode(**{name: column})]))
        assert kind is EncodeError
        assert "nested more than" in text


@pytest.mark.parametrize("start", [-1, -(1 << 40), 9])
def test_size_of_a_frame_outside_its_buffer_is_an_error(start):
    assert r.frame_size(b"x00000005", 1, 9) == 13
    raised(ValueError, r.frame_size, b"x00000005", start, 8)


def fields_of(got):
    return {each.name: getattr(got, each.name) for each in dataclasses.fields(Episode)}


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_plain_episode_equals_the_one_from_its_map(name):
    sent = {**PLAIN, **OTHERS}[name]
    frame = msgpack.encode(sent.to_state(brief=True))
    got = plain_episode(msgpack.decode(frame), Episode, 5)
    assert (got is None) is (name in {"nested", "lists", "texts", "looks back", "infos"}
                             or name in {"outputs of other kinds", "an integer's duration"}
                             or name == "NumPy's flags")  # fmt: skip
    if got is None:
        return
    expected = Episode.from_state(msgpack.decode(frame))
    expected.weights_seq_no = 5
    assert type(got) is Episode
    for field, value in fields_of(expected).items():
        np.testing.assert_equal(getattr(got, field), value, field)
        assert type(getattr(got, field)) is type(value)
    assert list(vars(got)) == list(vars(expected))
    got.infos = [{}]  # an instance like any other
    assert dataclasses.replace(got, started=9).started == 9


@pytest.mark.parametrize(
    "change",
    [
        {"rewards": np.array(1.0)}, {"rewards": [1.0, 2.0]}, {"observations": None},
        {"observations": np.zeros(2)}, {"actions": np.zeros(3)}, {"id_": 3}, {"id_": None},
        {"is_terminated": 1}, {"is_truncated": np.True_}, {"t_started": -1}, {"t_started": True},
        {"t_started": 2.0}, {"extra_model_outputs": []}, {"extra_model_outputs": {"a": 1}},
        {"extra_model_outputs": {"a": np.zeros(3)}}, {"custom_data": []}, {"infos": []},
        {"_last_step_time": 1}, {"_start_time": 1.0, "_last_step_time": 3.0},
    ],
    ids=str,
)  # fmt: skip
def test_other_maps_are_no_plain_episodes(change):
    state = {**episode().to_state(brief=True), **change}
    assert plain_episode(state, Episode, None) is None
    assert plain_episode([state], Episode, None) is None

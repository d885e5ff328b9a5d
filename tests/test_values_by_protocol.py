"""Values that a space, a protocol or NumPy would change: equal at the other end, or refused."""

import contextlib
from collections import UserDict, UserList, deque
from enum import Enum

import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.rewarder import EnvObservation, EnvReward, decode, encode
from rlwire.dm_env_rpc.spaces import reset_settings
from rlwire.errors import EncodeError, RlwireError
from rlwire.universe.rewarder.server import RewarderServer
from rlwire.universe.server import as_frame
from tests.raising import raised, raised_with
from tests.test_spaces_by_protocol import PROTOCOLS, Mirror, equal, made
from tests.waiting import eventually

HALF = spaces.Box(-np.inf, np.inf, (2,), np.float16)
FLAGS = spaces.Box(0, 1, (2,), np.bool_)
FLOATS = spaces.Box(-np.inf, np.inf, (2,), np.float64)
INTEGERS = spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64)
SINGLE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
HIDDEN = np.ma.array([1.0, 2.0], mask=[False, True])
HIDDEN_PARTS = np.empty(2, object)
HIDDEN_PARTS[:] = [HIDDEN[:1].reshape(()), HIDDEN[1:].reshape(())]


class Shown:
    """An array of another package."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __repr__(self):
        return f"Shown({self.array})"


CHANGED = [
    (HALF, [2049, 0]), (HALF, [2049, 0.5]), (HALF, np.array([70000, 0])), (FLAGS, [2, 0]),
    (FLAGS, np.uint8([2, 0])), (FLOATS, [2**53 + 1, 0.5]), (FLOATS, (2**64 - 1, -1)),
    (INTEGERS, [2**53 + 1, 1.0]), (FLOATS, HIDDEN), (FLOATS, [HIDDEN[:1], HIDDEN[1:]]),
    (FLOATS, deque(HIDDEN_PARTS)), (FLOATS, HIDDEN_PARTS), (FLOATS, [Shown(HIDDEN[1:])] * 2),
    (FLOATS, deque([2**53 + 1, 0.5])), (HALF, [7e4, 0.0]), (HALF, np.float32([7e4, 0])),
    (SINGLE, [-1e39, 0.0]), (SINGLE, np.array([1e39, np.inf])), (SINGLE, deque([1e39, 0])),
    (SINGLE, [2**24 + 1, 0.5]), (SINGLE, np.longdouble([1e39, 0])),
]  # fmt: skip


def arrives(env, mirror, value):
    """Step until the environment has this action: in real time it may also have others."""
    wanted = np.asarray(value).tolist()

    def arrived():
        env.step(value)
        return wanted in [action.tolist() for action in mirror.actions]

    return eventually(arrived)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("space", "value"), CHANGED, ids=repr)
def test_action_that_would_be_changed_is_refused(protocol, space, value):
    with made(protocol, Mirror(space, space)) as env:
        env.reset()
        raised(EncodeError, env.step, value)


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")  # NumPy's own
def test_action_of_a_vector_that_would_be_changed_is_refused():
    for space, value in CHANGED:
        with rlwire.make_vec(lambda space=space: Mirror(space, space), 2, workers=0) as env:
            env.reset()
            if not isinstance(value, np.ma.MaskedArray):
                raised(EncodeError, env.step, [value, value])
            env.step(np.zeros((2, 2), space.dtype))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("dtype", "values"),
    [(np.float16, [2049, 7e4, np.float32(7e4)]), (np.float32, [2**24 + 1, -1e39, np.array(1e39)])],
)
def test_number_beyond_a_narrow_scalar_space_is_refused(protocol, dtype, values):
    space = spaces.Box(-np.inf, np.inf, (), dtype)
    mirror = Mirror(space, space)
    with made(protocol, mirror) as env:
        env.reset()
        for value in values:
            raised(EncodeError, env.step, value)
        for value in (2048, 0.5, 65504.0, *(() if protocol == "perlert" else (np.inf, -np.inf))):
            assert arrives(env, mirror, value), (protocol, value)


@pytest.mark.parametrize("protocol", sorted({*PROTOCOLS} - {"perlert"}))
def test_infinities_stay_in_any_space_of_floats(protocol):
    for space in (HALF, SINGLE, FLOATS):
        mirror = Mirror(space, space)
        with made(protocol, mirror) as env:
            env.reset()
            for value in ([np.inf, -np.inf], np.array([-np.inf, 1.0]), np.float32([np.inf, 0])):
                assert arrives(env, mirror, value), (protocol, value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "i2", "u2", "i4", "f8"])
def test_dm_env_rpc_says_which_action_is_changed(dtype):
    space = spaces.Box(-4, 4, (2,), dtype) if dtype[0] != "u" else spaces.Box(0, 4, (2,), dtype)
    space = spaces.Dict(b=spaces.Dict(c=space), t=spaces.Text(3))
    with made("dm_env_rpc", Mirror(space, space)) as env:
        env.reset()
        for value in ([2**60 + 1, 0], [2**60 + 1, 0.5], ["1", "2"], HIDDEN):
            error = raised(EncodeError, env.step, {"b": {"c": value}, "t": "a"})
            assert error.path == "$.step.actions.b.c"
        error = raised(EncodeError, env.step, {"b": {"c": np.zeros(2, dtype)}, "t": 5})
        assert error.path == "$.step.actions.t"


@pytest.mark.parametrize(("space", "value"), CHANGED, ids=repr)
def test_observation_that_would_be_changed_is_an_error(space, value):
    mirror = Mirror(space, space)
    with made("dm_env_rpc", mirror) as env:
        env.reset()
        mirror.shown = value
        raised(RlwireError, env.step, space.sample())


@pytest.mark.parametrize("protocol", ["dm_env_rpc", "rewarder"])
def test_texts_keep_nul_at_their_ends(protocol):
    space = spaces.Text(4, charset="a\0")
    mirror = Mirror(space, space)
    options = {"lockstep": True} if protocol == "rewarder" else {}
    with made(protocol, mirror, **options) as env:
        for mirror.shown in ("a\0", "\0", "\0a\0\0"):
            assert env.reset()[0] == mirror.shown
            env.step(mirror.shown)
            assert mirror.actions[-1] == mirror.shown


def test_dm_env_rpc_strings_keep_nul_at_their_ends():
    given = np.array([["a\0", "b"], ["", "\0\0"]], object)
    for value in ("a\0", given, given.tolist()):
        message = codec.CreateWorldRequest({"name": value})
        for _ in range(2):
            message = codec.decode_request(codec.encode_request(message))
            found = np.asarray(message.settings["name"], object)
            assert found.tolist() == np.array(value, object).tolist()


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "vector"])
@pytest.mark.parametrize("seed", [True, np.True_, 1.0, "1"], ids=repr)
def test_seed_that_is_no_integer_is_a_type_error_before_it_is_sent(protocol, seed):
    mirror = Mirror(spaces.Discrete(2), spaces.Discrete(2))
    with contextlib.ExitStack() as stack:
        if protocol == "vector":
            env = stack.enter_context(rlwire.make_vec(lambda: mirror, 2, workers=0))
            raised(TypeError, env.reset, seed=[1, seed])
        else:
            env = stack.enter_context(made(protocol, mirror))
        raised_with(TypeError, "seed must be an integer", env.reset, seed=seed)


def test_entry_beyond_a_dict_space_is_named_with_the_space_and_a_remedy():
    space = spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2)))
    mirror = Mirror(space, space)
    with made("dm_env_rpc", mirror) as env:
        env.reset()
        mirror.shown = {"a": {"b": 1, "c": 2}}
        words = r"observation.a has an entry 'c'.* leave it out, or add it .*\['b'\]"
        raised_with(RlwireError, words, env.step, space.sample())


def test_masked_pictures_and_masks_are_refused():
    picture = np.ma.array(np.zeros((8, 8, 3), np.uint8), mask=True)
    raised_with(EncodeError, "picture has masked", as_frame, picture)
    mirror = Mirror(FLOATS, spaces.Discrete(2))
    with rlwire.make_vec(lambda: mirror, 2, workers=0) as env:
        env.reset()
        mask = np.ma.array([True, False], mask=[True, False])
        raised_with(EncodeError, "reset_mask has masked", env.reset, options={"reset_mask": mask})


@pytest.mark.parametrize(
    "value", [{1: 2}, b"x", {"a": [b"x"]}, {1}, complex(1), np.array([b"x"]), HIDDEN, [HIDDEN]],
    ids=repr,
)  # fmt: skip
def test_value_that_json_lacks_is_refused_with_its_place(value):
    for message in (EnvObservation(value), EnvReward(0.0, False, {"x": value})):
        error = raised(EncodeError, encode, message)
        assert error.path.startswith("$.body.")
        assert value is not HIDDEN or ".filled()" in str(error)
    raised(EncodeError, RewarderServer("x", "127.0.0.1:0").observation, value)


@pytest.mark.parametrize(
    "value",
    [np.datetime64("NaT"), np.datetime64(1, "s"), np.empty(0, "M8[s]"), np.empty((0, 2), "g"),
     np.empty(0, "V3"), np.ma.array([np.datetime64(1, "s")])],
    ids=repr,
)  # fmt: skip
def test_value_that_json_lacks_beside_infinity_is_refused(value):
    for message in (EnvObservation([np.inf, value]), EnvReward(0.0, False, {"x": [value, np.nan]})):
        assert raised(EncodeError, encode, message).path.startswith("$.body.")
    raised(EncodeError, encode, EnvObservation(value))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_mapping_is_no_array_of_its_keys(protocol):
    with made(protocol, Mirror(FLOATS, FLOATS)) as env:
        env.reset()
        for value in (UserDict({1: 2, 3: 4}), [UserDict({1: 2}), UserDict({3: 4})], {0: 1, 1: 2}):
            raised(EncodeError, env.step, value)


def test_numbers_beside_texts_are_no_texts():
    for value in (deque(["a", 1]), ["a", 1], ("a", True)):
        message = codec.CreateWorldRequest({"name": value})
        raised(EncodeError, codec.encode_request, message)
    for value in (deque(["a\0", "b"]), UserList(["a\0", "b"])):
        encoded = codec.encode_request(codec.CreateWorldRequest({"name": value}))
        assert codec.decode_request(encoded).settings["name"].tolist() == [*value]


class Level(str, Enum):
    EASY = "easy"


def test_options_may_have_enumerations_as_keys():
    options = {"level": {Level.EASY: {"depth": 1}}, Level.EASY: 2}
    sent = reset_settings(None, options, True)
    assert codec.unflatten(sent) == {"options": {"level": {"easy": {"depth": 1}}, "easy": 2}}


def test_integers_of_a_list_in_json_stay_equal():
    for value in ([2**53 + 1, 0.5], [0.5, -(2**53) - 1], [2**64 + 1, 0], [[2**53, 0.5]], [2**64]):
        found = decode(encode(EnvObservation(value))).observation
        assert equal(found, value) or found.tolist() == value
    for value in ([np.nan, 1], [[1, 2], [np.nan, 0]]):
        found = decode(encode(EnvObservation(value))).observation
        np.testing.assert_array_equal(found, np.array(value), strict=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_time_is_no_integer(protocol):
    space = spaces.Discrete(5)
    with made(protocol, Mirror(space, space)) as env:
        env.reset()
        raised(EncodeError, env.step, np.timedelta64(1, "s"))

"""`rlwire.make` against servers of protobuf and grpcio, with any specs and any replies."""

import functools
import random
import traceback
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb2
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_utils
from gymnasium import spaces

import rlwire
from rlwire.errors import EncodeError, LimitExceeded, RemoteProtocolError, RlwireError
from tests.dm_env_rpc.worlds import grpcio_server
from tests.raising import raised, raised_with

Tensor = Any
NAN, INF = float("nan"), float("inf")


class Foreign(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """One agent's specs, and `reply(uid)`, the tensor of an observation, None to leave it out."""

    def __init__(self):
        self.specs = pb2.ActionObservationSpecs()
        self.asked = []
        self.replies_with(np.float32(0))

    def replies_with(self, value):
        tensor = value if isinstance(value, pb2.Tensor) else tensor_utils.pack_tensor(value)
        self.reply = lambda uid: tensor

    def Process(self, requests, context):
        for request in requests:
            self.asked.append(request)
            kind = request.WhichOneof("payload")
            response = pb2.EnvironmentResponse()
            answer = getattr(response, kind)
            answer.SetInParent()
            if kind in ("join_world", "reset"):
                answer.specs.CopyFrom(self.specs)
            elif kind == "step":
                answer.state = pb2.RUNNING
                for uid in request.step.requested_observations:
                    tensor = self.reply(uid)
                    if tensor is not None:
                        answer.observations[uid].CopyFrom(tensor)
            yield response

    def spec(self, name, dtype, shape=(), **bounds):
        for specs in (self.specs.observations, self.specs.actions):
            spec = specs[len(specs) + 1]
            spec.name, spec.dtype = name, dtype
            spec.shape.extend(shape)
            for which, (field, values) in bounds.items():
                getattr(getattr(spec, which), field).array.extend(values)


@pytest.fixture
def foreign():
    servicer = Foreign()
    add = functools.partial(dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server, servicer)
    with grpcio_server(add) as address:
        servicer.url = f"dm-env-rpc://{address}"
        yield servicer


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("dtype", "shape", "bounds", "space"),
    [
        (pb2.INT64, (), {"min": ("int64s", [LEAST]), "max": ("int64s", [MOST])},
         spaces.Box(LEAST, MOST, (), np.int64)),
        (pb2.INT64, (2,), {"min": ("int64s", [LEAST]), "max": ("int64s", [MOST])},
         spaces.Box(LEAST, MOST, (2,), np.int64)),
        (pb2.UINT64, (), {"min": ("uint64s", [0]), "max": ("uint64s", [2**64 - 1])},
         spaces.Box(0, 2**64 - 1, (), np.uint64)),
        (pb2.FLOAT, (2,), {"min": ("floats", [NAN]), "max": ("floats", [NAN, 1])},
         spaces.Box(np.float32([-INF, -INF]), np.float32([INF, 1]))),
        (pb2.DOUBLE, (), {"min": ("doubles", [NAN])}, spaces.Box(-INF, INF, (), np.float64)),
    ],
)  # fmt: skip
def test_client_converts_valid_bounds_to_a_space(foreign, dtype, shape, bounds, space):
    foreign.spec("a", dtype, shape, **bounds)
    value = np.zeros(shape, space.dtype)
    foreign.replies_with(value)
    with rlwire.make(foreign.url) as env:
        assert env.action_space == spaces.Dict({"a": space})
        np.testing.assert_array_equal(env.reset()[0]["a"], value)
        assert env.step({"a": value})[0].keys() == {"a"}


@pytest.mark.parametrize(
    ("spec", "error", "facts"),
    [
        (("a", pb2.FLOAT, [1] * 40), LimitExceeded, ["dims", "33", "[1].shape"]),
        (("a", pb2.FLOAT, (-1, -1)), RemoteProtocolError, ["'a'", "(-1, -1)"]),
        (("a", pb2.PROTO), EncodeError, ["'a'", "observation_space="]),
        (("reward", pb2.PROTO), EncodeError, ["'reward'", "rlwire.connect"]),
        (("a", 77), EncodeError, ["77"]),
    ],
)
def test_client_rejects_invalid_specs_with_an_rlwire_error(foreign, spec, error, facts):
    foreign.spec(*spec)
    caught = raised(error, rlwire.make, foreign.url, timeout=600)  # at once, long before
    assert all(fact in str(caught) for fact in facts), caught


def test_reply_without_a_requested_observation_is_a_protocol_error(foreign):
    foreign.spec("a", pb2.FLOAT)
    foreign.reply = lambda uid: None
    with rlwire.make(foreign.url) as env:
        assert "'a'" in str(raised(RemoteProtocolError, env.reset))
        foreign.replies_with(np.float32(1))
        env.reset()
        foreign.reply = lambda uid: None
        assert "'a'" in str(raised(RemoteProtocolError, env.step, {"a": np.zeros((), np.float32)}))


def test_client_rejects_options_that_no_tensor_can_hold_by_name(foreign):
    foreign.spec("a", pb2.FLOAT)
    with rlwire.make(foreign.url) as env:
        for value in (["a", 1], [1, "a"], None, 2**64, {"b": ["a", 1]}):
            assert "options.level" in str(raised(EncodeError, env.reset, options={"level": value}))
        assert "seed" in str(raised(EncodeError, env.reset, seed=2**128 - 1))
        env.reset(seed=2**63)
        env.reset(seed=3, options={"level": [1, 2], "name": "x"})
        assert foreign.asked[-2].reset.settings["options.level"].int64s.array == [1, 2]


NAMES = [
    *("observation", "reward", "discount", "a", "a.b", "b", "0", "1", "observation.0", "", ".."),
    *("reward.x", "discount.y", "rlwire.info {}", "action"),
    'rlwire.info {"observation":{"discrete":2},"action":{"discrete":2}}',
]
FIELDS = ["floats", "doubles", "int8s", "int32s", "int64s", "uint8s", "uint32s", "uint64s"]
FLOATS = [0, 1, -1, NAN, INF, -INF, 3e38]
POOLS = {
    "floats": FLOATS, "doubles": [*FLOATS, 1e308], "int32s": [0, 1, -(2**31), 2**31 - 1],
    "int64s": [0, 1, LEAST, MOST], "uint32s": [0, 1, 2**32 - 1],
    "uint64s": [0, 1, 2**63, 2**64 - 1],
}  # fmt: skip
SHAPES = [(), (), (), (1,), (2,), (0,), (-1,), (2, 3), (3, -1), (2, 0), (1,) * 33, (10**5,) * 2]


def any_spec(choose, spec):
    spec.name, spec.dtype = choose.choice(NAMES), choose.choice([*range(12), 77])
    spec.shape.extend(choose.choice(SHAPES))
    for bound in (spec.min, spec.max):
        if choose.random() < 0.5:
            continue
        own = 1 <= spec.dtype <= 8 and choose.random() < 0.85
        field = FIELDS[spec.dtype - 1] if own else choose.choice(FIELDS)
        count = choose.choice([0, 1, 1, 1, 2])
        if field in POOLS:
            getattr(bound, field).array.extend(choose.choices(POOLS[field], k=count))
        else:
            getattr(bound, field).array = bytes(choose.choices([0, 1, 127, 128, 255], k=count))


def any_tensor(choose, spec):
    shape = [choose.choice([0, 1, 3]) if size < 0 else size for size in spec.shape]
    dtype = spec.dtype if choose.random() < 0.8 else choose.randint(1, 10)
    if np.prod(shape or [1]) > 1e4 or choose.random() < 0.1 or not 1 <= dtype <= 11:
        return None
    if dtype == pb2.PROTO:
        tensor = pb2.Tensor(shape=shape)
        tensor.protos.array.add()
        return tensor
    if dtype == pb2.STRING:
        return tensor_utils.pack_tensor(np.full(shape, choose.choice(["", "abc"])))
    kind = np.dtype(tensor_utils.data_type_to_np_type(dtype))
    value = choose.choice([0, 1, 2, *([NAN, 1e30] if kind.kind == "f" else [])])
    tensor = tensor_utils.pack_tensor(np.full(shape, value, kind))
    if choose.random() < 0.05:
        tensor.shape[:] = [2**20, 2**20]
    return tensor


@pytest.mark.parametrize("start", range(0, 300, 75))
def test_random_specs_and_replies_raise_only_rlwire_errors(foreign, start):
    played = 0
    for seed in range(start, start + 75):
        choose = random.Random(seed)
        foreign.specs = specs = pb2.ActionObservationSpecs()
        for group, most in ((specs.observations, 3), (specs.actions, 2)):
            for uid in range(1, choose.randint(0, most) + 1):
                any_spec(choose, group[uid])
        foreign.reply = lambda uid, choose=choose, specs=specs: any_tensor(
            choose, specs.observations[uid]
        )
        try:
            with rlwire.make(foreign.url, timeout=600, copy=seed % 2 == 0) as env:
                env.reset()
                env.step(env.action_space.sample())
                played += 1
        except RlwireError:
            pass
        except (ValueError, OverflowError) as error:  # Gymnasium's sample() of wide bounds
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "sample" in frames, (seed, frames)
    assert played


@pytest.mark.parametrize(
    ("dtype", "shape", "space", "value"),
    [
        (pb2.UINT8, (-1,), spaces.Sequence(spaces.Box(0, 255, (), np.uint8), stack=True),
         np.arange(5, dtype=np.uint8)),
        (pb2.FLOAT, (-1, 3), spaces.Sequence(spaces.Box(-INF, INF, (3,)), stack=True),
         np.ones((4, 3), np.float32)),
        (pb2.STRING, (-1,), None, ("a", "bc", "")),
        (pb2.STRING, (2,), None, ("a", "bc")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.filterwarnings("ignore:.*Casting input x")  # of Gymnasium's Box, for scalars
def test_variable_dimension_becomes_a_sequence_space(foreign, dtype, shape, space, value, copy):
    foreign.spec("a", dtype, shape)
    foreign.replies_with(np.array(value))
    with rlwire.make(foreign.url, copy=copy) as env:
        if space is not None:
            assert env.observation_space["a"] == space
        seen, _ = env.reset()
        assert env.observation_space.contains(seen)
        assert type(seen["a"]) is type(value)
        np.testing.assert_array_equal(seen["a"], value)
        np.testing.assert_array_equal(env.step({"a": value})[0]["a"], value)
        assert tuple(foreign.asked[-1].step.actions[1].shape) == np.shape(value)
        if dtype != pb2.STRING:
            foreign.replies_with(np.array(value)[:0])
            assert len(env.step({"a": value})[0]["a"]) == 0


def test_broadcast_of_huge_shape_in_a_sequence_allocates_no_array(foreign):
    foreign.spec("a", pb2.FLOAT, (-1, 3))
    tensor = tensor_utils.pack_tensor(np.float32(1))
    tensor.shape[:] = [2**31 - 1, 3]
    foreign.replies_with(tensor)
    with rlwire.make(foreign.url, copy=False) as env:
        assert env.reset()[0]["a"].strides == (0, 0)
    with rlwire.make(foreign.url) as env, pytest.raises(LimitExceeded):
        env.reset()


def test_observation_space_option_replaces_a_variable_dimension(foreign):
    foreign.spec("a", pb2.FLOAT, (-1,))
    foreign.replies_with(np.ones(3, np.float32))
    space = spaces.Dict({"a": spaces.Box(-1, 1, (3,))})
    with rlwire.make(foreign.url, observation_space=space) as env:
        assert env.reset()[0]["a"].shape == (3,)
        foreign.replies_with(np.ones(4, np.float32))
        raised_with(RemoteProtocolError, r"\(4,\).*\(3,\)", env.step, {"a": np.ones(2, np.float32)})


@pytest.mark.parametrize("value", [[0.0, 2.0], [NAN, 0.0], [-1.5, 0.0]])
def test_action_out_of_range_is_not_sent(foreign, value):
    foreign.spec("a", pb2.FLOAT, (2,), min=("floats", [-1]), max=("floats", [1]))
    foreign.replies_with(np.zeros(2, np.float32))
    action = {"a": np.array(value, np.float32)}
    with rlwire.make(foreign.url) as env:
        env.reset()
        before = len(foreign.asked)
        assert "'a'" in str(raised(EncodeError, env.step, action))
        assert len(foreign.asked) == before
        env.step({"a": np.ones(2, np.float32)})
    with rlwire.connect(foreign.url) as client:
        client.join_world()
        client.step(action)  # begins a sequence, and its actions are ignored
        raised(EncodeError, client.step, action)
    with rlwire.make(foreign.url, check_bounds=False) as env:
        env.reset()
        env.step(action)
        assert len(foreign.asked[-1].step.actions) == 1


def test_observation_out_of_range_is_logged_once(foreign, caplog):
    for name in ("a", "b"):
        foreign.spec(name, pb2.FLOAT, (2,), max=("floats", [1]))
    foreign.replies_with(np.float32([0, 1]))
    zeros = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    with rlwire.make(foreign.url) as env:
        env.reset()
        assert "out of bounds" not in caplog.text
        foreign.replies_with(np.float32([0, 2]))
        for _ in range(3):
            assert env.step(zeros)[0]["a"][1] == 2
        env.reset()
    logged = [text for text in caplog.messages if "out of bounds" in text]
    assert len(logged) == 2
    assert all(any(f"'{name}'" in text for text in logged) for name in zeros)

"""`SpecManager`; the cases of the reference's tests, restated, and checked against it."""

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, spec_manager

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised, raised_with

SPECS = {
    54: d.make_spec("fuzz", (2,), np.float32),
    55: d.make_spec("foo", (3,), np.int32),
    2**64 - 1: d.make_spec("text", (), str),
    0: d.make_spec("rows", (1, -1), np.int32),
}
MANAGER = d.SpecManager(SPECS)


@pytest.fixture(scope="module")
def reference(protobuf):
    return spec_manager.SpecManager({uid: protobuf.spec_to_pb(spec) for uid, spec in SPECS.items()})


def pack(manager, values):
    return d.encode_step_request(manager, values)


def unpack(manager, wire, check_bounds=False):
    return d.decode_step_request(manager, wire, check_bounds=check_bounds)[0]


def test_specs_are_found_by_uid_and_by_name(reference):
    assert MANAGER.specs_by_uid == SPECS
    assert MANAGER.specs_by_name == {spec.name: spec for spec in SPECS.values()}
    assert MANAGER.names() == {"fuzz", "foo", "text", "rows"} == reference.names()
    assert len(MANAGER) == 4
    for uid, spec in SPECS.items():
        assert MANAGER.name_to_uid(spec.name) == uid == reference.name_to_uid(spec.name)
    for manager in (MANAGER, reference):
        assert "bar" in str(raised(KeyError, manager.name_to_uid, "bar"))


def test_spec_manager_is_immutable():
    with pytest.raises(TypeError):
        MANAGER.specs_by_uid[1] = SPECS[54]
    with pytest.raises(AttributeError):
        MANAGER.specs_by_uid = {}
    assert "SpecManager" in str(raised(TypeError, MANAGER.__init__, {}))
    mine = dict(SPECS)
    manager = d.SpecManager(mine)
    mine.clear()
    assert len(manager.specs_by_uid) == 4


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ({1: SPECS[54], 2: SPECS[54]}, "duplicate names: 'fuzz'"),
        (
            {1: d.TensorSpec("bar", (1, -1, -1), d.DataType.INT32)},
            "'bar' has more than one variable dimension",
        ),
        ({-1: SPECS[54]}, "UID.*-1|-1.*UID"),
        ({2**64: SPECS[54]}, "UID"),
        ({1: d.TensorSpec(5)}, "a name must be str"),
    ],
)
def test_spec_manager_rejects_invalid_specs(specs, words):
    raised_with(EncodeError, words, d.SpecManager, specs)


def test_arguments_of_wrong_types_are_rejected():
    raised(TypeError, d.SpecManager, {1: "x"})
    raised(TypeError, d.SpecManager, {}, limits=3)
    raised(TypeError, d.SpecManager, 5)


def test_inferred_shape_is_compared_with_its_spec():
    """The reference compares before it infers, and so refuses what its own server must take."""
    request = dm_env_rpc_pb2.EnvironmentRequest()
    packed = request.step.actions[55]
    packed.shape.append(-1)
    packed.int32s.array.extend([1, 2, 3])
    assert unpack(MANAGER, request.SerializeToString())["foo"].tolist() == [1, 2, 3]
    packed.int32s.array.append(4)
    with pytest.raises(DecodeError, match=r"has shape \(4,\), .*its spec .*\(3,\)"):
        unpack(MANAGER, request.SerializeToString())


def test_spec_without_a_type_is_rejected_when_used():
    for dtype in (0, 12, -1):
        manager = d.SpecManager({1: d.TensorSpec("x", (), dtype)})
        assert "'x'" in str(raised(EncodeError, pack, manager, {"x": 1}))
        raised(DecodeError, unpack, manager, d.encode_request(d.StepRequest({1: 1})))


def test_spec_manager_enforces_its_limits():
    manager = d.SpecManager(SPECS, limits=Limits(string=3))
    assert pack(manager, {"text": "abc"})
    caught = raised(LimitExceeded, unpack, manager, pack(MANAGER, {"text": "abcd"}))
    assert caught.limit == "string"
    assert caught.path.startswith("$.step.actions[18446744073709551615]")
    assert raised(LimitExceeded, d.SpecManager, SPECS, limits=Limits(dims=1)).limit == "dims"


KINDS = ["f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8"]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", [None, 1, 5, 1000])
def test_bounds_of_each_dtype_are_checked_at_their_index(dtype, size):
    shape = () if size is None else (size,)
    low, high = np.full(shape, 3), np.full(shape, 9)
    for bounds in ((3, 9), (3, high), (low, 9), (low, high), (3, None), (None, high)):
        manager = d.SpecManager({1: d.make_spec("x", shape, dtype, *bounds)})
        for value, inside in ((3, 1), (9, 1), (2, bounds[0] is None), (10, bounds[1] is None)):
            for place in {0, (size or 1) - 1}:
                array = np.full(shape, 5, dtype)
                array[place if size else ()] = value
                wire = pack(manager, {"x": array})
                assert np.array_equal(unpack(manager, wire)["x"], array)
                if inside:
                    assert np.array_equal(unpack(manager, wire, True)["x"], array)
                    continue
                caught = raised(DecodeError, unpack, manager, wire, True)
                assert caught.path == "$.step.actions[1]"
                if size:
                    assert f"at index [{place}]" in str(caught)


def test_values_without_bounds_are_not_checked():
    manager = d.SpecManager(
        {1: d.make_spec("x", (), np.float32), 2: d.make_spec("y", (), str), 3: SPECS[0]}
    )
    values = {"x": np.float32("inf"), "y": "text", "rows": [[-(2**31)]]}
    assert unpack(manager, pack(manager, values), True)["x"] == np.inf


@pytest.mark.each("dtype", [np.dtype(kind) for kind in "?bBiIqQfd"])
def test_numbers_are_cast_only_without_loss(dtype):
    manager = d.SpecManager({1: d.make_spec("x", (), dtype), 2: d.make_spec("y", (2,), dtype)})
    for value in (1, np.uint64(1), np.array(1, ">i2"), True):
        found = unpack(manager, pack(manager, {"x": value, "y": [value, value]}))
        assert (found["x"], found["y"].tolist()) == (1, [1, 1])
    for values in ({"x": 1.5}, {"y": [np.float32(1), 1]}):
        if dtype.kind == "f":
            pack(manager, values)
        else:
            raised(EncodeError, pack, manager, values)


@pytest.mark.parametrize("dtype", [np.dtype(kind) for kind in "bBiIqQfd"], ids=str)
def test_python_ints_near_dtype_limits_are_cast_exactly_or_rejected(dtype):
    manager = d.SpecManager({1: d.make_spec("x", (), dtype)})
    float_bits = {"f": 24, "d": 53}.get(dtype.char)
    for bits in range(65):
        for number in (sign * 2**bits + near for sign in (1, -1) for near in (-1, 0, 1)):
            if float_bits:
                exact = -(2**63) <= number < 2**64 and int(dtype.type(number)) == number
            else:
                exact = np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
            if exact:
                assert int(unpack(manager, pack(manager, {"x": number}))["x"]) == number
            else:
                raised(EncodeError, pack, manager, {"x": number})


def test_numbers_are_not_cast_to_text():
    manager = d.SpecManager({1: d.make_spec("x", (-1,), str)})
    assert unpack(manager, pack(manager, {"x": []}))["x"].shape == (0,)
    assert pack(manager, {"x": [b"a"]}) == pack(manager, {"x": ["a"]})
    for value in ([1], [1.5], [True]):
        raised(EncodeError, pack, manager, {"x": value})


def test_bounds_of_another_dtype_are_rejected_when_checked():
    manager = d.SpecManager({1: d.TensorSpec("x", (), d.DataType.INT32, np.uint8(0))})
    wire = pack(manager, {"x": 1})
    assert unpack(manager, wire) == {"x": 1}
    raised_with(DecodeError, r"its min .*uint8", unpack, manager, wire, True)


def test_request_encodes_each_name_once():
    for names, uids in (([], []), (["foo"], [55]), (["text", "rows", "text"], [2**64 - 1, 0])):
        parsed = dm_env_rpc_pb2.StepRequest.FromString(MANAGER.request(names))
        assert parsed == dm_env_rpc_pb2.StepRequest(requested_observations=uids)
    parsed = dm_env_rpc_pb2.StepRequest.FromString(MANAGER.request_uids([1, 55, 55]))
    assert list(parsed.requested_observations) == [1, 55, 55]
    assert "'bar'" in str(raised(EncodeError, MANAGER.request, ["foo", "bar"]))
    for uid in (-1, 2**64):
        assert "UID" in str(raised(EncodeError, MANAGER.request_uids, [uid]))


def test_names_of_returns_each_name_once():
    assert MANAGER.names_of([]) == ()
    assert MANAGER.names_of([55, 0, 55, 2**64 - 1]) == ("foo", "rows", "text")
    raised_with(DecodeError, r"UID 7.* 0 \(rows\)", MANAGER.names_of, [55, 7])

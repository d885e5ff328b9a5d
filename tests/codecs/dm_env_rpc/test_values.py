"""The plain values of dm_env_rpc: that specs compare by every bit of their bounds."""

import pickle

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2

from rlwire.codecs import dm_env_rpc as d

SPEC = d.TensorSpec("x", (2,), d.DataType.FLOAT, np.float32(0), np.array([1, 2], np.float32))


def test_enum_values_equal_those_of_protobuf():
    assert {each.name: int(each) for each in d.DataType} == dict(dm_env_rpc_pb2.DataType.items())
    assert {member.name: int(member) for member in d.EnvironmentStateType} == dict(
        dm_env_rpc_pb2.EnvironmentStateType.items()
    )


def test_specs_with_the_same_bits_are_equal():
    again = d.TensorSpec("x", (2,), d.DataType.FLOAT, np.float32(0), np.array([1, 2], np.float32))
    assert again == SPEC
    assert hash(again) == hash(SPEC)
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC
    nan = d.TensorSpec("x", (), d.DataType.FLOAT, np.float32("nan"))
    assert nan == d.TensorSpec("x", (), d.DataType.FLOAT, np.float32("nan"))


@pytest.mark.parametrize(
    "other",
    [
        d.TensorSpec("y", (2,), d.DataType.FLOAT, SPEC.min, SPEC.max),
        d.TensorSpec("x", (3,), d.DataType.FLOAT, SPEC.min, SPEC.max),
        d.TensorSpec("x", (2,), d.DataType.DOUBLE, SPEC.min, SPEC.max),
        d.TensorSpec("x", (2,), d.DataType.FLOAT, None, SPEC.max),
        d.TensorSpec("x", (2,), d.DataType.FLOAT, np.float64(0), SPEC.max),
        d.TensorSpec("x", (2,), d.DataType.FLOAT, np.float32(-0.0), SPEC.max),
        d.TensorSpec("x", (2,), d.DataType.FLOAT, SPEC.min, np.array([1, 3], np.float32)),
        d.TensorSpec("x", (2,), d.DataType.FLOAT, SPEC.min, np.array([[1, 2]], np.float32)),
        "x",
    ],
)
def test_specs_that_differ_in_one_bit_are_not_equal(other):
    assert other != SPEC

"""The package's own tests pass with rlwire's packing as without, and results are the same."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rlwire
from tests.memory import at_most

PACK, UNPACK = tensor_utils.pack_tensor, tensor_utils.unpack_tensor
SCALARS = hnp.from_dtype


@pytest.fixture(autouse=True)
def _installed():
    rlwire.install("dm_env_rpc")
    assert tensor_utils.pack_tensor is not PACK
    yield
    rlwire.uninstall("dm_env_rpc")
    assert tensor_utils.pack_tensor is PACK
    assert tensor_utils.unpack_tensor is UNPACK


def own_tests(tmp_path, plugin):
    (tmp_path / "swap.py").write_text(plugin)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "swap",
        "-o", "python_files=*_test.py", "-o", "addopts=", "--pyargs", "dm_env_rpc",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=110,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout + done.stderr
    failed = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
    return int(passed[1]), "\n".join(failed)


@pytest.mark.consumers
def test_drop_in_passes_the_packages_own_tests(tmp_path):
    before = own_tests(tmp_path, "")
    # Every one passes without us (1.1.7 with NumPy 2 and protobuf 7), so none is left out here.
    assert before[0] > 300
    assert before[1] == ""
    after = own_tests(
        tmp_path,
        "import rlwire\n"
        "rlwire.install('dm_env_rpc')\n"
        "def pytest_terminal_summary(terminalreporter):\n"
        "    from dm_env_rpc.v1 import tensor_utils\n"
        "    assert tensor_utils.pack_tensor.__module__.startswith('rlwire.')\n",
    )
    assert after == before


ARRAYS = st.sampled_from(
    ["f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8", "?", "<U3", ">f4", ">i8"]
).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        elements=SCALARS(np.dtype(dtype), allow_nan=False)
        if np.dtype(dtype).kind in "fiub"
        else st.text("aé漢\U0001f600", max_size=3),
    )
)


def outcome(call, *arguments, **options):
    """Return a call's result, or the class and text of its error, without addresses."""
    try:
        return call(*arguments, **options)
    except Exception as error:
        return type(error), re.sub("0x[0-9a-f]+", "", str(error))


@given(ARRAYS, st.booleans())
def test_pack_tensor_equals_the_originals_message(array, compress):
    if compress and array.size == 0:
        return  # the package stumbles over an empty array here
    ours = outcome(tensor_utils.pack_tensor, array, try_compress=compress)
    assert ours == outcome(PACK, array, try_compress=compress)


@given(ARRAYS)
def test_unpack_tensor_equals_the_originals_array(array):
    tensor = PACK(array)
    expected, got = UNPACK(tensor), tensor_utils.unpack_tensor(tensor)
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype
    if isinstance(got, np.ndarray):
        # Bytes are viewed, and so read-only; all else may be written to.
        assert got.flags.writeable == expected.flags.writeable


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_unpack_tensor_copies_large_bytes_at_most_once(dtype):
    frame = np.arange(2**20, dtype=np.uint8).view(dtype).reshape(1024, 512, 2)
    tensor = PACK(frame)
    with at_most(1.5 * frame.nbytes):
        got = tensor_utils.unpack_tensor(tensor)
    np.testing.assert_array_equal(got, frame)
    assert not got.flags.writeable


VALUE = struct_pb2.Value(string_value="x")


@pytest.mark.each(
    ("value", "dtype"),
    [
        (3, None), (2.5, None), (True, None), ("text", None), ([1, 2], None), ([], None),
        ([1.5], np.float32), ([300], np.uint8), ([1], dm_env_rpc_pb2.DataType.INT8),
        (np.array(["a", "bb"], dtype=object), np.str_), (np.arange(6)[::-2], None),
        (np.arange(6).reshape(2, 3).T, None), (VALUE, None), ([VALUE], None),
        # The package rejects the others.
        (object(), None), ([[1], [2, 3]], None), (1j, None), (np.float16(1), None), (b"x", None),
        (np.array([1, "x"], dtype=object), np.str_), ("x", np.int32), (None, None),
    ],
)  # fmt: skip
def test_pack_tensor_equals_the_originals_result_or_error(value, dtype):
    assert outcome(tensor_utils.pack_tensor, value, dtype) == outcome(PACK, value, dtype)


@pytest.mark.each(
    "tensor",
    [
        {}, {"shape": [2]}, {"shape": [-1, -1], "floats": {"array": [1, 2]}},
        {"shape": [3], "floats": {"array": [1, 2]}}, {"floats": {"array": [1, 2]}},
    ],
)  # fmt: skip
def test_unpack_tensor_raises_the_originals_error(tensor):
    wrong = dm_env_rpc_pb2.Tensor(**tensor)
    theirs = outcome(UNPACK, wrong)
    assert issubclass(theirs[0], Exception)
    assert outcome(tensor_utils.unpack_tensor, wrong) == theirs

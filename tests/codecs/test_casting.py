"""Numbers of another dtype: what stays what it is, and what does not."""

from array import array
from collections import UserList, deque

import numpy as np
import pytest

from rlwire.codecs.casting import as_array, cast, flag, real
from rlwire.errors import EncodeError
from tests.raising import raised, raised_with

INTEGERS = [np.dtype(kind) for kind in "bBhHiIqQ"]
FLOATS = [np.dtype(kind) for kind in "efd"]
BOOL = np.dtype(bool)


def tried(value, dtype):
    try:
        return cast(value, dtype, "it")
    except EncodeError:
        return None


@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_integers_are_cast_only_without_loss(source):
    """As Python's integers, which have no end, compare."""
    info = np.iinfo(source)
    near = {sign * 2**bits + by for bits in range(65) for sign in (1, -1) for by in (-1, 0, 1)}
    numbers = [number for number in sorted(near) if info.min <= number <= info.max]
    for dtype in (*INTEGERS, *FLOATS, BOOL):
        for number in numbers:
            array = np.array([1, number], source)
            with np.errstate(over="ignore"):
                wanted = array.astype(dtype)
            found = tried(array, dtype)
            if np.isfinite(wanted[1]) and int(wanted[1]) == number:
                assert found is not None, (dtype, number)
                assert (found.dtype, found.tolist()) == (dtype, wanted.tolist())
            else:
                assert found is None, (dtype, number)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, BOOL], ids=str)
def test_booleans_are_cast_to_any_dtype(dtype):
    for value in (True, np.True_, [False, True]):
        found = cast(value, dtype, "it")
        assert found.dtype == dtype
        assert found.tolist() == np.asarray(value).tolist()


def test_floats_are_not_cast_to_integers():
    for dtype in FLOATS:
        assert cast([0.1, np.nan, -np.inf], dtype, "it").dtype == dtype
    for dtype in (*INTEGERS, BOOL):
        for value in (0.9, 1.0, np.float16(1), [1, 2.5], np.nan):
            raised_with(EncodeError, f"^it must .* {dtype}, not .*float", cast, value, dtype, "it")


@pytest.mark.parametrize(
    "value", ["1", b"1", 1j, None, {}, 2**64, -(2**63) - 1, np.datetime64(1, "s")], ids=repr
)
def test_non_numeric_values_are_rejected(value):
    for dtype in (*INTEGERS, *FLOATS, BOOL):
        raised(EncodeError, cast, value, dtype, "it")


def test_ragged_lists_are_rejected():
    raised(EncodeError, cast, [[1], [1, 2]], BOOL, "it")


def test_masked_elements_are_rejected():
    """NumPy would return what is behind the mask."""
    for value in (np.ma.array([1.0, 2.0], mask=[False, True]), np.ma.masked):
        raised_with(EncodeError, "^it has masked elements", cast, value, FLOATS[2], "it")
    assert cast(np.ma.array([1, 2]), FLOATS[2], "it").tolist() == [1.0, 2.0]
    for value in (np.ma.masked, np.ma.array(2.0, mask=True), np.ma.array([2.0], mask=[True])):
        raised_with(EncodeError, "^it must be one number", real, value, "it")
    assert real(np.ma.array([2.0]), "it") == 2.0
    fields = np.ma.array([(1, 2)], mask=[(True, False)], dtype="i4,i4")
    raised_with(EncodeError, "^it is not an array", cast, fields, FLOATS[2], "it")


def test_masked_elements_in_sequences_are_rejected():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    parts = np.empty(2, object)
    parts[:] = [masked[:1], masked[1:]]
    one = np.array(None, object)
    one[()] = np.ma.array(2.0, mask=True)
    for value in (deque([masked]), [deque([masked])], deque([[masked]]), UserList([masked]), parts,
                  [parts], deque(parts), one, [one]):  # fmt: skip
        raised_with(EncodeError, "^it has masked elements", as_array, value, "it")
    raised_with(EncodeError, "^it must be one number", real, one, "it")
    assert cast(deque([masked[:1], [3.0]]), FLOATS[2], "it").tolist() == [[1.0], [3.0]]
    for value in (b"a", bytearray(2), memoryview(np.zeros((2, 2))), array("d", [0.5]), range(3)):
        np.testing.assert_array_equal(as_array(value, "it"), np.asarray(value))


def test_finite_floats_beyond_a_dtype_are_rejected():
    """NumPy would make infinities of them."""
    for dtype, most in ((FLOATS[0], 65504), (FLOATS[1], 3.4028234663852886e38)):
        for value in (most * 1.01, -most * 1.01, np.float64(1e300), np.longdouble(1e300)):
            for form in (value, [value, 0.0], np.array([value, np.inf]), [[np.float64(value)]]):
                error = raised(EncodeError, cast, form, dtype, "it", "$.a")
                assert str(dtype) in str(error)
                assert error.path == "$.a"
        kept = [most, -most, np.inf, -np.inf, np.nan, 0.1, 1e-300]
        for form in (kept, np.array(kept), np.longdouble(kept)):
            np.testing.assert_array_equal(
                cast(form, dtype, "it"), np.array(kept, dtype), strict=True
            )


def test_empty_arrays_cast_to_any_dtype():
    for dtype in (*INTEGERS, *FLOATS, BOOL):
        for value in ([], np.empty((0, 2), np.float32)):
            assert cast(value, dtype, "it").dtype == dtype


def test_array_of_the_requested_dtype_is_not_copied():
    array = np.arange(3)
    assert cast(array, array.dtype, "it") is array


def test_flag_is_the_boolean_that_a_value_stands_for():
    for value in (True, np.True_, 1, 2, 1.0, [True], np.array([[True]]), np.int8(1)):
        assert flag(value, "it") is True
    for value in (False, np.False_, 0, 0.0, None, [False], np.array(False), np.float32(0)):
        assert flag(value, "it") is False


class OnAnotherDevice:
    """Like a tensor on a GPU, of which only `item` gives a number."""

    def __array__(self, *_arguments, **_options):
        raise TypeError("on a GPU")

    def item(self):
        return True


def test_flag_may_be_on_another_device():
    assert flag(OnAnotherDevice(), "it") is True


@pytest.mark.parametrize(
    "value",
    [
        [True, False], np.array([True, False]), [], "False", b"", {}, 0.5, np.nan, object(),
        np.ma.array([True], mask=[True]), [[True], [True, False]],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_value_that_is_no_flag_is_named(value):
    raised_with(EncodeError, "^it must be true or false, not ", flag, value, "it")


def test_items_of_other_objects_are_neither_read_nor_searched():
    class Endless:
        def __getitem__(self, index):
            return 0.0

    shared = [None]
    for _ in range(60):
        shared = [shared, shared]
    held = np.empty(2, object)
    held[:] = shared, held
    for value in (Endless(), held, [None, Endless()]):
        assert as_array(value, "it").dtype == object

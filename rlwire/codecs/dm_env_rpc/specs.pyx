"""Names and UIDs of dm_env_rpc's actions or observations, and what their tensors must look like.

`rlwire.codecs.dm_env_rpc` is the face; whole steps by name are in `steps`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport Py_buffer
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Items
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._glue cimport afford, over_budget
from rlwire.codecs.dm_env_rpc.tensors cimport (Tensor, dtype_of_kind, look, measure, release,
                                               shown_kind, take, write)
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import operator
from collections import Counter
from types import MappingProxyType

import numpy as np

from rlwire.codecs.dm_env_rpc.ranges import bounds, check_bounds
from rlwire.codecs.dm_env_rpc.values import TensorSpec
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

cnp.import_array()

__all__ = ["SpecManager"]

cdef enum:
    SHOWN = 20  # names in an error text

ctypedef fused number:
    float
    double
    int8_t
    int32_t
    int64_t
    uint8_t
    uint32_t
    uint64_t


cdef bint _beyond(const number *values, size_t count, cnp.ndarray bound, bint above) noexcept:
    """Whether a value is above, or below, its bound; NaN is both."""
    cdef const number *bounds = <const number *> cnp.PyArray_DATA(bound)
    cdef number one = bounds[0] if cnp.PyArray_SIZE(bound) else 0
    cdef size_t i
    cdef int found = 0
    if cnp.PyArray_SIZE(bound) == 1:
        if above:
            for i in range(count):
                found |= not values[i] <= one
        else:
            for i in range(count):
                found |= not values[i] >= one
    else:
        for i in range(count):
            found |= not (values[i] <= bounds[i] if above else values[i] >= bounds[i])
    return found


cdef bint _outside(const number *values, size_t count, cnp.ndarray low, cnp.ndarray high) noexcept:
    return (low is not None and _beyond(values, count, low, False)
            or high is not None and _beyond(values, count, high, True))


cdef class _Slot:
    """One spec, as the steps need it."""

    def __init__(self, uid, spec, limits):
        cdef Py_ssize_t i
        shape = tuple(map(operator.index, spec.shape))
        if sum([size < 0 for size in shape]) > 1:
            raise EncodeError(f"{quoted(spec.name)} has more than one variable dimension: {shape}")
        if <Py_ssize_t> len(shape) > limits.dims:
            raise LimitExceeded("dims", limits.dims, len(shape), path=f"$.{spec.name}")
        self.uid = uid
        self.key_size = <uint32_t> key_of_uid(self.key, self.uid)
        self.name = spec.name
        self.spec = spec
        self.kind = spec.dtype if 0 < spec.dtype <= RLW_TENSOR_PROTO else 0
        self.dims = <int> len(shape)
        for i in range(self.dims):
            self.shape[i] = shape[i]
        if spec.min is None and spec.max is None:
            return
        try:
            low, high = bounds(spec)
        except EncodeError as problem:
            self.problem = problem
            return
        if spec.min is not None:
            self.low = np.array(low, order="C")
        if spec.max is not None:
            self.high = np.array(high, order="C")

    cdef bint fits(self, int dims, const int64_t *shape) noexcept:
        cdef int i
        if dims != self.dims:
            return False
        for i in range(dims):
            if self.shape[i] >= 0 and self.shape[i] != shape[i]:
                return False
        return True

    cdef bint is_outside(self, const void *data, size_t count) except -1:
        """Whether an element at `data`, aligned and in the host's order, is out of bounds."""
        if self.problem is not None:
            raise EncodeError(self.problem.reason)
        if self.low is None and self.high is None:
            return False
        if self.kind == RLW_TENSOR_FLOAT:
            return _outside(<const float *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_DOUBLE:
            return _outside(<const double *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_INT8:
            return _outside(<const int8_t *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_INT32:
            return _outside(<const int32_t *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_INT64:
            return _outside(<const int64_t *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_UINT8:
            return _outside(<const uint8_t *> data, count, self.low, self.high)
        if self.kind == RLW_TENSOR_UINT32:
            return _outside(<const uint32_t *> data, count, self.low, self.high)
        return _outside(<const uint64_t *> data, count, self.low, self.high)


cdef str _out_of_bounds(_Slot slot, object value):
    """Which element of `value` is out of bounds, in words."""
    try:
        check_bounds(slot.spec, np.asarray(value).astype(dtype_of_kind(slot.kind), copy=False))
    except EncodeError as problem:
        return problem.reason
    return f"{quoted(slot.name)} is out of bounds"


cdef str _shape_text(int dims, const int64_t *shape):
    return str(tuple([shape[i] for i in range(dims)]))


cdef class SpecManager:
    """The specs of all actions, or of all observations, by name and by UID.

    It does not change, so threads may share it.

    Args:
        specs: UIDs and their specs.
        limits: maxima for all that is packed and unpacked; `rlwire.limits.DEFAULT` when None.

    Attributes:
        specs_by_uid: as given, read-only.
        specs_by_name: the same by name.

    Raises:
        EncodeError: two specs have the same name, a UID is not in 64 unsigned bits, or a spec has
            more than one variable dimension.
    """

    def __cinit__(self, specs, *, limits=None):
        self._uids = NULL

    def __init__(self, specs, *, limits=None):
        cdef Py_ssize_t i
        if self._uids != NULL:
            raise TypeError("a SpecManager does not change")
        self._limits = DEFAULT if limits is None else limits
        if not isinstance(self._limits, Limits):
            raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
        by_uid = dict(specs)
        for uid, spec in by_uid.items():
            if not isinstance(spec, TensorSpec):
                raise TypeError(f"a spec must be a TensorSpec, not {type(spec).__qualname__}")
            if not isinstance(spec.name, str):
                raise EncodeError(f"a name must be str, not {type(spec.name).__qualname__}")
            if not 0 <= operator.index(uid) < 1 << 64:
                raise EncodeError(f"{uid} is no UID: not in 64 unsigned bits")
        self.specs_by_uid = MappingProxyType(by_uid)
        self.specs_by_name = MappingProxyType({spec.name: spec for spec in by_uid.values()})
        if len(self.specs_by_name) != len(by_uid):
            names = Counter([spec.name for spec in by_uid.values()])
            twice = sorted([name for name, count in names.items() if count > 1])
            raise EncodeError(f"the specs have duplicate names: {', '.join(map(repr, twice))}")
        self._name_to_uid = {spec.name: uid for uid, spec in by_uid.items()}
        self._uid_to_name = {uid: spec.name for uid, spec in by_uid.items()}
        self._slots = [_Slot(uid, by_uid[uid], self._limits) for uid in sorted(by_uid)]
        self._by_name = {(<_Slot> slot).name: slot for slot in self._slots}
        self._uids = <uint64_t *> PyMem_Malloc((len(self._slots) + 1) * sizeof(uint64_t))
        if self._uids == NULL:
            raise MemoryError()
        for i in range(len(self._slots)):
            (<_Slot> self._slots[i]).index = i
            self._uids[i] = (<_Slot> self._slots[i]).uid

    def __dealloc__(self):
        PyMem_Free(self._uids)

    def name_to_uid(self, name):
        """Return the UID of a name; KeyError for one that is not there."""
        return self._name_to_uid[name]

    def uid_to_name(self, uid):
        """Return the name of a UID; KeyError for one that is not there."""
        return self._uid_to_name[uid]

    def name_to_spec(self, name):
        """Return the spec of a name; KeyError for one that is not there."""
        return self.specs_by_name[name]

    def uid_to_spec(self, uid):
        """Return the spec of a UID; KeyError for one that is not there."""
        return self.specs_by_uid[uid]

    def names(self):
        """Return all names, in the order of the specs as given."""
        return self.specs_by_name.keys()

    def uids(self):
        """Return all UIDs, in the order of the specs as given."""
        return self.specs_by_uid.keys()

    def __len__(self):
        return len(self._slots)

    def __contains__(self, name):
        return name in self._by_name

    def __repr__(self):
        return f"SpecManager({self.known()})"

    def request(self, names):
        """Return the field that requests these observations, for `encode_step_request`.

        Encode it once and use it for each step.

        Raises:
            EncodeError: there is no observation of that name.
        """
        return self.request_uids([
            self.slot_of_name(name, NULL).uid for name in dict.fromkeys(names)
        ])

    def request_uids(self, uids):
        """As `request`, for UIDs, known or not."""
        cdef uint8_t room[12]
        cdef uint8_t *end
        packed = bytearray()
        for uid in uids:
            uid = operator.index(uid)
            if not 0 <= uid < 1 << 64:
                raise EncodeError(f"{uid} is no UID: not in 64 unsigned bits")
            end = rlw_store_varint(room, uid)
            packed += room[:end - room]
        if not packed:
            return b""
        end = rlw_store_varint(room, len(packed))
        return b"\x12" + room[:end - room] + packed  # field 2, packed

    def names_of(self, uids):
        """Return the names of requested UIDs as a tuple; a UID that comes again adds nothing.

        Raises:
            DecodeError: there is no such UID.
        """
        cdef _Slot slot
        cdef dict names = {}
        for uid in uids:
            slot = self.slot_of_uid(uid)
            if slot is None:
                raise DecodeError(f"there is no UID {uid}; known are: {self.known()}")
            names[slot.name] = None
        return tuple(names)

    def pack(self, tensors, *, check_bounds=False):
        """Return encoded Tensor messages by UID, of values by name.

        A value may be of another dtype than its spec if it stays what it is, as
        `rlwire.codecs.casting.cast` says: an int for a float, not 1.5 for an integer.

        Args:
            tensors: some or all of the names, and anything that `encode_tensor` takes.
            check_bounds: refuse values that are out of the bounds of their specs.

        Raises:
            EncodeError: there is no such name, or a value does not fit its spec.
            LimitExceeded: a value passes one of the limits.
        """
        cdef Draft draft
        cdef Maxima maxima
        cdef Step step
        cdef _Slot slot
        packed = {}
        fill_maxima(&maxima, self._limits)
        step.parent = NULL
        step.index = 0
        for name, value in (PyDict_Items(tensors) if type(tensors) is dict
                            else list(tensors.items())):
            slot = self.slot_of_name(name, NULL)
            step.name = <void *> slot.name
            open_draft(&draft, 0, 0)
            try:
                self.add(&draft, slot, value, &maxima, check_bounds, &step)
                packed[self._name_to_uid[slot.name]] = _tensor_bytes(&draft, &maxima, &step)
            finally:
                close_draft(&draft)
        return packed

    def unpack(self, tensors, *, copy=True, broadcast="full", check_bounds=False):
        """Return values by name, of encoded Tensor messages by UID.

        Args:
            tensors: UIDs and buffers.
            copy: as `decode_tensor`.
            broadcast: as `decode_tensor`.
            check_bounds: refuse values that are out of the bounds of their specs.

        Raises:
            DecodeError: there is no such UID, or a tensor does not fit its spec. Offsets count
                from the beginning of its own buffer.
            LimitExceeded: a tensor passes one of the limits.
        """
        cdef Input input
        cdef Py_buffer view
        cdef size_t size = 0
        cdef Step step
        cdef _Slot slot
        unpacked = {}
        fill_input(&input, copy, broadcast, self._limits)
        step.parent = NULL
        for uid, tensor in tensors.items():
            slot = None
            if 0 <= operator.index(uid) < 1 << 64:
                slot = self.slot_of_uid(uid)
            if slot is None:
                raise DecodeError(f"there is no UID {uid}; known are: {self.known()}")
            step.name = <void *> slot.name
            open_buffer(&input, tensor, &view, &size)
            try:
                unpacked[slot.name] = self.take(slot, &input, input.start, size, check_bounds,
                                                input.start, &step)
            finally:
                close_buffer(&view)
        return unpacked

    cdef _Slot slot_of_name(self, object name, const Step *path):
        cdef PyObject *found = PyDict_GetItemWithError(self._by_name, name)
        if found == NULL:
            raise EncodeError(f"there is no {name!r}; known are: {self.known()}",
                              path=path_of(path) if path != NULL else "")
        return <_Slot> found

    cdef _Slot slot_of_uid(self, uint64_t uid):
        cdef Py_ssize_t low = 0, middle, high = len(self._slots)
        while low < high:
            middle = (low + high) >> 1
            if self._uids[middle] < uid:
                low = middle + 1
            else:
                high = middle
        if low < <Py_ssize_t> len(self._slots) and self._uids[low] == uid:
            return <_Slot> self._slots[low]
        return None

    cdef str known(self):
        cdef _Slot slot
        shown = []
        for slot in self._slots[:SHOWN]:
            shown.append(f"{slot.uid} ({slot.name})")
        if len(self._slots) > SHOWN:
            shown.append(f"{len(self._slots) - SHOWN} more")
        return ", ".join(shown) or "none"

    cdef int add(self, Draft *draft, _Slot slot, object value, Maxima *maxima, bint check,
                 const Step *path) except -1:
        cdef Entry *entry
        cdef const Tensor *tensor
        if slot.kind == 0:
            raise EncodeError(f"the spec of {quoted(slot.name)} has no data type that a tensor can have",
                              path=path_of(path))
        entry = add_tensor(draft, value, slot.kind, maxima, path)
        entry.key = slot.key
        entry.key_size = slot.key_size
        tensor = &entry.tensor
        if tensor.kind != slot.kind:
            raise EncodeError(
                f"{quoted(slot.name)} is of dtype {shown_kind(tensor.kind)}, its spec says "
                f"{shown_kind(slot.kind)}", path=path_of(path),
            )
        if not slot.fits(tensor.dims, tensor.shape):
            raise EncodeError(
                f"{quoted(slot.name)} has shape {_shape_text(tensor.dims, tensor.shape)}, its spec says "
                f"{_shape_text(slot.dims, slot.shape)}", path=path_of(path),
            )
        if check and slot.is_outside(
            <const void *> &tensor.room[0] if tensor.data == NULL else tensor.data, tensor.count
        ):
            raise EncodeError(_out_of_bounds(slot, value), path=path_of(path))
        return 0

    cdef object take(self, _Slot slot, Input *input, const uint8_t *data, size_t size, bint check,
                     const uint8_t *at, const Step *path):
        cdef rlw_tensor tensor
        try:
            look(&tensor, data, size, input.start, &input.tensors, "")
            if <int> tensor.kind != slot.kind:
                raise DecodeError(
                    f"{quoted(slot.name)} is of dtype {shown_kind(tensor.kind)}, its spec says "
                    f"{shown_kind(slot.kind)}", offset=at - input.start,
                )
            if not slot.fits(tensor.dims, tensor.shape):
                raise DecodeError(
                    f"{quoted(slot.name)} has shape {_shape_text(tensor.dims, tensor.shape)}, its spec "
                    f"says {_shape_text(slot.dims, slot.shape)}", offset=at - input.start,
                )
            count_protos(input, &tensor, at, NULL)
            value = take(&tensor, input.start, <object> input.source, input.writable,
                         &input.tensors, "")
            if check and _value_is_outside(slot, value, input, at):
                # To find out which element takes a byte for each.
                raise DecodeError(
                    _out_of_bounds(slot, value)
                    if afford(&input.tensors.budget, <uint64_t> np.size(value))
                    else f"{slot.name!r} is out of bounds", offset=at - input.start,
                )
            return value
        except (DecodeError, LimitExceeded) as problem:
            raise placed(problem, input, path) from None


cdef bint _value_is_outside(_Slot slot, object value, Input *input, const uint8_t *at) except -1:
    cdef uint8_t room[8]
    cdef cnp.ndarray array
    if slot.low is None and slot.high is None and slot.problem is None:
        return False
    try:
        if not isinstance(value, np.ndarray):
            cnp.PyArray_ScalarAsCtype(value, room)
            return slot.is_outside(room, 1)
        array = value
        if not cnp.PyArray_ISCARRAY_RO(array):
            # All elements may be the same memory, and are not in the copy.
            if not afford(&input.tensors.budget, array.nbytes):
                raise over_budget(&input.tensors.budget, array.nbytes, at - input.start, "")
            array = np.require(array, array.dtype.newbyteorder("="), ("C", "A"))
            input.tensors.budget.left += array.nbytes
        return slot.is_outside(cnp.PyArray_DATA(array), cnp.PyArray_SIZE(array))
    except EncodeError as problem:
        raise DecodeError(problem.reason) from None


cdef bytes _tensor_bytes(Draft *draft, const Maxima *maxima, const Step *path):
    cdef const Tensor *tensor = &draft.entries[0].tensor
    if tensor.size > maxima.message:
        raise LimitExceeded("message", maxima.message, tensor.size, path=path_of(path))
    encoded = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> tensor.size)
    write(tensor, <uint8_t *> PyBytes_AS_STRING(encoded))
    return encoded

"""Steps by name: dictionaries of arrays to the bytes of a whole request or response, and back.

A `SpecManager` has the names, UIDs, dtypes, shapes and bounds.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

cimport numpy as cnp

from rlwire.codecs._arrays cimport VIEW_LEAST
from rlwire.codecs._glue cimport afford, open_range, over_budget
from rlwire.codecs._output cimport put_ok
from rlwire.codecs.dm_env_rpc.messages cimport find_member
from rlwire.codecs.dm_env_rpc.tensors cimport (Tensor, dtype_of_kind, field_bytes, fill_options,
                                               look, shown_kind, take)
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import operator
from collections import Counter
from types import MappingProxyType

import numpy as np

from rlwire.codecs.dm_env_rpc.ranges import bounds, check_bounds
from rlwire.codecs.dm_env_rpc.values import EnvironmentStateType, TensorSpec
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import checked

cnp.import_array()

__all__ = [
    "SpecManager", "data_offset", "decode_step_request", "decode_step_response",
    "encode_step_request", "encode_step_response", "encode_step_response_parts",
]

cdef enum:
    SHOWN = 20               # most names in an error text
    STEP = 3                 # the field number of the step in both messages
    STEP_TAG = 0x1A          # the same with the wire type
    ACTIONS_TAG = 0x0A       # field 1
    OBSERVATIONS_TAG = 0x12  # field 2
    STATE_TAG = 0x08         # field 1, a varint
    REQUESTED_TAG = 0x12     # field 2
    NESTED = 5               # step, entry, tensor, payload, elements

cdef tuple _STATES = tuple(EnvironmentStateType)
cdef str _STEP = "step"
cdef str _STATE = "state"
cdef str _ACTIONS = "actions"
cdef str _OBSERVATIONS = "observations"
cdef str _REQUESTED = "requested_observations"

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
    """Return whether a value exceeds its upper bound, or its lower one; NaN exceeds both."""
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
    """One spec, prepared for steps."""

    cdef Py_ssize_t index  # among the manager's slots
    cdef uint64_t uid
    cdef uint8_t key[12]   # the encoded key of a map's entry
    cdef uint32_t key_size
    cdef int kind          # a DataType; 0: not one of a tensor's
    cdef int dims
    cdef int64_t shape[32]
    cdef str name
    cdef object spec
    cdef cnp.ndarray low   # contiguous, in the spec's dtype, one element or all; None: no bound
    cdef cnp.ndarray high
    cdef object problem    # the error in the bounds, or None

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

    cdef bint fits(self, int kind, int dims, const int64_t *shape) noexcept:
        cdef int i
        if kind != self.kind or dims != self.dims:
            return False
        for i in range(dims):
            if self.shape[i] >= 0 and self.shape[i] != shape[i]:
                return False
        return True

    cdef str misfit(self, int kind, int dims, const int64_t *shape):
        """Return an error text for a dtype or shape that does not match the spec."""
        if kind != self.kind:
            return (f"{quoted(self.name)} has dtype {shown_kind(kind)}, but its spec has "
                    f"{shown_kind(self.kind)}")
        remedy = ""
        if dims == 0 and self.dims == 1 and self.kind == RLW_TENSOR_FLOAT:
            remedy = ": use an array, such as np.array([0.5], np.float32)"
        elif dims == 1 and self.dims == 0:
            remedy = ": use its element, such as int(action[0])"
        return (f"{quoted(self.name)} has shape {_shape_text(dims, shape)}, but its spec has "
                f"{_shape_text(self.dims, self.shape)}{remedy}")

    cdef bint has_scalar_bounds(self) noexcept:
        return ((self.low is None or cnp.PyArray_SIZE(self.low) == 1)
                and (self.high is None or cnp.PyArray_SIZE(self.high) == 1))

    cdef bint is_outside(self, const void *data, size_t count) except -1:
        """Return whether an element at `data`, aligned and in host order, is out of bounds."""
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
    """Return an error text that names the element out of bounds."""
    try:
        check_bounds(slot.spec, np.asarray(value).astype(dtype_of_kind(slot.kind), copy=False))
    except EncodeError as problem:
        return problem.reason
    return f"{quoted(slot.name)} is out of bounds"


cdef str _shape_text(int dims, const int64_t *shape):
    return str(tuple([shape[i] for i in range(dims)]))


cdef class SpecManager:
    """The specs of all actions, or of all observations. Immutable, so threads can share it.

    Args:
        specs: specs by UID.
        limits: limits for steps; `rlwire.limits.DEFAULT` if None.

    Attributes:
        specs_by_uid: the specs, read-only.
        specs_by_name: the specs by name, read-only.

    Raises:
        EncodeError: two specs have the same name, a UID does not fit 64 unsigned bits, or a spec
            has more than one variable dimension.
    """

    cdef object __weakref__
    cdef readonly object specs_by_uid
    cdef readonly object specs_by_name
    cdef dict _by_name     # _Slot
    cdef list _slots       # in the order of their UIDs
    cdef object _limits

    def __init__(self, specs, *, limits=None):
        cdef Py_ssize_t i
        if self._by_name is not None:
            raise TypeError("a SpecManager is immutable: create a new one")
        self._limits = checked(limits)
        by_uid = dict(specs)
        for uid, spec in by_uid.items():
            if not isinstance(spec, TensorSpec):
                raise TypeError(f"a spec must be a TensorSpec, not {type(spec).__qualname__}")
            if not isinstance(spec.name, str):
                raise EncodeError(f"a name must be str, not {type(spec.name).__qualname__}")
            uid_of(PyNumber_Index(uid), NULL)
        self.specs_by_uid = MappingProxyType(by_uid)
        self.specs_by_name = MappingProxyType({spec.name: spec for spec in by_uid.values()})
        if len(self.specs_by_name) != len(by_uid):
            names = Counter([spec.name for spec in by_uid.values()])
            twice = sorted([name for name, count in names.items() if count > 1])
            raise EncodeError(f"the specs have duplicate names: {', '.join(map(repr, twice))}")
        self._slots = [_Slot(uid, by_uid[uid], self._limits) for uid in sorted(by_uid)]
        self._by_name = {(<_Slot> slot).name: slot for slot in self._slots}
        for i in range(len(self._slots)):
            (<_Slot> self._slots[i]).index = i

    def name_to_uid(self, name):
        """Return the UID of a name, or raise KeyError."""
        return (<_Slot> self._by_name[name]).uid

    def names(self):
        """Return all names, in the order of `specs`."""
        return self.specs_by_name.keys()

    def __len__(self):
        return len(self._slots)

    def __repr__(self):
        return f"SpecManager({self.known()})"

    def request(self, names):
        """Return the field that requests these observations, to reuse in `encode_step_request`."""
        return self.request_uids([
            self.slot_of_name(name, NULL).uid for name in dict.fromkeys(names)
        ])

    def request_uids(self, uids):
        """Do what `request` does, for UIDs, which may be unknown."""
        cdef uint8_t room[12]
        cdef uint8_t *end
        packed = bytearray()
        for uid in uids:
            end = rlw_store_varint(room, uid_of(PyNumber_Index(uid), NULL))
            packed += room[:end - room]
        return field_bytes(2, packed, len(packed)) if packed else b""

    def names_of(self, uids):
        """Return the names of requested UIDs, each once; DecodeError for an unknown UID."""
        cdef _Slot slot
        cdef dict names = {}
        for uid in uids:
            slot = self.slot_of_uid(uid)
            if slot is None:
                raise self.unknown(uid)
            names[slot.name] = None
        return tuple(names)

    cdef _Slot slot_of_name(self, object name, const Step *path):
        cdef PyObject *found = PyDict_GetItemWithError(self._by_name, name)
        if found == NULL:
            raise EncodeError(f"unknown name {name!r}: expected one of {self.known()}",
                              path=path_of(path) if path != NULL else "")
        return <_Slot> found

    cdef _Slot slot_of_uid(self, uint64_t uid):
        """Return the slot of a UID, or None."""
        cdef Py_ssize_t low = 0, middle, high = len(self._slots)
        while low < high:
            middle = (low + high) >> 1
            if (<_Slot> self._slots[middle]).uid < uid:
                low = middle + 1
            else:
                high = middle
        if low < <Py_ssize_t> len(self._slots) and (<_Slot> self._slots[low]).uid == uid:
            return <_Slot> self._slots[low]
        return None

    cdef object unknown(self, uid):
        return DecodeError(f"unknown UID {uid}: expected one of {self.known()}")

    cdef str known(self):
        cdef _Slot slot
        shown = []
        for slot in self._slots[:SHOWN]:
            shown.append(f"{slot.uid} ({slot.name})")
        if len(self._slots) > SHOWN:
            shown.append(f"{len(self._slots) - SHOWN} more")
        return ", ".join(shown) or "none"

    def find_outside(self, values, names, Py_ssize_t most):
        """Return a name whose value is out of its spec's bounds, and an error text; or None.

        Skips arrays of more than `most` elements, and views that are not plain.
        """
        cdef _Slot slot
        cdef uint8_t room[8]
        for name in names:
            slot = self._by_name[name]
            value = values[name]
            if slot.kind >= RLW_TENSOR_BOOL or slot.problem is not None:
                continue
            if not cnp.PyArray_Check(value):
                cnp.PyArray_ScalarAsCtype(value, room)
                if not slot.is_outside(room, 1):
                    continue
            elif (cnp.PyArray_SIZE(value) > most or not cnp.PyArray_ISCARRAY_RO(value)
                    or not slot.is_outside(cnp.PyArray_DATA(value), cnp.PyArray_SIZE(value))):
                continue
            return name, _out_of_bounds(slot, value)
        return None

    cdef int add(self, Draft *draft, _Slot slot, object value, Maxima *maxima,
                 const Step *path, bint check=False) except -1:
        """Measure a value as an entry of a step's map."""
        cdef Entry *entry
        cdef const Tensor *tensor
        if slot.kind == 0:
            raise EncodeError(f"the spec of {quoted(slot.name)} has no valid data type",
                              path=path_of(path))
        entry = add_tensor(draft, value, slot.kind, maxima, path)
        entry.key = slot.key
        entry.key_size = slot.key_size
        tensor = &entry.tensor
        if not slot.fits(tensor.kind, tensor.dims, tensor.shape):
            raise EncodeError(slot.misfit(tensor.kind, tensor.dims, tensor.shape),
                              path=path_of(path))
        if check and slot.problem is None and slot.is_outside(
                tensor.room if tensor.data == NULL else tensor.data, tensor.count):
            raise EncodeError(f"{_out_of_bounds(slot, value)}; check_bounds=False sends it",
                              path=path_of(path))
        return 0

    cdef object take(self, _Slot slot, Input *input, const uint8_t *data, size_t size, bint check,
                     const uint8_t *at, const Step *path):
        """Decode one tensor of a step; `data` points into the input."""
        cdef rlw_tensor tensor
        try:
            look(&tensor, data, size, input.start, &input.tensors)
            if not slot.fits(tensor.kind, tensor.dims, tensor.shape):
                raise DecodeError(slot.misfit(tensor.kind, tensor.dims, tensor.shape),
                                  offset=at - input.start)
            count_protos(input, &tensor, at)
            value = take(&tensor, input.start, <object> input.source, input.writable,
                         &input.tensors)
            if check and _value_is_outside(slot, value, input, at):
                # Finding the element needs a byte for each.
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
        if not cnp.PyArray_Check(value):
            cnp.PyArray_ScalarAsCtype(value, room)
            return slot.is_outside(room, 1)
        array = value
        if not cnp.PyArray_ISCARRAY_RO(array):
            if slot.has_scalar_bounds() and not any(value.strides):  # a broadcast
                return slot.is_outside(cnp.PyArray_DATA(array), 1)
            # Elements may share memory, which a copy multiplies.
            if not afford(&input.tensors.budget, array.nbytes):
                raise over_budget(&input.tensors.budget, array.nbytes, at - input.start, "")
            array = np.require(array, array.dtype.newbyteorder("="), ("C", "A"))
            input.tensors.budget.left += array.nbytes
        return slot.is_outside(cnp.PyArray_DATA(array), cnp.PyArray_SIZE(array))
    except EncodeError as problem:
        raise DecodeError(problem.reason) from None


cdef int _add_all(SpecManager manager, Draft *draft, object tensors, Maxima *maxima,
                  const Step *group, bint check=False) except -1:
    cdef PyObject *name_pointer = NULL
    cdef PyObject *value_pointer = NULL
    cdef Py_ssize_t at = 0, left
    cdef _Slot slot
    cdef Step step = below(group, NULL)
    if type(tensors) is not dict:
        tensors = dict(tensors.items())
    left = PyDict_Size(tensors)
    while left >= 0 and PyDict_Next(tensors, &at, &name_pointer, &value_pointer):
        # Owned while in use: a foreign array's code may change the dictionary.
        name, value = <object> name_pointer, <object> value_pointer
        slot = manager.slot_of_name(name, group)
        step.key = <void *> slot.name
        manager.add(draft, slot, value, maxima, &step, check)
        left -= 1
    if left != 0:
        raise EncodeError("the dictionary changed while it was encoded", path=path_of(group))
    return 0


cdef int _put_requested(SpecManager manager, Draft *draft, object requested) except -1:
    """Write `requested`: a field from SpecManager.request, or UIDs."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef bytes field
    if PyBytes_CheckExact(requested):
        field = requested
        rlw_cursor_init(&c, <const uint8_t *> PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
        # A cheap check that rejects other bytes.
        if c.at < c.end and (c.at[0] != REQUESTED_TAG or rlw_take_field(&c, &f) != RLW_OK
                             or c.at != c.end or f.size == 0 or f.data[f.size - 1] >= 0x80):
            raise EncodeError("expected requested observations as UIDs, or as bytes from "
                              "SpecManager.request")
    else:
        field = manager.request_uids(requested)
    return put_ok(rlw_put(&draft.fixed, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field)))


def encode_step_request(SpecManager manager not None, actions, requested=b"", *,
                        check_bounds=False):
    """Return the EnvironmentRequest of a step as bytes.

    Args:
        manager: the specs of the actions.
        actions: values by name. Their dtype may differ from the spec's if the conversion keeps the
            values (`rlwire.codecs.casting.cast`): an int for a float, but not 1.5 for an integer.
        requested: the observations to return: a result of `SpecManager.request`, or UIDs.
        check_bounds: reject actions outside the bounds of their specs.

    Raises:
        EncodeError: an unknown action, or a value that does not fit its spec.
        LimitExceeded: the message exceeds one of the limits.
    """
    cdef Draft draft
    cdef Maxima maxima
    cdef Step root = below(NULL, <void *> _STEP)
    cdef Step group = below(&root, <void *> _ACTIONS)
    fill_maxima(&maxima, manager._limits)
    open_draft(&draft, STEP, ACTIONS_TAG)
    try:
        _add_all(manager, &draft, actions, &maxima, &group, check_bounds)
        _put_requested(manager, &draft, requested)
        end_draft(&draft, &maxima)
        return bytes_of(&draft)
    finally:
        close_draft(&draft)


cdef int _add_requested(SpecManager manager, Draft *draft, object observations, object uids,
                        Maxima *maxima, const Step *group) except -1:
    """Add the requested observations, each once."""
    cdef uint8_t room[64]
    cdef uint8_t *seen = room
    cdef _Slot slot
    cdef Step step = below(group, NULL)
    cdef size_t count = len(manager)
    seen_bytes = None
    if count > sizeof(room):
        seen_bytes = bytearray(count)
        seen = <uint8_t *> PyByteArray_AS_STRING(seen_bytes)
    else:
        memset(room, 0, sizeof(room))
    for uid in uids:
        slot = manager.slot_of_uid(uid) if 0 <= uid < 1 << 64 else None
        if slot is None:
            raise EncodeError(f"unknown observation UID {uid}: expected one of "
                              f"{manager.known()}", path=path_of(group))
        if seen[slot.index]:
            continue
        seen[slot.index] = 1
        try:
            value = observations[slot.name]
        except KeyError:
            raise EncodeError(f"the requested observation {quoted(slot.name)}, UID {slot.uid}, is "
                              f"missing", path=path_of(group)) from None
        step.key = <void *> slot.name
        manager.add(draft, slot, value, maxima, &step)
    return 0


def encode_step_response(SpecManager manager not None, state, observations, requested=None):
    """Return the EnvironmentResponse of a step as bytes; see `encode_step_request`.

    Args:
        manager: the specs of the observations.
        state: an EnvironmentStateType.
        observations: values by name.
        requested: the UIDs to send, each once; None: all observations.
    """
    return _response(manager, state, observations, requested, False)


def encode_step_response_parts(SpecManager manager not None, state, observations, requested=None):
    """Return the EnvironmentResponse of a step as buffers for `socket.sendmsg`.

    Arrays of 16 KiB or more whose elements are in memory as on the wire (floats, doubles, booleans,
    int8s and uint8s) are sent by reference. Do not change them before they are sent.
    """
    return _response(manager, state, observations, requested, True)


cdef object _response(SpecManager manager, object state, object observations, object requested,
                      bint parts):
    cdef Draft draft
    cdef Maxima maxima
    cdef Step root = below(NULL, <void *> _STEP)
    cdef Step group = below(&root, <void *> _OBSERVATIONS)
    cdef Step state_path = below(&root, <void *> _STATE)
    cdef uint8_t field[12]
    cdef int64_t number
    number = int32_of(PyNumber_Index(state), &state_path)
    fill_maxima(&maxima, manager._limits)
    open_draft(&draft, STEP, OBSERVATIONS_TAG)
    try:
        if number != 0:
            field[0] = STATE_TAG
            draft.cut = rlw_store_varint(field + 1, <uint64_t> number) - field
            rlw_put(&draft.fixed, field, draft.cut)  # never allocates
        if requested is None:
            _add_all(manager, &draft, observations, &maxima, &group)
        else:
            _add_requested(manager, &draft, observations, requested, &maxima, &group)
        end_draft(&draft, &maxima)
        return parts_of(&draft) if parts else bytes_of(&draft)
    finally:
        close_draft(&draft)


cdef object _find_step(bint response, Input *input, size_t size, const uint8_t **data,
                       size_t *step_size):
    """Return what keeps the step's bytes alive; None if there is no step."""
    cdef rlw_cursor c
    cdef Span span
    cdef Input inner
    cdef uint64_t length = 0
    cdef Step root = below(NULL, <void *> _STEP)
    rlw_cursor_init(&c, input.start, size)
    if size and c.at[0] == STEP_TAG:
        c.at += 1
        if rlw_take_varint(&c, &length) == RLW_OK and length == rlw_left(&c):
            data[0] = c.at
            step_size[0] = length
            return <object> input.source
    if find_member(response, input, input.start, size, &span) != STEP:
        return None
    if span.count == 1:
        data[0] = span.data
        step_size[0] = span.size
        return <object> input.source
    joined = join(input, &inner, &span, STEP, input.start + size, &root)
    input[0] = inner
    data[0] = inner.start
    step_size[0] = PyBytes_GET_SIZE(joined)
    return joined


cdef int _take_entry(SpecManager manager, Input *input, const rlw_field *entry, dict out,
                     bint check, const Step *group) except -1:
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Span span
    cdef Input inner
    cdef Step step = below(group, NULL)
    cdef _Slot slot
    span.count = 0
    count_item(input, entry.at, group)
    rlw_cursor_init(&c, entry.data, entry.size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, group)
        if f.number == 2 and f.wire == RLW_WIRE_BYTES:
            note(&span, &f)
        elif f.number == 1 and f.wire == RLW_WIRE_VARINT:
            step.index = f.value
    slot = manager.slot_of_uid(step.index)
    if slot is None:
        raise DecodeError(manager.unknown(step.index).reason, offset=offset_of(input, entry.at),
                          path=path_of(&step))
    if span.count == 1:
        value = manager.take(slot, input, span.data, span.size, check, entry.at, &step)
    elif span.count == 0:
        value = manager.take(slot, input, c.end, 0, check, entry.at, &step)
    else:
        joined = join(input, &inner, &span, 2, c.end, &step)
        value = manager.take(slot, &inner, inner.start, PyBytes_GET_SIZE(joined), check,
                             inner.start, &step)
        take_over(input, &inner)
    PyDict_SetItem(out, slot.name, value)
    return 0


cdef object _decode(SpecManager manager, object buffer, bint response, bint ignore, bint check,
                    object copy, bint unshared):
    """Decode tensors by name, and the state of a response or the requested UIDs of a request."""
    cdef Input input
    cdef Py_buffer view
    cdef size_t size = 0
    cdef const uint8_t *data = NULL
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Step root = below(NULL, <void *> _STEP)
    cdef Step group = below(&root, <void *> (_OBSERVATIONS if response else _ACTIONS))
    cdef Step requested_path = below(&root, <void *> _REQUESTED)
    cdef uint64_t state = 0
    cdef uint32_t tensors_field = 2 if response else 1
    fill_options(&input.tensors, copy, manager._limits)
    open_buffer(&input, buffer, &view, &size)
    if unshared and input.writable:
        input.tensors.unshared = size
    try:
        keep = _find_step(response, &input, size, &data, &size)
        if keep is None:
            return None
        tensors = {}
        requested = None if response else []
        rlw_cursor_init(&c, data, size)
        while c.at < c.end:
            if rlw_take_field(&c, &f) != RLW_OK:
                fault(&input, &c.fault, &root)
            if f.number == tensors_field:
                if f.wire == RLW_WIRE_BYTES and not ignore:
                    _take_entry(manager, &input, &f, tensors, check, &group)
            elif f.number == 2:
                read_uids(&input, &f, requested, &requested_path)
            elif f.number == 1 and f.wire == RLW_WIRE_VARINT:
                state = f.value
        return (member_of(_STATES, state), tensors) if response else (tensors, requested)
    finally:
        PyBuffer_Release(&view)


def decode_step_request(SpecManager manager not None, buffer, *, ignore_actions=False,
                        check_bounds=False, copy=True, unshared=False):
    """Return the actions by name and the requested UIDs of a step; None for any other request.

    Args:
        manager: the specs of the actions.
        buffer: a whole EnvironmentRequest.
        ignore_actions: skip the actions and return none.
        check_bounds: reject actions outside the bounds of their specs.
        copy: as in `decode_request`.
        unshared: nothing else uses the buffer. With `copy=True`, an aligned array of half of its
            bytes or more is then a writable view instead of a copy.

    Raises:
        DecodeError: malformed bytes, an unknown action, or one that does not fit its spec. It does
            not check requested UIDs; `SpecManager.names_of` does.
        LimitExceeded: the message exceeds one of the limits.
    """
    return _decode(manager, buffer, False, ignore_actions, check_bounds, copy, unshared)


def decode_step_response(SpecManager manager not None, buffer, *, copy=True, unshared=False):
    """Return the state and the observations by name of a step; None for any other response.

    `copy`, `unshared` and errors are as in `decode_step_request`.
    """
    return _decode(manager, buffer, True, False, False, copy, unshared)


def data_offset(buffer, Py_ssize_t start, Py_ssize_t end):
    """Return the offset from `start` of the elements of a step's large tensor; 0 if unknown.

    ``buffer[start:end]`` is the beginning of a message, and the tensor ends beyond it. Use it to
    align the memory that receives the rest.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef uint64_t tag = 0, size = 0
    cdef int depth = 0
    open_range(buffer, start, end, &view, &c)
    try:
        while depth < NESTED:
            if rlw_take_varint(&c, &tag) != RLW_OK or rlw_take_varint(&c, &size) != RLW_OK:
                return 0
            if tag & 7 == RLW_WIRE_BYTES:
                if size <= rlw_left(&c):
                    c.at += size
                elif size < VIEW_LEAST:
                    return 0
                else:
                    depth += 1
            elif tag & 7 != RLW_WIRE_VARINT:
                return 0
        return c.at - (<const uint8_t *> view.buf + start)
    finally:
        PyBuffer_Release(&view)

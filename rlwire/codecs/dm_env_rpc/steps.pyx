"""Steps by name: a dictionary of arrays to the bytes of a whole request or response, and back.

One call each; UIDs, dtypes and shapes are those of a `SpecManager`.
`rlwire.codecs.dm_env_rpc` is the face.
"""

from cpython.buffer cimport Py_buffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from rlwire.codecs.dm_env_rpc.decoder cimport find_member
from rlwire.codecs.dm_env_rpc.specs cimport SpecManager, _Slot
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import operator

from rlwire.errors import DecodeError, EncodeError, quoted

__all__ = [
    "decode_step_request",
    "decode_step_response",
    "encode_step_request",
    "encode_step_response",
]

cdef enum:
    STEP = 3          # the field number of the step in both messages
    STEP_TAG = 0x1A   # the same with the wire type
    ACTIONS_TAG = 0x0A       # field 1
    OBSERVATIONS_TAG = 0x12  # field 2
    STATE_TAG = 0x08         # field 1, a varint
    REQUESTED_TAG = 0x12     # field 2

cdef str _STEP = "step"
cdef str _ACTIONS = "actions"
cdef str _OBSERVATIONS = "observations"
cdef str _REQUESTED = "requested_observations"


# --- to bytes


cdef int _add_all(SpecManager manager, Draft *draft, object tensors, Maxima *maxima, bint check,
                  const Step *group) except -1:
    cdef PyObject *name_pointer = NULL
    cdef PyObject *value_pointer = NULL
    cdef Py_ssize_t at = 0, left
    cdef _Slot slot
    cdef Step step
    step.parent = group
    step.index = 0
    if type(tensors) is not dict:
        tensors = dict(tensors.items())
    left = PyDict_Size(tensors)
    while left >= 0 and PyDict_Next(tensors, &at, &name_pointer, &value_pointer):
        # Owned while in use: a foreign array's code may change the dictionary.
        name, value = <object> name_pointer, <object> value_pointer
        slot = manager.slot_of_name(name, group)
        step.name = <void *> slot.name
        manager.add(draft, slot, value, maxima, check, &step)
        left -= 1
    if left != 0:
        raise EncodeError("the dictionary changed while it was encoded", path=path_of(group))
    return 0


cdef int _put_requested(SpecManager manager, Draft *draft, object requested) except -1:
    """`requested` as a field: already one, or UIDs."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef bytes field
    if PyBytes_CheckExact(requested):
        field = requested
        rlw_cursor_init(&c, <const uint8_t *> PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
        # A glance, which catches what is no such field at all.
        if c.at < c.end and (c.at[0] != REQUESTED_TAG or rlw_take_field(&c, &f) != RLW_OK
                             or c.at != c.end or f.size == 0 or f.data[f.size - 1] >= 0x80):
            raise EncodeError("the bytes of requested observations must be from "
                              "SpecManager.request")
    else:
        field = manager.request_uids(requested)
    if rlw_put(&draft.fixed, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field)) != RLW_OK:
        raise MemoryError()
    return 0


def encode_step_request(SpecManager manager not None, actions, requested=b"", *,
                        check_bounds=False):
    """Return the EnvironmentRequest of a step as bytes.

    Args:
        manager: of the actions.
        actions: names and values, as `SpecManager.pack` takes them.
        requested: the observations that the response shall have: what `SpecManager.request` of
            the observations' manager returned, or UIDs.
        check_bounds: refuse values that are out of the bounds of their specs.

    Raises:
        EncodeError: there is no such action, or a value does not fit its spec.
        LimitExceeded: the message passes one of the limits.
    """
    cdef Draft draft
    cdef Maxima maxima
    cdef Step root, group
    root.parent = NULL
    root.name = <void *> _STEP
    group.parent = &root
    group.name = <void *> _ACTIONS
    fill_maxima(&maxima, manager._limits)
    open_draft(&draft, STEP, ACTIONS_TAG)
    try:
        _add_all(manager, &draft, actions, &maxima, check_bounds, &group)
        _put_requested(manager, &draft, requested)
        end_draft(&draft, &maxima)
        return bytes_of(&draft)
    finally:
        close_draft(&draft)


cdef int _add_requested(SpecManager manager, Draft *draft, object observations, object uids,
                        Maxima *maxima, bint check, const Step *group) except -1:
    """Those that were requested, each once."""
    cdef uint8_t room[64]
    cdef uint8_t *seen = room
    cdef _Slot slot
    cdef Step step
    cdef size_t count = len(manager)
    step.parent = group
    step.index = 0
    seen_bytes = None
    if count > sizeof(room):
        seen_bytes = bytearray(count)
        seen = <uint8_t *> PyByteArray_AS_STRING(seen_bytes)
    else:
        memset(room, 0, sizeof(room))
    for uid in uids:
        slot = None
        if 0 <= uid < 1 << 64:
            slot = manager.slot_of_uid(uid)
        if slot is None:
            raise EncodeError(f"there is no observation with UID {uid}; known are: "
                              f"{manager.known()}", path=path_of(group))
        if seen[slot.index]:
            continue
        seen[slot.index] = 1
        try:
            value = observations[slot.name]
        except KeyError:
            raise EncodeError(f"the observation {quoted(slot.name)}, UID {slot.uid}, was requested and "
                              f"is not there", path=path_of(group)) from None
        step.name = <void *> slot.name
        manager.add(draft, slot, value, maxima, check, &step)
    return 0


cdef int64_t _state_number(object state) except? -1:
    number = operator.index(state)
    if not INT32_MIN <= number <= INT32_MAX:
        raise EncodeError(f"{number} does not fit 32 bits", path="$.step.state")
    return number


def encode_step_response(SpecManager manager not None, state, observations, requested=None, *,
                         check_bounds=False):
    """Return the EnvironmentResponse of a step as bytes.

    Args:
        manager: of the observations.
        state: an EnvironmentStateType.
        observations: names and values, as `SpecManager.pack` takes them.
        requested: the UIDs to send, each once, whatever else there is; None: all that are given.
        check_bounds: refuse values that are out of the bounds of their specs.

    Raises:
        EncodeError: there is no such observation, a requested one is not given, or a value does
            not fit its spec.
        LimitExceeded: the message passes one of the limits.
    """
    cdef Draft draft
    cdef Maxima maxima
    cdef Step root, group
    cdef uint8_t field[12]
    cdef int64_t number = _state_number(state)
    root.parent = NULL
    root.name = <void *> _STEP
    group.parent = &root
    group.name = <void *> _OBSERVATIONS
    fill_maxima(&maxima, manager._limits)
    open_draft(&draft, STEP, OBSERVATIONS_TAG)
    try:
        if number != 0:
            field[0] = STATE_TAG
            draft.cut = rlw_store_varint(field + 1, <uint64_t> number) - field
            rlw_put(&draft.fixed, field, draft.cut)  # into its room
        if requested is None:
            _add_all(manager, &draft, observations, &maxima, check_bounds, &group)
        else:
            _add_requested(manager, &draft, observations, requested, &maxima, check_bounds, &group)
        end_draft(&draft, &maxima)
        return bytes_of(&draft)
    finally:
        close_draft(&draft)


# --- from bytes


cdef object _find_step(bint response, Input *input, size_t size, const uint8_t **data,
                       size_t *step_size):
    """None where there is no step, or what keeps its bytes alive."""
    cdef rlw_cursor c
    cdef Span span
    cdef Input inner
    cdef uint64_t length = 0
    cdef Step root
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
    root.parent = NULL
    root.name = <void *> _STEP
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
    cdef Step step
    cdef _Slot slot
    step.parent = group
    step.name = NULL
    step.index = 0  # the UID
    span.count = 0
    count_item(input, entry.at, group)
    rlw_cursor_init(&c, entry.data, entry.size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, group)
        if f.number == 2:
            expect(input, &f, RLW_WIRE_BYTES, group)
            note(&span, &f)
        elif f.number == 1:
            expect(input, &f, RLW_WIRE_VARINT, group)
            step.index = f.value
    slot = manager.slot_of_uid(step.index)
    if slot is None:
        raise DecodeError(f"there is no UID {step.index}; known are: {manager.known()}",
                          offset=offset_of(input, entry.at), path=path_of(&step))
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
                    object copy, object broadcast):
    """Tensors by name, with the state of a response or the requested UIDs of a request."""
    cdef Input input
    cdef Py_buffer view
    cdef size_t size = 0
    cdef const uint8_t *data = NULL
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Step root, group, requested_path
    cdef uint64_t state = 0
    cdef uint32_t tensors_field = 2 if response else 1
    root.parent = NULL
    root.name = <void *> _STEP
    group.parent = requested_path.parent = &root
    group.name = <void *> (_OBSERVATIONS if response else _ACTIONS)
    requested_path.name = <void *> _REQUESTED
    fill_input(&input, copy, broadcast, manager._limits)
    open_buffer(&input, buffer, &view, &size)
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
                expect(&input, &f, RLW_WIRE_BYTES, &group)
                if not ignore:
                    _take_entry(manager, &input, &f, tensors, check, &group)
            elif f.number == 2:
                read_uids(&input, &f, requested, &requested_path)
            elif f.number == 1:
                expect(&input, &f, RLW_WIRE_VARINT, &root)
                state = f.value
        return (read_state(state), tensors) if response else (tensors, requested)
    finally:
        close_buffer(&view)


def decode_step_request(SpecManager manager not None, buffer, *, ignore_actions=False,
                        check_bounds=False, copy=True, broadcast="full"):
    """Return the actions by name and the requested UIDs of a step; None for another request.

    Args:
        manager: of the actions.
        buffer: a whole EnvironmentRequest.
        ignore_actions: leave the actions undecoded, whatever they are; an empty dictionary then.
        check_bounds: refuse actions that are out of the bounds of their specs.
        copy: as `decode_request`.
        broadcast: as `decode_request`.

    Raises:
        DecodeError: the bytes are no request, there is no such action, or one does not fit its
            spec. Requested UIDs are not looked up: `SpecManager.names_of` does that.
        LimitExceeded: the message passes one of the limits.
    """
    return _decode(manager, buffer, False, ignore_actions, check_bounds, copy, broadcast)


def decode_step_response(SpecManager manager not None, buffer, *, check_bounds=False, copy=True,
                         broadcast="full"):
    """Return the state and the observations by name of a step; None for another response.

    Args:
        manager: of the observations.
        buffer: a whole EnvironmentResponse.
        check_bounds: refuse observations that are out of the bounds of their specs.
        copy: as `decode_response`.
        broadcast: as `decode_response`.

    Raises:
        DecodeError: the bytes are no response, there is no such observation, or one does not fit
            its spec.
        LimitExceeded: the message passes one of the limits.
    """
    return _decode(manager, buffer, True, False, check_bounds, copy, broadcast)

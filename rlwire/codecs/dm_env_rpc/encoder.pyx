"""dm_env_rpc's messages to bytes. `rlwire.codecs.dm_env_rpc` is the face.

Small fields and messages are built as they come, maps of tensors go into a `Draft`: measured, then
written where they shall be.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Items
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs.dm_env_rpc.messages cimport *
from rlwire.codecs.dm_env_rpc.tensors cimport Tensor, measure, measure_flat, release, write
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import operator

import numpy as np

from rlwire.codecs.dm_env_rpc import messages
from rlwire.codecs.dm_env_rpc import values
from rlwire.errors import EncodeError, LimitExceeded

__all__ = [
    "encode_property_request",
    "encode_property_response",
    "encode_request",
    "encode_request_into",
    "encode_request_parts",
    "encode_response",
    "encode_response_into",
    "encode_response_parts",
]

cdef _Choice _REQUEST = messages._REQUEST
cdef _Choice _RESPONSE = messages._RESPONSE
cdef _Choice _PROPERTY_REQUEST = messages._PROPERTY_REQUEST
cdef _Choice _PROPERTY_RESPONSE = messages._PROPERTY_RESPONSE


cdef int _no_memory() except -1:
    raise MemoryError()


cdef inline int _checked(rlw_status status) except -1:
    return 0 if status == RLW_OK else _no_memory()


cdef int _put_varint(rlw_writer *w, uint64_t value) except -1:
    _checked(rlw_reserve(w, RLW_VARINT_ROOM))
    w.at = rlw_store_varint(w.at, value)
    return 0


cdef int _put_tag(rlw_writer *w, uint32_t number, rlw_wire wire) except -1:
    return _put_varint(w, number << 3 | wire)


cdef int _put_data(rlw_writer *w, uint32_t number, const void *data, size_t size) except -1:
    _put_tag(w, number, RLW_WIRE_BYTES)
    _put_varint(w, size)
    return _checked(rlw_put(w, data, size))


cdef int _put_bytes(rlw_writer *w, uint32_t number, bytes data) except -1:
    return _put_data(w, number, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef const char *_utf8(object text, Py_ssize_t *size, Maxima *maxima,
                       const Step *path) except NULL:
    cdef const char *data
    if not isinstance(text, str):
        raise EncodeError(f"expected str, not {type(text).__qualname__}", path=path_of(path))
    try:
        data = PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as problem:
        raise EncodeError(f"a string is not valid Unicode: {problem}",
                          path=path_of(path)) from None
    if <uint64_t> size[0] > maxima.string:
        raise LimitExceeded("string", maxima.string, size[0], path=path_of(path))
    return data


cdef int64_t _int32(object value, const Step *path) except? -1:
    try:
        number = operator.index(value)
    except TypeError:
        raise EncodeError(f"expected int, not {type(value).__qualname__}",
                          path=path_of(path)) from None
    if not INT32_MIN <= number <= INT32_MAX:
        raise EncodeError(f"{number} does not fit 32 bits", path=path_of(path))
    return number


cdef uint64_t _uid(object value, const Step *path) except? 0xFFFFFFFF:
    try:
        number = operator.index(value)
    except TypeError:
        raise EncodeError(f"a UID must be int, not {type(value).__qualname__}",
                          path=path_of(path)) from None
    if not 0 <= number < 1 << 64:
        raise EncodeError(f"{number} is no UID: not in 64 unsigned bits", path=path_of(path))
    return number


cdef int _count(Maxima *maxima, const Step *path) except -1:
    maxima.items += 1
    if maxima.items > maxima.most_items:
        raise LimitExceeded("items", maxima.most_items, maxima.items, path=path_of(path))
    return 0


cdef bytes _written(rlw_writer *w):
    return PyBytes_FromStringAndSize(<char *> w.start, rlw_written(w))


cdef bytes _numbers(_Field field, object value, Maxima *maxima, const Step *path):
    """The packed numbers of a repeated field."""
    cdef rlw_writer w
    cdef uint8_t room[256]
    cdef Step step
    step.parent = path
    step.name = NULL
    step.index = 0
    rlw_writer_init(&w, room, sizeof(room))
    try:
        for item in _iterated(value, path):
            if field.kind == UIDS:
                _count(maxima, &step)
                _put_varint(&w, _uid(item, &step))
            else:
                # Of a negative number all 64 bits are sent.
                _put_varint(&w, <uint64_t> _int32(item, &step))
            step.index += 1
        if field.kind == DIMENSIONS and step.index > maxima.dims:
            raise LimitExceeded("dims", maxima.dims, step.index, path=path_of(path))
        return _written(&w)
    finally:
        rlw_writer_free(&w)


cdef object _iterated(object value, const Step *path):
    try:
        return iter(value)
    except TypeError:
        raise EncodeError(f"expected several values, not {type(value).__qualname__}",
                          path=path_of(path)) from None


cdef object _entries(object value, const Step *path):
    if type(value) is not dict and not (hasattr(value, "items") and hasattr(value, "keys")):
        raise EncodeError(f"expected a mapping, not {type(value).__qualname__}",
                          path=path_of(path))
    # A list, since measuring runs foreign code, which may change the mapping. Of a dict without
    # its iterator, which CPython 3.11 cannot give back when there is no memory for it.
    return PyDict_Items(value) if type(value) is dict else list(value.items())


cdef int _put_tensor(rlw_writer *w, uint32_t number, object value, Maxima *maxima,
                     const Step *path) except -1:
    cdef Tensor tensor
    try:
        try:
            measure(&tensor, value, 0, False, maxima.dims)
        except (EncodeError, LimitExceeded) as problem:
            raise placed(problem, NULL, path) from None
        _write_tensor(w, number, &tensor, maxima, path)
    finally:
        release(&tensor)
    return 0


cdef int _write_tensor(rlw_writer *w, uint32_t number, const Tensor *tensor, Maxima *maxima,
                       const Step *path) except -1:
    if tensor.size > maxima.message:
        raise LimitExceeded("message", maxima.message, tensor.size, path=path_of(path))
    _put_tag(w, number, RLW_WIRE_BYTES)
    _put_varint(w, tensor.size)
    _checked(rlw_reserve(w, tensor.size))
    w.at = write(tensor, w.at)
    return 0


cdef int _put_bound(rlw_writer *w, uint32_t number, object spec, object bound, Maxima *maxima,
                    const Step *path) except -1:
    """A TensorSpec.Value: of the bound's own dtype if it has one, else of the spec's."""
    cdef Tensor tensor
    cdef int kind = 0
    if not isinstance(bound, (np.ndarray, np.generic)):
        kind = <int> _int32(spec.dtype, path)
    try:
        try:
            measure_flat(&tensor, bound, kind)
        except (EncodeError, LimitExceeded) as problem:
            raise placed(problem, NULL, path) from None
        _write_tensor(w, number, &tensor, maxima, path)
    finally:
        release(&tensor)
    return 0


cdef bytes _body(_Message message, object value, Maxima *maxima, const Step *path):
    """A message that has no map of tensors."""
    cdef rlw_writer w
    cdef uint8_t room[256]
    cdef _Field field
    if not isinstance(value, message.cls):
        raise EncodeError(
            f"expected {message.cls.__qualname__}, not {type(value).__qualname__}",
            path=path_of(path),
        )
    rlw_writer_init(&w, room, sizeof(room))
    try:
        for field in message.fields:
            _put_field(&w, field, value, maxima, path)
        return _written(&w)
    finally:
        rlw_writer_free(&w)


cdef int _put_field(rlw_writer *w, _Field field, object message, Maxima *maxima,
                    const Step *path) except -1:
    """One field of a message: nothing where it has the default of proto3."""
    cdef const char *text
    cdef Py_ssize_t size = 0
    cdef int64_t number
    cdef bytes packed
    cdef Step step
    value = getattr(message, field.name)
    step.parent = path
    step.name = <void *> field.name
    step.index = 0
    if field.kind == TEXT:
        text = _utf8(value, &size, maxima, &step)
        if size:
            _put_data(w, field.number, text, size)
    elif field.kind == DATA:
        packed = _bytes(value, &step)
        if packed:
            _put_bytes(w, field.number, packed)
    elif field.is_in(VARINTS):
        number = 1 if field.kind == FLAG and value else 0
        if field.kind != FLAG:
            number = _int32(value, &step)
        if number != 0:
            _put_tag(w, field.number, RLW_WIRE_VARINT)
            _put_varint(w, <uint64_t> number)
    elif field.is_in(NUMBERS):
        packed = _numbers(field, value, maxima, &step)
        if packed:
            _put_bytes(w, field.number, packed)
    elif field.kind == MESSAGE:
        _put_bytes(w, field.number, _body(field.sub, value, maxima, &step))
    elif field.kind == MESSAGES:
        _put_messages(w, field, value, maxima, &step)
    elif field.kind == SPECS_BY_UID:
        _put_specs(w, field, value, maxima, &step)
    elif value is not None:
        if field.kind == TENSOR:
            _put_tensor(w, field.number, value, maxima, &step)
        else:
            _put_bound(w, field.number, message, value, maxima, &step)
    return 0


cdef bytes _bytes(object value, const Step *path):
    if type(value) is bytes:
        return value
    try:
        return bytes(memoryview(value))
    except (TypeError, BufferError):
        raise EncodeError(f"expected bytes, not {type(value).__qualname__}",
                          path=path_of(path)) from None


cdef int _put_messages(rlw_writer *w, _Field field, object messages, Maxima *maxima,
                       const Step *path) except -1:
    cdef Step step
    step.parent = path
    step.name = NULL
    step.index = 0
    for message in _iterated(messages, path):
        _count(maxima, &step)
        _put_bytes(w, field.number, _body(field.sub, message, maxima, &step))
        step.index += 1
    return 0


cdef int _put_specs(rlw_writer *w, _Field field, object specs, Maxima *maxima,
                    const Step *path) except -1:
    cdef uint8_t key[12]
    cdef int key_size
    cdef Step step
    cdef bytes spec_bytes
    step.parent = path
    step.name = NULL
    for uid, spec in _entries(specs, path):
        step.index = _uid(uid, path)
        _count(maxima, &step)
        key_size = key_of_uid(key, step.index)
        spec_bytes = _body(field.sub, spec, maxima, &step)
        size = PyBytes_GET_SIZE(spec_bytes)
        _put_tag(w, field.number, RLW_WIRE_BYTES)
        _put_varint(w, key_size + 1 + rlw_varint_size(size) + size)
        _checked(rlw_put(w, key, key_size))
        _put_bytes(w, 2, spec_bytes)
    return 0


cdef int _add_tensors(Draft *draft, _Field field, object tensors, Maxima *maxima,
                      const Step *path) except -1:
    cdef Step step
    cdef Entry *entry
    cdef rlw_writer w
    cdef uint8_t room[64]
    cdef const char *text
    cdef Py_ssize_t size = 0
    step.parent = path
    step.name = NULL
    for key, value in _entries(tensors, path):
        if field.kind == TENSORS_BY_UID:
            step.index = _uid(key, path)
            entry = add_tensor(draft, value, 0, maxima, &step)
            entry.key_size = key_of_uid(entry.room, step.index)
            continue
        text = _utf8(key, &size, maxima, path)
        step.name = <void *> key
        entry = add_tensor(draft, value, 0, maxima, &step)
        rlw_writer_init(&w, room, sizeof(room))
        try:
            _put_data(&w, 1, text, size)
            encoded = _written(&w)
        finally:
            rlw_writer_free(&w)
        Py_INCREF(encoded)
        entry.owner = <PyObject *> encoded
        entry.key = <const uint8_t *> PyBytes_AS_STRING(encoded)
        entry.key_size = <uint32_t> PyBytes_GET_SIZE(encoded)
    return 0


cdef _Field _member_of(_Choice choice, object message):
    field = choice.by_class.get(type(message))
    if field is None:
        for cls, known in choice.by_class.items():
            if isinstance(message, cls):
                return known
        hint = ": by name, it goes through encode_step_request or encode_step_response"
        raise EncodeError(
            f"{type(message).__qualname__} is no {choice.name}"
            + (hint if isinstance(message, (values.Step, values.StepResult)) else "")
        )
    return field


cdef int _draft(Draft *draft, _Choice choice, object message, limits) except -1:
    cdef Maxima maxima
    cdef _Field field, member = _member_of(choice, message)
    cdef Step path, step
    fill_maxima(&maxima, limits)
    draft.member = member.number
    path.parent = NULL
    path.name = <void *> member.name
    step.parent = &path
    for field in member.sub.fields:
        if field.is_in(TENSOR_MAPS):
            draft.cut = rlw_written(&draft.fixed)
            draft.map_tag = <uint8_t> (field.number << 3 | RLW_WIRE_BYTES)
            step.name = <void *> field.name
            _add_tensors(draft, field, getattr(message, field.name), &maxima, &step)
        else:
            _put_field(&draft.fixed, field, message, &maxima, &path)
    return end_draft(draft, &maxima)


cdef enum:
    WHOLE, INTO, PARTS


cdef object _encode(_Choice choice, object message, object limits, int how=WHOLE,
                    object buffer=None, Py_ssize_t offset=0):
    cdef Draft draft
    open_draft(&draft, 0, 0)
    try:
        _draft(&draft, choice, message, limits)
        if how == INTO:
            return write_into(&draft, buffer, offset)
        return parts_of(&draft) if how == PARTS else bytes_of(&draft)
    finally:
        close_draft(&draft)


def encode_request(message, *, limits=None):
    """Return an EnvironmentRequest as bytes.

    Args:
        message: one of the classes of `Request`; its tensors are anything that `encode_tensor`
            takes.
        limits: maxima; `rlwire.limits.DEFAULT` when None.

    Raises:
        EncodeError: a value that the message cannot carry; it names the path.
        LimitExceeded: the message passes one of the limits.
    """
    return _encode(_REQUEST, message, limits)


def encode_request_into(message, buffer, Py_ssize_t offset=0, *, limits=None):
    """Write an EnvironmentRequest into a writable buffer; return the bytes written.

    Raises:
        EncodeError: as `encode_request`, or the buffer is too small; nothing is written then.
        LimitExceeded: as `encode_request`.
    """
    return _encode(_REQUEST, message, limits, INTO, buffer, offset)


def encode_request_parts(message, *, limits=None):
    """Return an EnvironmentRequest as buffers, large arrays by reference.

    An array that is referred to must not change until the parts are sent; they keep it alive.

    Raises:
        EncodeError, LimitExceeded: as `encode_request`.
    """
    return _encode(_REQUEST, message, limits, PARTS)


def encode_response(message, *, limits=None):
    """Return an EnvironmentResponse as bytes; see `encode_request`."""
    return _encode(_RESPONSE, message, limits)


def encode_response_into(message, buffer, Py_ssize_t offset=0, *, limits=None):
    """Write an EnvironmentResponse into a buffer; see `encode_request_into`."""
    return _encode(_RESPONSE, message, limits, INTO, buffer, offset)


def encode_response_parts(message, *, limits=None):
    """Return an EnvironmentResponse as buffers; see `encode_request_parts`."""
    return _encode(_RESPONSE, message, limits, PARTS)


def encode_property_request(message, *, limits=None):
    """Return a request of the properties extension, to be sent as an extension.

    Raises:
        EncodeError, LimitExceeded: as `encode_request`.
    """
    encoded = _encode(_PROPERTY_REQUEST, message, limits)
    return values.AnyMessage(messages.PROPERTY_REQUEST_URL, encoded)


def encode_property_response(message, *, limits=None):
    """Return a response of the properties extension; see `encode_property_request`."""
    encoded = _encode(_PROPERTY_RESPONSE, message, limits)
    return values.AnyMessage(messages.PROPERTY_RESPONSE_URL, encoded)

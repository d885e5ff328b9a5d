"""dm_env_rpc's messages to bytes and back, with one table of each message's fields.

Small fields are written directly. A map of tensors becomes a `Draft` (see `wire`). `steps` encodes
and decodes steps by name.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Items
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport ITEM, utf8_of
from rlwire.codecs._output cimport put_ok
from rlwire.codecs.dm_env_rpc.tensors cimport (Tensor, field_bytes, fill_options, look, measure,
                                               measure_flat, read_flat, read_text, release, take,
                                               write)
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import math

import numpy as np

from rlwire.codecs.dm_env_rpc import values
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted

__all__ = [
    "PROPERTY_REQUEST_URL", "PROPERTY_RESPONSE_URL", "decode_property_request",
    "decode_property_response", "decode_request", "decode_response", "encode_property_request",
    "encode_property_response", "encode_request", "encode_response", "request_kind",
]

PROPERTY_REQUEST_URL = "type.googleapis.com/dm_env_rpc.v1.extensions.properties.PropertyRequest"
"""The type of an `AnyMessage` that holds a request of the properties extension."""

PROPERTY_RESPONSE_URL = "type.googleapis.com/dm_env_rpc.v1.extensions.properties.PropertyResponse"
"""The type of an `AnyMessage` that holds a response of the properties extension."""


cdef enum Kind:
    TEXT             # string
    DATA             # bytes
    FLAG             # bool
    INT32
    DIMENSIONS       # repeated int32; a tuple
    UIDS             # repeated uint64; a list
    STATE            # EnvironmentStateType
    DATA_TYPE
    MESSAGE
    MESSAGES         # repeated; a tuple
    TENSOR           # one, or None
    BOUND            # a TensorSpec.Value, or None
    TENSORS_BY_UID   # map<uint64, Tensor>
    TENSORS_BY_NAME  # map<string, Tensor>
    SPECS_BY_UID     # map<uint64, TensorSpec>

cdef enum:
    SHAPE_AT = 1        # index of the shape among a TensorSpec's fields
    MOST_FIELDS = 5     # of one message
    MOST_NUMBERS = 17   # field numbers are smaller
    # Sets of kinds, for _Field.is_in().
    VARINTS = 1 << FLAG | 1 << INT32 | 1 << STATE | 1 << DATA_TYPE
    NUMBERS = 1 << DIMENSIONS | 1 << UIDS
    TENSOR_MAPS = 1 << TENSORS_BY_UID | 1 << TENSORS_BY_NAME
    MAPS = TENSOR_MAPS | 1 << SPECS_BY_UID


cdef class _Field:
    cdef uint32_t number
    cdef Kind kind
    cdef str name
    cdef int at          # its index among the message's fields
    cdef _Message sub    # for MESSAGE, MESSAGES and SPECS_BY_UID
    cdef object default  # for kinds other than lists, dictionaries and messages

    def __init__(self, number, kind, name, sub=None):
        self.number = number
        self.kind = kind
        self.name = name
        self.sub = sub

    cdef bint is_in(self, int kinds) noexcept:
        return 1 << <int> self.kind & kinds != 0


cdef class _Message:
    """A message's class and its fields, in the order of the class."""

    cdef type cls
    cdef list fields
    cdef list by_number  # None for unused numbers

    def __init__(self, cls, *fields):
        cdef _Field field
        default = cls()
        self.cls = cls
        self.fields = [_Field(*each) for each in fields]
        self.by_number = [None] * MOST_NUMBERS
        for at, field in enumerate(self.fields):
            field.at = at
            field.default = getattr(default, field.name)
            self.by_number[field.number] = field


cdef class _Choice:
    """A message that has one of several members: a oneof."""

    cdef str name
    cdef list by_number
    cdef dict by_class

    def __init__(self, name, *members):
        self.name = name
        self.by_number = [None] * MOST_NUMBERS
        self.by_class = {}
        for number, member_name, message in members:
            field = _Field(number, MESSAGE, member_name, message)
            self.by_number[number] = field
            self.by_class[(<_Message> message).cls] = field


cdef _Message _ANY = _Message(values.AnyMessage, (1, TEXT, "type_url"), (2, DATA, "value"))
cdef _Message _STATUS = _Message(
    values.Status, (1, INT32, "code"), (2, TEXT, "message"), (3, MESSAGES, "details", _ANY)
)
cdef _Message _SPEC = _Message(
    values.TensorSpec,
    (1, TEXT, "name"),
    (2, DIMENSIONS, "shape"),
    (3, DATA_TYPE, "dtype"),
    (4, BOUND, "min"),
    (5, BOUND, "max"),
)
cdef _Message _SPECS = _Message(
    values.ActionObservationSpecs,
    (1, SPECS_BY_UID, "actions", _SPEC),
    (2, SPECS_BY_UID, "observations", _SPEC),
)
cdef tuple _NAME = (1, TEXT, "world_name")
cdef tuple _KEY = (1, TEXT, "key")

cdef _Choice _REQUEST = _Choice(
    "EnvironmentRequest",
    (1, "create_world",
     _Message(values.CreateWorldRequest, (1, TENSORS_BY_NAME, "settings"))),
    (2, "join_world",
     _Message(values.JoinWorldRequest, _NAME, (2, TENSORS_BY_NAME, "settings"))),
    (3, "step",
     _Message(values.StepRequest, (1, TENSORS_BY_UID, "actions"),
              (2, UIDS, "requested_observations"))),
    (4, "reset", _Message(values.ResetRequest, (1, TENSORS_BY_NAME, "settings"))),
    (5, "reset_world",
     _Message(values.ResetWorldRequest, _NAME, (2, TENSORS_BY_NAME, "settings"))),
    (6, "leave_world", _Message(values.LeaveWorldRequest)),
    (7, "destroy_world", _Message(values.DestroyWorldRequest, _NAME)),
    (15, "extension", _ANY),
)
cdef _Choice _RESPONSE = _Choice(
    "EnvironmentResponse",
    (1, "create_world", _Message(values.CreateWorldResponse, _NAME)),
    (2, "join_world", _Message(values.JoinWorldResponse, (1, MESSAGE, "specs", _SPECS))),
    (3, "step",
     _Message(values.StepResponse, (1, STATE, "state"), (2, TENSORS_BY_UID, "observations"))),
    (4, "reset", _Message(values.ResetResponse, (1, MESSAGE, "specs", _SPECS))),
    (5, "reset_world", _Message(values.ResetWorldResponse)),
    (6, "leave_world", _Message(values.LeaveWorldResponse)),
    (7, "destroy_world", _Message(values.DestroyWorldResponse)),
    (15, "extension", _ANY),
    (16, "error", _STATUS),
)
cdef _Choice _PROPERTY_REQUEST = _Choice(
    "PropertyRequest",
    (1, "read_property", _Message(values.ReadPropertyRequest, _KEY)),
    (2, "write_property", _Message(values.WritePropertyRequest, _KEY, (2, TENSOR, "value"))),
    (3, "list_property", _Message(values.ListPropertyRequest, _KEY)),
)
cdef _Choice _PROPERTY_RESPONSE = _Choice(
    "PropertyResponse",
    (1, "read_property", _Message(values.ReadPropertyResponse, (1, TENSOR, "value"))),
    (2, "write_property", _Message(values.WritePropertyResponse)),
    (3, "list_property",
     _Message(
         values.ListPropertyResponse,
         (1, MESSAGES, "values",
          _Message(
              values.PropertySpec,
              (1, MESSAGE, "spec", _SPEC),
              (2, FLAG, "is_readable"),
              (3, FLAG, "is_writable"),
              (4, FLAG, "is_listable"),
              (5, TEXT, "description"),
          )),
     )),
)


cdef int _put_varint(rlw_writer *w, uint64_t value) except -1:
    put_ok(rlw_reserve(w, RLW_VARINT_ROOM))
    w.at = rlw_store_varint(w.at, value)
    return 0


cdef int _put_tag(rlw_writer *w, uint32_t number, rlw_wire wire) except -1:
    return _put_varint(w, number << 3 | wire)


cdef int _put_data(rlw_writer *w, uint32_t number, const void *data, size_t size) except -1:
    _put_tag(w, number, RLW_WIRE_BYTES)
    _put_varint(w, size)
    return put_ok(rlw_put(w, data, size))


cdef int _put_bytes(rlw_writer *w, uint32_t number, bytes data) except -1:
    return _put_data(w, number, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef const char *_utf8(object text, Py_ssize_t *size, Maxima *maxima,
                       const Step *path) except NULL:
    if not isinstance(text, str):
        raise _not_a("str", text, path)
    return utf8_of(text, size, maxima.most.string, path)


cdef object _not_a(str expected, object value, const Step *path):
    return EncodeError(f"expected {expected}, not {type(value).__qualname__}", path=path_of(path))


cdef bytes _numbers(_Field field, object value, Maxima *maxima, const Step *path):
    """Return the packed numbers of a repeated field."""
    cdef rlw_writer w
    cdef uint8_t room[256]
    cdef Step step = below(path, NULL)
    rlw_writer_init(&w, room, sizeof(room))
    try:
        for item in _iterated(value, path):
            if field.kind == UIDS:
                count_sent(maxima, &step)
                _put_varint(&w, uid_of(item, &step))
            else:
                # A negative number is sent with all 64 bits.
                _put_varint(&w, <uint64_t> int32_of(item, &step))
            step.index += 1
        if field.kind == DIMENSIONS and step.index > maxima.most.dims:
            raise LimitExceeded("dims", maxima.most.dims, step.index, path=path_of(path))
        return PyBytes_FromStringAndSize(<char *> w.start, rlw_written(&w))
    finally:
        rlw_writer_free(&w)


cdef object _iterated(object value, const Step *path):
    try:
        return iter(value)
    except TypeError:
        raise _not_a("several values", value, path) from None


cdef object _entries(object value, const Step *path):
    if type(value) is not dict and not (hasattr(value, "items") and hasattr(value, "keys")):
        raise _not_a("a mapping", value, path)
    # A list, since measuring runs foreign code, which may change the mapping. PyDict_Items() needs
    # no iterator, which CPython 3.11 fails to free when memory runs out.
    return PyDict_Items(value) if type(value) is dict else list(value.items())


cdef int _put_tensor(rlw_writer *w, _Field field, object message, object value, Maxima *maxima,
                     const Step *path) except -1:
    """Write a tensor, or a TensorSpec.Value in its own dtype if it has one, else the spec's."""
    cdef Tensor tensor
    cdef int kind = 0
    if field.kind == BOUND and not isinstance(value, (np.ndarray, np.generic)):
        kind = <int> int32_of(message.dtype, path)
    try:
        try:
            if field.kind == BOUND:
                measure_flat(&tensor, value, kind)
            else:
                measure(&tensor, value, 0, maxima.most.dims)
        except (EncodeError, LimitExceeded) as problem:
            raise placed(problem, NULL, path) from None
        if tensor.sizes.whole > maxima.most.message:
            raise LimitExceeded("message", maxima.most.message, tensor.sizes.whole, path=path_of(path))
        _put_tag(w, field.number, RLW_WIRE_BYTES)
        _put_varint(w, tensor.sizes.whole)
        put_ok(rlw_reserve(w, tensor.sizes.whole))
        w.at = write(&tensor, w.at)
    finally:
        release(&tensor)
    return 0


cdef bytes _body(_Message message, object value, Maxima *maxima, const Step *path):
    """Return the bytes of a message without maps of tensors."""
    cdef rlw_writer w
    cdef uint8_t room[256]
    cdef _Field field
    if not isinstance(value, message.cls):
        raise _not_a(message.cls.__qualname__, value, path)
    rlw_writer_init(&w, room, sizeof(room))
    try:
        for field in message.fields:
            _put_field(&w, field, value, maxima, path)
        return PyBytes_FromStringAndSize(<char *> w.start, rlw_written(&w))
    finally:
        rlw_writer_free(&w)


cdef int _put_field(rlw_writer *w, _Field field, object message, Maxima *maxima,
                    const Step *path) except -1:
    """Write one field of a message, unless it has the default value of proto3."""
    cdef const char *text
    cdef Py_ssize_t size = 0
    cdef int64_t number
    cdef bytes packed
    cdef Step inner, step = below(path, <void *> field.name)
    value = getattr(message, field.name)
    if field.kind == TEXT:
        text = _utf8(value, &size, maxima, &step)
        if size:
            _put_data(w, field.number, text, size)
    elif field.kind == DATA:
        packed = _bytes(value, &step)
        if packed:
            _put_bytes(w, field.number, packed)
    elif field.is_in(VARINTS):
        number = bool(value) if field.kind == FLAG else int32_of(value, &step)
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
        inner = below(&step, NULL)
        for item in _iterated(value, &step):
            count_sent(maxima, &inner)
            _put_bytes(w, field.number, _body(field.sub, item, maxima, &inner))
            inner.index += 1
    elif field.kind == SPECS_BY_UID:
        _put_specs(w, field, value, maxima, &step)
    elif value is not None:
        _put_tensor(w, field, message, value, maxima, &step)
    return 0


cdef bytes _bytes(object value, const Step *path):
    if type(value) is bytes:
        return value
    try:
        return bytes(memoryview(value))
    except (TypeError, BufferError):
        raise _not_a("bytes", value, path) from None


cdef int _put_specs(rlw_writer *w, _Field field, object specs, Maxima *maxima,
                    const Step *path) except -1:
    cdef uint8_t key[12]
    cdef int key_size
    cdef Step step = below(path, NULL)
    cdef bytes spec_bytes
    for uid, spec in _entries(specs, path):
        step.index = uid_of(uid, path)
        count_sent(maxima, &step)
        key_size = key_of_uid(key, step.index)
        spec_bytes = _body(field.sub, spec, maxima, &step)
        size = PyBytes_GET_SIZE(spec_bytes)
        _put_tag(w, field.number, RLW_WIRE_BYTES)
        _put_varint(w, key_size + 1 + rlw_varint_size(size) + size)
        put_ok(rlw_put(w, key, key_size))
        _put_bytes(w, 2, spec_bytes)
    return 0


cdef int _add_tensors(Draft *draft, _Field field, object tensors, Maxima *maxima,
                      const Step *path) except -1:
    cdef Step step = below(path, NULL)
    cdef Entry *entry
    cdef const char *text
    cdef Py_ssize_t size = 0
    for key, value in _entries(tensors, path):
        if field.kind == TENSORS_BY_UID:
            step.index = uid_of(key, path)
            entry = add_tensor(draft, value, 0, maxima, &step)
            entry.key_size = key_of_uid(entry.room, step.index)
            continue
        text = _utf8(key, &size, maxima, path)
        step.key = <void *> key
        entry = add_tensor(draft, value, 0, maxima, &step)
        encoded = field_bytes(1, text, size)
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
        hint = ": encode steps by name with encode_step_request or encode_step_response"
        raise EncodeError(
            f"{type(message).__qualname__} is not a member of {choice.name}"
            + (hint if isinstance(message, (values.Step, values.StepResult)) else "")
        )
    return field


cdef int _draft(Draft *draft, _Choice choice, object message, limits) except -1:
    cdef Maxima maxima
    cdef _Field field, member = _member_of(choice, message)
    cdef Step path = below(NULL, <void *> member.name)
    cdef Step step = below(&path, NULL)
    fill_maxima(&maxima, limits)
    draft.member = member.number
    for field in member.sub.fields:
        if field.is_in(TENSOR_MAPS):
            draft.cut = rlw_written(&draft.fixed)
            draft.map_tag = <uint8_t> (field.number << 3 | RLW_WIRE_BYTES)
            step.key = <void *> field.name
            _add_tensors(draft, field, getattr(message, field.name), &maxima, &step)
        else:
            _put_field(&draft.fixed, field, message, &maxima, &path)
    return end_draft(draft, &maxima)


cdef bytes _encode(_Choice choice, object message, object limits):
    cdef Draft draft
    open_draft(&draft, 0, 0)
    try:
        _draft(&draft, choice, message, limits)
        return bytes_of(&draft)
    finally:
        close_draft(&draft)


def encode_request(message, *, limits=None):
    """Return an EnvironmentRequest as bytes. Tensors are values that `encode_tensor` accepts.

    Raises:
        EncodeError: the message cannot carry a value; the error has its path.
        LimitExceeded: the message exceeds one of `limits` (`rlwire.limits.DEFAULT` if None).
    """
    return _encode(_REQUEST, message, limits)


def encode_response(message, *, limits=None):
    """Return an EnvironmentResponse as bytes; see `encode_request`."""
    return _encode(_RESPONSE, message, limits)


def encode_property_request(message, *, limits=None):
    """Return a request of the properties extension as an `AnyMessage`."""
    encoded = _encode(_PROPERTY_REQUEST, message, limits)
    return values.AnyMessage(PROPERTY_REQUEST_URL, encoded)


def encode_property_response(message, *, limits=None):
    """Return a response of the properties extension; see `encode_property_request`."""
    encoded = _encode(_PROPERTY_RESPONSE, message, limits)
    return values.AnyMessage(PROPERTY_RESPONSE_URL, encoded)


cdef str _text(Input *input, const rlw_field *f, const Step *path):
    try:
        return read_text(f.data, f.size, input.start, &input.tensors)
    except (DecodeError, LimitExceeded) as problem:
        raise placed(problem, input, path) from None


cdef object _tensor(Input *input, const uint8_t *data, size_t size, const Step *path):
    cdef rlw_tensor tensor
    try:
        look(&tensor, data, size, input.start, &input.tensors)
        count_protos(input, &tensor, data)
        return take(&tensor, input.start, <object> input.source, input.writable, &input.tensors)
    except (DecodeError, LimitExceeded) as problem:
        raise placed(problem, input, path) from None


cdef object _bound(Input *input, const uint8_t *data, size_t size, tuple shape,
                   const Step *path):
    """Return a TensorSpec.Value: None, a scalar, an array of `shape`, or else a flat array."""
    cdef int kind = 0
    pay(input, ITEM, data, path)  # two arrays, one a view of the other
    try:
        flat = read_flat(data, size, input.start, &input.tensors, &kind)
    except (DecodeError, LimitExceeded) as problem:
        raise placed(problem, input, path) from None
    if flat is None:
        return None
    if flat.size == 1:
        return flat[0]
    flat.flags.writeable = False
    if min(shape, default=0) >= 0 and math.prod(shape) == flat.size:
        return flat.reshape(shape)
    return flat


cdef int _read_dimensions(Input *input, const rlw_field *f, list shape, const Step *path) except -1:
    cdef rlw_cursor c
    cdef uint64_t size = 0
    if f.wire != RLW_WIRE_BYTES and f.wire != RLW_WIRE_VARINT:
        return 0
    rlw_cursor_init(&c, f.data, f.size)
    while c.at < c.end:
        if rlw_take_varint(&c, &size) != RLW_OK:
            fault(input, &c.fault, path)
        if <uint32_t> len(shape) >= input.tensors.dims:
            raise LimitExceeded("dims", input.tensors.dims, len(shape) + 1,
                                offset=offset_of(input, f.at), path=path_of(path))
        shape.append(<int32_t> <uint32_t> size)
    return 0


cdef tuple _STATES = tuple(values.EnvironmentStateType)
cdef tuple _DATA_TYPES = tuple(values.DataType)


cdef object _varint(_Field field, const rlw_field *f):
    if field.kind == FLAG:
        return f.value != 0
    if field.kind == STATE:
        return member_of(_STATES, f.value)
    if field.kind == DATA_TYPE:
        return member_of(_DATA_TYPES, f.value)
    return <int32_t> <uint32_t> f.value


cdef int _read_entry(_Field field, Input *input, const rlw_field *entry, dict entries,
                     const Step *path) except -1:
    """Read an entry of a map. It replaces an earlier one with the same key."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Span span
    cdef Step step = below(path, NULL)
    cdef bint named = field.kind == TENSORS_BY_NAME
    key = "" if named else 0
    span.count = 0
    count_item(input, entry.at, path)
    if not named:
        count_key(input, entry.at, path)
    rlw_cursor_init(&c, entry.data, entry.size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, path)
        if f.number == 1 and f.wire == (RLW_WIRE_BYTES if named else RLW_WIRE_VARINT):
            if named:
                key = _text(input, &f, path)
            else:
                step.index = f.value
                key = f.value
        elif f.number == 2 and f.wire == RLW_WIRE_BYTES:
            note(&span, &f)
    if named:
        step.key = <void *> key
    if span.count == 0:  # the default: a message without fields
        span.at = span.data = c.end
        span.size = 0
        span.count = 1
    entries[key] = _single(field, input, &span, 2, c.end, (), &step)
    return 0


cdef object _content(_Field field, Input *input, const uint8_t *data, size_t size, tuple shape,
                     const Step *path):
    if field.sub is not None:
        return _read(field.sub, input, data, size, path)
    if field.kind == BOUND:
        return _bound(input, data, size, shape, path)
    return _tensor(input, data, size, path)


cdef object _single(_Field field, Input *input, const Span *span, uint32_t number,
                    const uint8_t *end, tuple shape, const Step *path):
    """Return a singular sub-message, merged from all its occurrences before `end`."""
    cdef Input inner
    if span.count == 1:
        return _content(field, input, span.data, span.size, shape, path)
    joined = join(input, &inner, span, number, end, path)
    content = _content(field, &inner, inner.start, PyBytes_GET_SIZE(joined), shape, path)
    take_over(input, &inner)
    return content


cdef list _defaults(_Message message):
    cdef _Field field
    fresh = []
    for field in message.fields:
        if field.is_in(MAPS):
            fresh.append({})
        elif field.is_in(NUMBERS) or field.kind == MESSAGES:
            fresh.append([])
        elif field.kind == MESSAGE:
            fresh.append(field.sub.cls())
        else:
            fresh.append(field.default)
    return fresh


cdef int _read_field(_Field field, Input *input, const rlw_field *f, list fields, Span *span,
                     const Step *path) except -1:
    """Read a known field; skip one of another wire type, as protobuf does."""
    cdef Step item
    at = field.at
    if field.is_in(VARINTS):
        if f.wire == RLW_WIRE_VARINT:
            fields[at] = _varint(field, f)
        return 0
    if field.kind == UIDS:
        return read_uids(input, f, <list> fields[at], path)
    if field.kind == DIMENSIONS:
        return _read_dimensions(input, f, <list> fields[at], path)
    if f.wire != RLW_WIRE_BYTES:
        return 0
    if field.kind == TEXT:
        fields[at] = _text(input, f, path)
    elif field.kind == DATA:
        fields[at] = PyBytes_FromStringAndSize(<const char *> f.data, f.size)
    elif field.kind == MESSAGES:
        count_item(input, f.at, path)
        item = below(path, NULL)
        item.index = len(<list> fields[at])
        (<list> fields[at]).append(_read(field.sub, input, f.data, f.size, &item))
    elif field.is_in(MAPS):
        return _read_entry(field, input, f, <dict> fields[at], path)
    else:
        note(span, f)
    return 0


cdef object _read(_Message message, Input *input, const uint8_t *data, size_t size,
                  const Step *path):
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Span spans[MOST_FIELDS]
    cdef Step step = below(path, NULL)
    cdef _Field field
    cdef int i
    for i in range(MOST_FIELDS):
        spans[i].count = 0
    fields = _defaults(message)
    rlw_cursor_init(&c, data, size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, path)
        field = <_Field> message.by_number[f.number] if f.number < MOST_NUMBERS else None
        if field is not None:
            step.key = <void *> field.name
            _read_field(field, input, &f, fields, &spans[field.at], &step)
    # Last, because a spec's bounds depend on its shape.
    for field in message.fields:
        if field.kind == MESSAGES or field.kind == DIMENSIONS:
            fields[field.at] = tuple(fields[field.at])
        elif spans[field.at].count:
            step.key = <void *> field.name
            shape = fields[SHAPE_AT] if field.kind == BOUND else ()
            fields[field.at] = _single(field, input, &spans[field.at], field.number, c.end,
                                       shape, &step)
    return message.cls(*fields)


cdef _Field _find(_Choice choice, Input *input, const uint8_t *data, size_t size, Span *out,
                  Step *path):
    """Return the member that is set, or None. Sets `out` to its occurrences, and `path`."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef _Field known, field = None
    out.count = 0
    path[0] = below(NULL, NULL)
    rlw_cursor_init(&c, data, size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, NULL)
        known = <_Field> choice.by_number[f.number] if f.number < MOST_NUMBERS else None
        if known is None or f.wire != RLW_WIRE_BYTES:
            continue
        if known is not field:
            out.count = 0
        field = known
        path.key = <void *> field.name
        note(out, &f)
    return field


cdef uint32_t find_member(bint response, Input *input, const uint8_t *data, size_t size,
                          Span *out) except? 0xFFFFFFFF:
    cdef Step path
    cdef _Field field = _find(_RESPONSE if response else _REQUEST, input, data, size, out, &path)
    return 0 if field is None else field.number


cdef object _decode(_Choice choice, object buffer, object copy, object limits, bint whole=True):
    """Return the payload, or unless `whole` its name; None if there is none."""
    cdef Input input
    cdef Py_buffer view
    cdef size_t size = 0
    cdef Span span
    cdef Step path
    cdef _Field field
    fill_options(&input.tensors, copy, limits)
    open_buffer(&input, buffer, &view, &size)
    try:
        field = _find(choice, &input, input.start, size, &span, &path)
        if field is None or not whole:
            return None if field is None else field.name
        return _single(field, &input, &span, field.number, input.start + size, (), &path)
    finally:
        PyBuffer_Release(&view)


cdef int _check_type(object extension, str url) except -1:
    # The type's name follows the last slash.
    if extension.type_url.rpartition("/")[2] != url.rpartition("/")[2]:
        raise DecodeError(f"expected a message of type {url}, not {quoted(extension.type_url)}")
    return 0


def request_kind(buffer, *, limits=None):
    """Return the name of an EnvironmentRequest's payload, such as ``"step"``, or None.

    Decodes no tensors. Raises what `decode_request` raises.
    """
    return _decode(_REQUEST, buffer, True, limits, False)


def decode_request(buffer, *, copy=True, limits=None):
    """Return the payload of an EnvironmentRequest, or None.

    Repeated occurrences of a field are merged as in protobuf; errors inside have the offset of the
    first one. A known field of another wire type is skipped as an unknown one.

    Args:
        copy: True: arrays are copies. False: they are views of the buffer. None: they are views if
            they are large and aligned.
        limits: `rlwire.limits.DEFAULT` if None.

    Raises:
        DecodeError: malformed bytes; the error has the offset and the path.
        LimitExceeded: the message exceeds one of the limits; nothing of that size was allocated.
    """
    return _decode(_REQUEST, buffer, copy, limits)


def decode_response(buffer, *, copy=True, limits=None):
    """Return the payload of an EnvironmentResponse, or None; see `decode_request`."""
    return _decode(_RESPONSE, buffer, copy, limits)


def decode_property_request(extension, *, copy=True, limits=None):
    """Return the payload of a request of the properties extension, or None.

    Offsets in errors count from the start of the extension's value.
    """
    _check_type(extension, PROPERTY_REQUEST_URL)
    return _decode(_PROPERTY_REQUEST, extension.value, copy, limits)


def decode_property_response(extension, *, copy=True, limits=None):
    """Return the payload of a response of the properties extension, or None."""
    _check_type(extension, PROPERTY_RESPONSE_URL)
    return _decode(_PROPERTY_RESPONSE, extension.value, copy, limits)

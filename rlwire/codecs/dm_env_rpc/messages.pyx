"""dm_env_rpc's messages to bytes and back, with one table of each message's fields.

Each field becomes bytes, because these messages are small. `steps` encodes and decodes steps by
name, and copies their arrays once.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Items
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport ITEM
from rlwire.codecs.dm_env_rpc.tensors cimport (Tensor, fill_options, look, measure, measure_flat,
                                               read_flat, read_text, release, take, tensor_bytes)
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
        self.cls = cls
        self.fields = [_Field(*each) for each in fields]
        self.by_number = [None] * MOST_NUMBERS
        for at, field in enumerate(self.fields):
            field.at = at
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


cdef bytes _varint_field(uint32_t number, uint64_t value):
    cdef uint8_t room[20]
    return room[:rlw_store_varint(rlw_store_varint(room, number << 3), value) - room]


cdef bytes _bytes_field(uint32_t number, bytes content):
    cdef uint8_t head[20]
    cdef uint8_t *end = rlw_store_varint(head, number << 3 | RLW_WIRE_BYTES)
    return head[:rlw_store_varint(end, len(content)) - head] + content


cdef object _not_a(str expected, object value, const Step *path):
    return EncodeError(f"expected {expected}, not {type(value).__qualname__}", path=path_of(path))


cdef bytes _utf8(object text, Maxima *maxima, const Step *path):
    if not isinstance(text, str):
        raise _not_a("str", text, path)
    try:
        encoded = str.encode(text)
    except UnicodeEncodeError as problem:
        raise EncodeError(f"a string is not valid Unicode: {problem}",
                          path=path_of(path)) from None
    if <uint64_t> len(encoded) > maxima.most.string:
        raise LimitExceeded("string", maxima.most.string, len(encoded), path=path_of(path))
    return encoded


cdef bytes _bytes(object value, const Step *path):
    if type(value) is bytes:
        return value
    try:
        return bytes(memoryview(value))
    except (TypeError, BufferError):
        raise _not_a("bytes", value, path) from None


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


cdef bytes _numbers(_Field field, object value, Maxima *maxima, const Step *path):
    """Return the packed numbers of a repeated field."""
    cdef uint8_t room[10]
    cdef uint64_t number
    cdef Step step = below(path, NULL)
    packed = bytearray()
    for item in _iterated(value, path):
        if field.kind == UIDS:
            count_sent(maxima, &step)
            number = uid_of(item, &step)
        else:
            number = <uint64_t> int32_of(item, &step)  # a negative one is sent with all 64 bits
        packed += room[:rlw_store_varint(room, number) - room]
        step.index += 1
    if field.kind == DIMENSIONS and step.index > maxima.most.dims:
        raise LimitExceeded("dims", maxima.most.dims, step.index, path=path_of(path))
    return bytes(packed)


cdef bytes _sent_tensor(_Field field, object value, int kind, Maxima *maxima, const Step *path):
    """Return a Tensor, or a TensorSpec.Value, of this DataType; 0: that of the value."""
    cdef Tensor tensor
    try:
        try:
            if field.kind == BOUND:
                measure_flat(&tensor, value, kind)
            else:
                measure(&tensor, value, kind, maxima.most.dims)
        except (EncodeError, LimitExceeded) as problem:
            raise placed(problem, NULL, path) from None
        maxima.bytes += tensor.sizes.whole
        if maxima.bytes > maxima.most.message:
            raise LimitExceeded("message", maxima.most.message, maxima.bytes, path=path_of(path))
        return tensor_bytes(&tensor)
    finally:
        release(&tensor)


cdef bytes _map(_Field field, object values, Maxima *maxima, const Step *path):
    cdef Step step = below(path, NULL)
    fields = []
    for key, value in _entries(values, path):
        if field.kind == TENSORS_BY_NAME:
            name = _bytes_field(1, _utf8(key, maxima, path))
            step.key = <void *> key
        else:
            step.index = uid_of(key, path)
            name = _varint_field(1, step.index)
        count_sent(maxima, &step)
        if field.sub is None:
            content = _sent_tensor(field, value, 0, maxima, &step)
        else:
            content = _body(field.sub, value, maxima, &step)
        fields.append(_bytes_field(field.number, name + _bytes_field(2, content)))
    return b"".join(fields)


cdef bytes _messages(_Field field, object messages, Maxima *maxima, const Step *path):
    cdef Step step = below(path, NULL)
    fields = []
    for message in _iterated(messages, path):
        count_sent(maxima, &step)
        fields.append(_bytes_field(field.number, _body(field.sub, message, maxima, &step)))
        step.index += 1
    return b"".join(fields)


cdef bytes _sent(_Field field, object message, Maxima *maxima, const Step *path):
    """Return one field of a message; nothing if it has the default value of proto3."""
    cdef int64_t number
    cdef int kind = 0
    cdef bytes content
    cdef Step step = below(path, <void *> field.name)
    value = getattr(message, field.name)
    if field.is_in(VARINTS):
        number = bool(value) if field.kind == FLAG else int32_of(value, &step)
        return _varint_field(field.number, <uint64_t> number) if number else b""
    if field.is_in(MAPS):
        return _map(field, value, maxima, &step)
    if field.kind == MESSAGES:
        return _messages(field, value, maxima, &step)
    if field.kind == MESSAGE:
        return _bytes_field(field.number, _body(field.sub, value, maxima, &step))
    if field.kind == BOUND or field.kind == TENSOR:
        if value is None:
            return b""
        if field.kind == BOUND and not isinstance(value, (np.ndarray, np.generic)):
            kind = <int> int32_of(message.dtype, &step)  # else the bound's own
        return _bytes_field(field.number, _sent_tensor(field, value, kind, maxima, &step))
    if field.kind == TEXT:
        content = _utf8(value, maxima, &step)
    else:
        content = _bytes(value, &step) if field.kind == DATA else _numbers(field, value, maxima, &step)
    return _bytes_field(field.number, content) if content else b""


cdef bytes _body(_Message message, object value, Maxima *maxima, const Step *path):
    cdef _Field field
    if not isinstance(value, message.cls):
        raise _not_a(message.cls.__qualname__, value, path)
    fields = []
    for field in message.fields:
        fields.append(_sent(field, value, maxima, path))
    return b"".join(fields)


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


cdef bytes _encode(_Choice choice, object message, object limits):
    cdef Maxima maxima
    cdef _Field member = _member_of(choice, message)
    cdef Step path = below(NULL, <void *> member.name)
    fill_maxima(&maxima, limits)
    encoded = _bytes_field(member.number, _body(member.sub, message, &maxima, &path))
    if <uint64_t> len(encoded) > maxima.most.message:
        raise LimitExceeded("message", maxima.most.message, len(encoded))
    return encoded


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
    default = message.cls()
    fields = []
    for field in message.fields:
        value = getattr(default, field.name)
        fields.append(list(value) if type(value) is tuple else value)
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

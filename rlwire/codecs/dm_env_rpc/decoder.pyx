"""Bytes to dm_env_rpc's messages. `rlwire.codecs.dm_env_rpc` is the face."""

from cpython.buffer cimport Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport ITEM, afford, key_of, over_budget, wide_size
from rlwire.codecs.dm_env_rpc.messages cimport *
from rlwire.codecs.dm_env_rpc.tensors cimport look, read_flat, take
from rlwire.codecs.dm_env_rpc.wire cimport *
from rlwire.kernels cimport *

import math

from rlwire.codecs.dm_env_rpc import messages
from rlwire.codecs.dm_env_rpc import values
from rlwire.errors import DecodeError, LimitExceeded, quoted

__all__ = [
    "decode_property_request",
    "decode_property_response",
    "decode_request",
    "decode_response",
    "request_kind",
]

cdef _Choice _REQUEST = messages._REQUEST
cdef _Choice _RESPONSE = messages._RESPONSE
cdef _Choice _PROPERTY_REQUEST = messages._PROPERTY_REQUEST
cdef _Choice _PROPERTY_RESPONSE = messages._PROPERTY_RESPONSE

cdef enum:
    SHAPE_AT = 1  # of the shape among a TensorSpec's fields


cdef str _text(Input *input, const rlw_field *f, const Step *path):
    if f.size > input.tensors.string:
        raise LimitExceeded("string", input.tensors.string, f.size,
                            offset=offset_of(input, f.at), path=path_of(path))
    cdef str text
    try:
        text = key_of(f.data, f.size, &input.tensors.budget)
    except UnicodeDecodeError as problem:
        raise DecodeError(f"a string is not UTF-8: {problem.reason}",
                          offset=offset_of(input, f.data + <Py_ssize_t> problem.start),
                          path=path_of(path)) from None
    if text is None:
        raise over_budget(&input.tensors.budget, wide_size(f.data, f.size),
                          offset_of(input, f.at), path_of(path))
    return text


cdef object _tensor(Input *input, const uint8_t *data, size_t size, const Step *path):
    cdef rlw_tensor tensor
    try:
        look(&tensor, data, size, input.start, &input.tensors, "")
    except (DecodeError, LimitExceeded) as problem:
        raise placed(problem, input, path) from None
    if input.discard:
        return None
    count_protos(input, &tensor, data, path)
    try:
        return take(&tensor, input.start, <object> input.source, input.writable, &input.tensors,
                    "")
    except (DecodeError, LimitExceeded) as problem:
        raise placed(problem, input, path) from None


cdef object _bound(Input *input, const uint8_t *data, size_t size, tuple shape,
                   const Step *path):
    """A TensorSpec.Value: None, one scalar, an array of `shape`, or what it is, flat."""
    cdef int kind = 0
    pay(input, ITEM, data, path)  # two arrays, one a view of the other
    try:
        flat = read_flat(data, size, input.start, &input.tensors, "", &kind)
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
    cdef uint64_t size = f.value
    if f.wire != RLW_WIRE_VARINT:
        expect(input, f, RLW_WIRE_BYTES, path)
        rlw_cursor_init(&c, f.data, f.size)
    else:
        rlw_cursor_init(&c, NULL, 0)
    while f.wire == RLW_WIRE_VARINT or c.at < c.end:
        if f.wire != RLW_WIRE_VARINT and rlw_take_varint(&c, &size) != RLW_OK:
            fault(input, &c.fault, path)
        if <uint32_t> len(shape) >= input.tensors.dims:
            raise LimitExceeded("dims", input.tensors.dims, len(shape) + 1,
                                offset=offset_of(input, f.at), path=path_of(path))
        shape.append(<int32_t> <uint32_t> size)
        if f.wire == RLW_WIRE_VARINT:
            break
    return 0


cdef tuple _DATA_TYPES = tuple(values.DataType)


cdef object _data_type(uint64_t value):
    cdef int32_t number = <int32_t> <uint32_t> value
    return _DATA_TYPES[number] if 0 <= number < len(_DATA_TYPES) else number


cdef object _varint(_Field field, const rlw_field *f):
    if field.kind == FLAG:
        return f.value != 0
    if field.kind == STATE:
        return read_state(f.value)
    if field.kind == DATA_TYPE:
        return _data_type(f.value)
    return <int32_t> <uint32_t> f.value


cdef int _read_entry(_Field field, Input *input, const rlw_field *entry, dict entries,
                     const Step *path) except -1:
    """An entry of a map; a later one with the same key replaces it."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef Span span
    cdef Step step
    cdef bint named = field.kind == TENSORS_BY_NAME
    key = "" if named else 0
    span.count = 0
    step.parent = path
    step.name = NULL
    step.index = 0
    count_item(input, entry.at, path)
    if not named:
        count_key(input, entry.at, path)
    rlw_cursor_init(&c, entry.data, entry.size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, path)
        if f.number == 1:
            expect(input, &f, RLW_WIRE_BYTES if named else RLW_WIRE_VARINT, path)
            if named:
                key = _text(input, &f, path)
            else:
                step.index = f.value
                key = f.value
        elif f.number == 2:
            expect(input, &f, RLW_WIRE_BYTES, path)
            note(&span, &f)
    if named:
        step.name = <void *> key
        if input.accepts != NULL and not (<object> input.accepts)(key):
            entries[key] = None
            return 0
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
    """A singular sub-message, of all its occurrences before `end`."""
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
        elif field.kind == TEXT:
            fresh.append("")
        elif field.kind == DATA:
            fresh.append(b"")
        elif field.kind == STATE:
            fresh.append(read_state(0))
        elif field.kind == DATA_TYPE:
            fresh.append(_data_type(0))
        elif field.kind == FLAG:
            fresh.append(False)
        elif field.kind == INT32:
            fresh.append(0)
        elif field.kind == MESSAGE:
            fresh.append(field.sub.cls())
        else:
            fresh.append(None)
    return fresh


cdef int _read_field(_Field field, Input *input, const rlw_field *f, list fields, Span *span,
                     const Step *path) except -1:
    cdef Step item
    at = field.at
    if field.is_in(VARINTS):
        expect(input, f, RLW_WIRE_VARINT, path)
        fields[at] = _varint(field, f)
        return 0
    if field.kind == UIDS:
        return read_uids(input, f, <list> fields[at], path)
    if field.kind == DIMENSIONS:
        return _read_dimensions(input, f, <list> fields[at], path)
    expect(input, f, RLW_WIRE_BYTES, path)
    if field.kind == TEXT:
        fields[at] = _text(input, f, path)
    elif field.kind == DATA:
        fields[at] = PyBytes_FromStringAndSize(<const char *> f.data, f.size)
    elif field.kind == MESSAGES:
        count_item(input, f.at, path)
        item.parent = path
        item.name = NULL
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
    cdef Step step
    cdef _Field field
    cdef int i
    for i in range(MOST_FIELDS):
        spans[i].count = 0
    fields = _defaults(message)
    step.parent = path
    step.index = 0
    rlw_cursor_init(&c, data, size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, path)
        field = <_Field> message.by_number[f.number] if f.number < MOST_NUMBERS else None
        if field is not None:
            step.name = <void *> field.name
            _read_field(field, input, &f, fields, &spans[field.at], &step)
    # Last, because a spec's bounds depend on its shape.
    for field in message.fields:
        if field.kind == MESSAGES or field.kind == DIMENSIONS:
            fields[field.at] = tuple(fields[field.at])
        elif spans[field.at].count:
            step.name = <void *> field.name
            shape = fields[SHAPE_AT] if field.kind == BOUND else ()
            fields[field.at] = _single(field, input, &spans[field.at], field.number, c.end,
                                       shape, &step)
    return message.cls(*fields)


cdef _Field _find(_Choice choice, Input *input, const uint8_t *data, size_t size, Span *out,
                  Step *path):
    """The member that is set, or None, and its occurrences; `path` becomes that of the member."""
    cdef rlw_cursor c
    cdef rlw_field f
    cdef _Field known, field = None
    out.count = 0
    path.parent = NULL
    path.index = 0
    rlw_cursor_init(&c, data, size)
    while c.at < c.end:
        if rlw_take_field(&c, &f) != RLW_OK:
            fault(input, &c.fault, NULL)
        known = <_Field> choice.by_number[f.number] if f.number < MOST_NUMBERS else None
        if known is None:
            continue
        if field is not None and known is not field:
            # Another member takes its place, but protobuf refuses what it cannot parse.
            input.discard = True
            _single(field, input, out, field.number, f.at, (), path)
            input.discard = False
            out.count = 0
        field = known
        path.name = <void *> field.name
        expect(input, &f, RLW_WIRE_BYTES, path)
        note(out, &f)
    return field


cdef uint32_t find_member(bint response, Input *input, const uint8_t *data, size_t size,
                          Span *out) except? 0xFFFFFFFF:
    cdef Step path
    cdef _Field field = _find(_RESPONSE if response else _REQUEST, input, data, size, out, &path)
    return 0 if field is None else field.number


cdef object _decode(_Choice choice, object buffer, object copy, object broadcast, object limits,
                    object accepts=None):
    cdef Input input
    cdef Py_buffer view
    cdef size_t size = 0
    cdef Span span
    cdef Step path
    cdef _Field field
    fill_input(&input, copy, broadcast, limits)
    if accepts is not None:
        input.accepts = <PyObject *> accepts
    open_buffer(&input, buffer, &view, &size)
    try:
        field = _find(choice, &input, input.start, size, &span, &path)
        if field is None:
            return None
        return _single(field, &input, &span, field.number, input.start + size, (), &path)
    finally:
        close_buffer(&view)


cdef int _check_type(object extension, str url) except -1:
    # What stands before the last slash is no part of the type's name.
    if extension.type_url.rpartition("/")[2] != url.rpartition("/")[2]:
        raise DecodeError(f"expected a message of type {url}, not {quoted(extension.type_url)}")
    return 0


def request_kind(buffer, *, limits=None):
    """Return which payload of an EnvironmentRequest is set, such as ``"step"``; None for none.

    Args:
        buffer: the whole message, of which no tensor is made.
        limits: maxima; `rlwire.limits.DEFAULT` when None.

    Raises:
        DecodeError: the bytes are no such message.
        LimitExceeded: the message passes one of the limits.
    """
    cdef Input input
    cdef Py_buffer view
    cdef size_t size = 0
    cdef Span span
    cdef Step path
    cdef _Field field
    fill_input(&input, True, "full", limits)
    open_buffer(&input, buffer, &view, &size)
    try:
        field = _find(_REQUEST, &input, input.start, size, &span, &path)
        return None if field is None else field.name
    finally:
        close_buffer(&view)


def decode_request(buffer, *, copy=True, broadcast="full", limits=None, accepts=None):
    """Return the payload of an EnvironmentRequest, or None where none is set.

    As protobuf reads it, but for known fields of another wire type, which are errors here. What
    protobuf merges because a field comes twice is merged; errors inside such a field name the
    offset of its first occurrence.

    Args:
        buffer: the whole message.
        copy: whether arrays are copies (True), views of the buffer (False), or views where they
            are large and aligned (None).
        broadcast: ``"full"``, or ``"view"`` for read-only arrays without memory of their own
            where one element stands for all.
        limits: maxima; `rlwire.limits.DEFAULT` when None.
        accepts: called with the name of each setting before its tensor is looked at; of one for
            which it returns False there is no value, but None. By default all are decoded.

    Raises:
        DecodeError: the bytes are no such message; it names the offset and the path.
        LimitExceeded: the message passes one of the limits; nothing of that size was made.
    """
    return _decode(_REQUEST, buffer, copy, broadcast, limits, accepts)


def decode_response(buffer, *, copy=True, broadcast="full", limits=None):
    """Return the payload of an EnvironmentResponse, or None; see `decode_request`."""
    return _decode(_RESPONSE, buffer, copy, broadcast, limits)


def decode_property_request(extension, *, copy=True, broadcast="full", limits=None):
    """Return the payload of a request of the properties extension, or None where none is set.

    Args:
        extension: an `AnyMessage`. Offsets in errors count from the beginning of its value.
        copy: as `decode_request`.
        broadcast: as `decode_request`.
        limits: as `decode_request`.

    Raises:
        DecodeError: it is no such message, by its type URL or by its bytes.
        LimitExceeded: as `decode_request`.
    """
    _check_type(extension, messages.PROPERTY_REQUEST_URL)
    return _decode(_PROPERTY_REQUEST, extension.value, copy, broadcast, limits)


def decode_property_response(extension, *, copy=True, broadcast="full", limits=None):
    """Return the payload of a response of the properties extension, or None."""
    _check_type(extension, messages.PROPERTY_RESPONSE_URL)
    return _decode(_PROPERTY_RESPONSE, extension.value, copy, broadcast, limits)

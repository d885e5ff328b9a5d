"""The dtypes of msgpack's arrays: their names, structured ones, those of ml_dtypes.

What comes from a wire is checked here piece by piece; no text from there reaches NumPy's own
parser of dtypes, but for the dates and strings that the grammar in dtype.h has passed. Not here:
the maps that arrays are on the wire, include/rlwire/msgpack_array.h.
"""

cimport numpy as cnp
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t

from rlwire.codecs._arrays cimport dtype_of
from rlwire.kernels cimport rlw_dtype, rlw_dtype_parse, rlw_text

import sys
from importlib import import_module

import numpy as np

from rlwire.errors import EncodeError, optional, quoted

cnp.import_array()

cdef enum:
    MOST_FIELDS = 4096  # of a structured dtype, over all its levels
    MOST_NESTED = 16    # structures inside each other
    MOST_BYTES = 0x7FFFFFFF  # of an element, which NumPy counts in 31 bits

# dtype.str costs a microsecond; these are asked for with each array.
cdef list _NATIVE_NAMES = [None] * 32
for _number in (*range(cnp.NPY_BOOL, cnp.NPY_CLONGDOUBLE + 1), cnp.NPY_FLOAT16):
    if _number != cnp.NPY_OBJECT:
        _NATIVE_NAMES[_number] = cnp.PyArray_DescrFromType(_number).str

# ml_dtypes's, which NumPy knows by these names once ml_dtypes is imported. Their dtype.str is
# "<V2" or, worse, "<f1", so a reader that got it would have bytes without a meaning.
cdef dict _EXTENDED = {
    "bfloat16": 2,
    "float8_e3m4": 1,
    "float8_e4m3": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}


cdef str wire_name(cnp.dtype descr):
    """The text that stands for a dtype: what both packages write, or a name of ml_dtypes.

    None for a structured dtype or bytes without a meaning (kind V), which have none.
    """
    cdef int number = descr.type_num
    cdef char order = descr.byteorder
    if 0 <= number < 32 and order != c">" and order != c"<":
        name = _NATIVE_NAMES[number]
        if name is not None:
            return <str> name
    if descr.hasobject:
        raise EncodeError(
            f"an array of dtype {descr} cannot be sent: objects travel as a pickle, which can run "
            f"any code when it is loaded"
        )
    if number > cnp.NPY_FLOAT16:
        if descr.name in _EXTENDED and (<object> descr).type.__module__ == "ml_dtypes":
            return <str> descr.name
    elif descr.itemsize and descr.kind in "biufcSUmM":
        return <str> descr.str
    elif descr.itemsize and descr.kind == "V":
        return None
    raise EncodeError(
        f"an array of dtype {descr} cannot be sent: expected numbers, booleans, dates, "
        f"fixed-length strings or a structure of these"
    )


cdef cnp.dtype named_dtype(str name):
    """The dtype of ml_dtypes with that name; None when there is none."""
    cdef cnp.dtype descr
    if name not in _EXTENDED:
        return None
    ml_dtypes = sys.modules.get("ml_dtypes")
    if ml_dtypes is None:
        with optional("ml_dtypes", "ml"):
            ml_dtypes = import_module("ml_dtypes")
    kind = getattr(ml_dtypes, name, None)  # older versions have fewer
    if kind is None:
        return None
    descr = np.dtype(kind)
    return descr if descr.itemsize == _EXTENDED[name] else None


cdef object _lists(object value):
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


cdef list structured_fields(cnp.dtype descr):
    """`dtype.descr` of a dtype of kind V, which msgpack-numpy writes: [[name, type[, shape]], ...].

    There is no such list for fields that overlap or are out of order. Of ml_dtypes's kinds it would
    make bytes without a meaning.
    """
    _refuse_extended(descr)
    try:
        return <list> _lists(descr.descr)
    except ValueError as problem:
        raise EncodeError(f"an array of dtype {descr} cannot be sent: {problem}") from None


cdef int _refuse_extended(object descr) except -1:
    # Untyped: of a cnp.dtype, `names` and `fields` must not be asked for where there are none.
    base = descr.base
    if base.names is not None:
        for field in base.fields.values():
            _refuse_extended(field[0])
    elif base.num > cnp.NPY_FLOAT16:
        raise EncodeError(f"a structure with a field of dtype {base} cannot be sent")
    return 0


# --- structured dtypes from a wire; ValueError says what is wrong


cdef str _as_text(object value):
    if type(value) is bytes:
        value = (<bytes> value).decode("utf-8")  # UnicodeDecodeError is a ValueError
    if type(value) is not str:
        raise ValueError(f"a text expected, not {type(value).__name__}")
    return <str> value


cdef cnp.dtype _plain(str text):
    """A dtype that dtype.h's grammar knows, or "|V8": bytes without a meaning."""
    cdef bytes data = text.encode("utf-8")
    cdef rlw_dtype parsed
    cdef rlw_text name
    cdef cnp.dtype descr = None
    name.data = <const uint8_t *> PyBytes_AS_STRING(data)
    name.size = len(data)
    if rlw_dtype_parse(name.data, name.size, &parsed):
        descr = dtype_of(&parsed, name)
    elif data[:2] == b"|V" and data[2:].isdigit() and 0 < int(data[2:12]) <= MOST_BYTES:
        if len(data) <= 12:
            descr = np.dtype((np.void, int(data[2:])))
    if descr is None:
        raise ValueError(f"{quoted(text)} is not a plain dtype")
    return descr


cdef tuple _dimensions(object shape):
    if type(shape) is int:
        shape = [shape]
    if type(shape) is not list or len(shape) > 32:
        raise ValueError("the shape of a field is not a list of at most 32 integers")
    total = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError("the shape of a field is not of integers from 0 on")
        total *= max(size, 1)
        if total > MOST_BYTES:
            raise ValueError("a field is too large")
    return tuple(shape)


cdef cnp.dtype _structure(list fields, int level, list count):
    cdef object descr  # see _refuse_extended()
    names, formats, offsets, titles, at = [], [], [], [], 0
    if level > MOST_NESTED:
        raise ValueError(f"more than {MOST_NESTED} structures inside each other")
    count[0] += len(fields)
    if count[0] > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS} fields")
    for field in fields:
        if type(field) is not list or not 2 <= len(field) <= 3:
            raise ValueError("a field is not a list of a name, a dtype and perhaps a shape")
        name, kind = field[0], field[1]
        title = None
        if type(name) is list:  # (title, name)
            if len(name) != 2:
                raise ValueError("a field's name is not a text, nor a title and a name")
            title, name = _as_text(name[0]), name[1]
        name = _as_text(name)
        if type(kind) is list:
            descr = _structure(kind, level + 1, count)
        else:
            descr = _plain(_as_text(kind))
        shape = _dimensions(field[2]) if len(field) == 3 else ()
        size = descr.itemsize
        for dimension in shape:
            size *= dimension
        # What dtype.descr writes for the bytes between two fields.
        padding = name == "" and title is None and descr.kind == "V" and descr.names is None
        if not padding:
            names.append(name)
            titles.append(title)
            formats.append((descr, shape) if shape else descr)
            offsets.append(at)
        at += size
        if at > MOST_BYTES:
            raise ValueError("an element is too large")
    if not names and len(fields) == 1 and len(fields[0]) == 2:
        return _plain(_as_text(fields[0][1]))  # bytes without a meaning, not a structure
    if at == 0:
        raise ValueError("an element of no bytes")
    described = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    if titles.count(None) != len(titles):
        described["titles"] = titles
    return np.dtype(described)


cdef cnp.dtype structured_dtype(list fields):
    """The dtype that `dtype.descr`, read from a wire, describes: its inverse."""
    return _structure(fields, 1, [0])

"""JSON to values, lists of numbers as ndarrays where asked for; behind `rlwire.codecs.json`.

Plain values come from `reader`. Here: paths that name arrays, options.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from libc.stdint cimport uint8_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._arrays cimport number_kind
from rlwire.codecs._glue cimport ITEM, afford, made_with
from rlwire.codecs.json.reader cimport *
from rlwire.codecs.json.writer cimport special_of
from rlwire.kernels cimport *

from collections.abc import Mapping

import numpy as np

from rlwire.errors import DecodeError
from rlwire.limits import checked

cnp.import_array()

__all__ = ["Decoder", "decode"]

cdef cnp.dtype _BOOL = np.dtype(np.bool_)
cdef cnp.dtype _DOUBLE = np.dtype(np.float64)
_DTYPES = {
    RLW_JSON_FALSE: _BOOL, RLW_JSON_TRUE: _BOOL, RLW_JSON_INTEGER: np.dtype(np.int64),
    RLW_JSON_NATURAL: np.dtype(np.uint64), RLW_JSON_BIG: _DOUBLE, RLW_JSON_REAL: _DOUBLE,
    RLW_JSON_NULL: _DOUBLE,
}
_REPEATED = ("refuse", "first", "last")  # in the order of Repeated


# --- paths


cdef class _Place:
    """A place in values: what stands there, and what below it."""

    cdef dict names     # of an object's members
    cdef _Place others  # any other member, and the items of a list
    cdef bint is_array
    cdef cnp.dtype dtype  # None: int64, uint64 or float64, as the numbers need

    def __cinit__(self):
        self.names = {}

    cdef _Place at(self, str name):
        place = self.names.get(name)
        return self.others if place is None else place

    cdef _Place below(self, object step):
        """The place one step further, made if it is not there."""
        if step is ...:
            if self.others is None:
                self.others = _Place()
            return self.others
        place = self.names.get(step)
        if place is None:
            place = self.names[step] = _Place()
        return place

    cdef int name(self, object path, object dtype) except -1:
        self.is_array = True
        if dtype is None:
            return 0
        self.dtype = np.dtype(dtype)
        if number_kind(self.dtype) < 0:
            raise TypeError(f"no array of dtype {self.dtype} can be made of numbers")
        return 0

    cdef int settle(self, object path) except -1:
        """Members that have a name get what is said of all of them, too."""
        if self.is_array and (self.names or self.others is not None):
            raise ValueError(f"arrays: what stands below an array cannot be named: {path}")
        for step, place in self.names.items():
            if self.others is not None:
                (<_Place> place).add(self.others)
            (<_Place> place).settle(f"{path}.{step}")
        if self.others is not None:
            self.others.settle(f"{path}.*")
        return 0

    cdef int add(self, _Place other) except -1:
        if other.is_array and not self.is_array:
            self.is_array, self.dtype = True, other.dtype
        for step, place in other.names.items():
            (<_Place> self.below(step)).add(place)
        if other.others is not None:
            self.below(...).add(other.others)
        return 0


cdef tuple _steps(object path):
    """The steps of a path: names, and Ellipsis for any name or index."""
    if isinstance(path, str):
        path = tuple([... if step == "*" else step for step in path.split(".")]) if path else ()
    if type(path) is not tuple or not all([step is ... or isinstance(step, str) for step in path]):
        raise TypeError(f"arrays: a path is a str or a tuple of str and ..., not {path!r}")
    return path


cdef _Place _places(object arrays):
    root = _Place()
    for path, dtype in arrays.items():
        place = root
        for step in _steps(path):
            place = place.below(step)
        place.name(path, dtype)
    root.settle("$")
    return root


# --- values


cdef object _any_array(JsonReader *r):
    """A list of numbers that comes next, of a dtype that fits; of booleans too."""
    cdef const uint8_t *first
    array = read_json_numbers(r)
    if array is not None:
        return array
    first = r.json.c.at
    while first < r.json.c.end and first[0] in b"[ \t\r\n":
        first += 1
    words = first < r.json.c.end and (first[0] == c"t" or first[0] == c"f")
    return read_json_array(r, _BOOL if words else _DOUBLE)


cdef object _array(JsonReader *r, _Place place, const rlw_json_value *v):
    """The numbers at a place that was named."""
    cdef rlw_json_reader inside
    cdef uint64_t left = r.budget.left
    if v.kind == RLW_JSON_NULL and r.json.special != RLW_JSON_AS_NULL or (
            v.kind == RLW_JSON_STRING or v.kind == RLW_JSON_OBJECT):
        json_wrong_at(r, v.at, "no number, and no list of numbers, where one was to be")
    if v.kind != RLW_JSON_LIST:
        r.json.c.at = v.at
        return read_json_array(r, place.dtype if place.dtype is not None else _DTYPES[v.kind])
    inside = r.json
    undo_json(r, v)
    array = _any_array(r) if place.dtype is None else read_json_array(r, place.dtype)
    if array is not None:
        return array
    r.json = inside
    r.budget.left = left  # that array is gone
    return json_value(r, v)


cdef list _list(JsonReader *r, _Place place):
    cdef list items = []
    cdef int more = 1
    while more:
        if not afford(&r.budget, ITEM):
            json_over(r, r.json.c.at, ITEM)
        items.append(_value(r, place))
        if rlw_json_next(&r.json, c"]", &more) != RLW_OK:
            json_wrong(r)
    return items


cdef dict _object(JsonReader *r, _Place place):
    cdef dict members = {}
    cdef rlw_json_text name
    cdef int more = 1
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        if not afford(&r.budget, ITEM):
            json_over(r, r.json.c.at, ITEM)
        key = json_key(r, &name)
        put_member(r, members, key, _value(r, place.at(key)), &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    return members


cdef object _value(JsonReader *r, _Place place):
    """The next value, which stands at a place."""
    cdef rlw_json_value v
    if place is None:
        return read_json(r)
    if rlw_json_read(&r.json, &v) != RLW_OK:
        json_wrong(r)
    if place.is_array:
        return _array(r, place, &v)
    if v.kind == RLW_JSON_OBJECT and not v.empty:
        return _object(r, place)
    if v.kind == RLW_JSON_LIST and not v.empty and place.others is not None:
        return _list(r, place.others)
    return json_value(r, &v)


# --- options


cdef class Decoder:
    """Reads values from JSON texts; keeps nothing between calls, so that threads can share it.

    Attributes:
        arrays: which lists of numbers become ndarrays. None: none do. ``"all"``: every list that
            has numbers and makes an array, of int64, of uint64 where that is needed, or of float64.
            A mapping from paths to dtypes: those alone, and what stands there must be numbers
            of that dtype: a list, nested or not, or one number, which makes an array without
            dimensions. A dtype of None is one that fits, as with ``"all"``, or bool. A path is
            names with dots between them, and ``*`` for any name or index: ``"observation"``,
            ``"steps.*.obs"``; the empty one is the whole text. For names with dots or stars it
            is a tuple, with ``...`` for any: ``("steps", ..., "obs.rgb")``. The exact name goes
            before ``*``. A path that the text does not have is no error.
        ragged: what becomes of numbers in lists that differ in length or depth, where they were
            to be an array: ``"refuse"``, or ``"lists"``: they stay lists.
        repeated: what becomes of members of one object with the same name: ``"refuse"``,
            ``"first"`` or ``"last"``, which stays.
        nan: what stands for numbers that JSON does not have: ``"refuse"``, nothing; ``"null"``,
            null where a number of a floating array is expected, for NaN; ``"words"``, ``NaN``,
            ``Infinity`` and ``-Infinity`` anywhere, as Python's json writes them.
        big_integers: read integers of any size, up to 4,300 digits, not only those of 64 bits.
        limits: `rlwire.limits.Limits`; ``message``, ``depth``, ``items`` and ``string`` count, of
            arrays ``dims`` and ``expanded`` instead of ``depth`` and ``items``.
    """

    cdef _Place _root
    cdef bint _all
    cdef bint _ragged
    cdef Repeated _repeated
    cdef rlw_json_special _special
    cdef readonly object arrays
    cdef readonly object ragged
    cdef readonly object repeated
    cdef readonly object nan
    cdef readonly bint big_integers
    cdef readonly object limits

    def __init__(self, *, arrays=None, ragged="refuse", repeated="refuse", nan="refuse",
                 bint big_integers=False, limits=None):
        self._root = None
        self._all = False
        if isinstance(arrays, Mapping):
            self._root = _places(arrays)
            arrays = dict(arrays)
        elif arrays is not None:
            if not (isinstance(arrays, str) and arrays == "all"):
                raise TypeError(f"arrays must be None, 'all' or a mapping from paths to dtypes, "
                                f"not {arrays!r}")
            self._all = True
        if ragged not in ("refuse", "lists"):
            raise ValueError(f"ragged must be 'refuse' or 'lists', not {ragged!r}")
        if repeated not in _REPEATED:
            raise ValueError(f"repeated must be 'refuse', 'first' or 'last', not {repeated!r}")
        self.arrays, self.ragged, self.repeated, self.nan = arrays, ragged, repeated, nan
        self._ragged = ragged == "lists"
        self._repeated = <Repeated> <int> _REPEATED.index(repeated)
        self._special = special_of(nan)
        self.big_integers = big_integers
        self.limits = checked(limits)

    def decode(self, buffer):
        """Return the value in a JSON text.

        Args:
            buffer: UTF-8 in any buffer, or a str.

        Raises:
            DecodeError: not JSON by RFC 8259, or something that the options refuse; it says where.
            LimitExceeded: the text passes one of the limits.
        """
        cdef JsonReader r
        cdef Py_buffer view
        open_json(buffer, &view)
        try:
            begin_json(&r, <const uint8_t *> view.buf, <size_t> view.len, self.limits)
            r.big_integers = self.big_integers
            r.repeated = self._repeated
            r.numbers, r.ragged = self._all, self._ragged
            r.json.special = self._special
            value = _value(&r, self._root)
            if rlw_json_end(&r.json) != RLW_OK:
                json_wrong(&r)
            return value
        finally:
            PyBuffer_Release(&view)


cdef Decoder _PLAIN = Decoder()
cdef Decoder _ALL = Decoder(arrays="all")


def decode(buffer, *, arrays=None, **options):
    """Return the value in a JSON text.

    A `Decoder` that is made once looks at its options once.

    Args:
        buffer: UTF-8 in any buffer, or a str.
        arrays: which lists of numbers become ndarrays: see `Decoder`.
        options: its others.

    Raises:
        DecodeError: not JSON by RFC 8259, or something that the options refuse; it says where.
        LimitExceeded: the text passes one of the limits.
    """
    if not options:
        if arrays is None:
            return _PLAIN.decode(buffer)
        if type(arrays) is str and arrays == "all":
            return _ALL.decode(buffer)
    options["arrays"] = arrays
    return (<Decoder> made_with(Decoder, options)).decode(buffer)

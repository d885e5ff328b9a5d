"""What msgpack's encoder and decoder share: their options; where in a message a byte stands."""

from libc.stdint cimport uint8_t, uint64_t

from rlwire.kernels cimport *


cdef void fill_limits(rlw_msgpack_limits *out, limits) except *:
    """Those of `Limits`; sizes of one value, which have 32 bits on the wire, are without more."""
    out.depth = limits.depth
    out.items = limits.items
    out.string = min(limits.string, 0xFFFFFFFF)
    out.binary = out.ext = out.array = out.map = 0xFFFFFFFF
    out.dims = limits.dims


cdef object check_hook(str name, hook):
    """A function that the user gives, or None."""
    if hook is not None and not callable(hook):
        raise TypeError(f"{name} must be callable, not {type(hook).__qualname__}")
    return hook

cdef str path_to(const uint8_t *data, size_t size, const uint8_t *at):
    """`$.state[3]`, where in the value at `data` the byte at `at` stands.

    Found by reading the value again up to there, so that decoding keeps no account of it.
    """
    cdef rlw_msgpack_limits unlimited
    cdef rlw_msgpack_reader r
    cdef rlw_msgpack_value v
    unlimited.depth = unlimited.items = unlimited.string = unlimited.binary = <uint64_t> -1
    unlimited.ext = unlimited.array = unlimited.map = unlimited.dims = <uint64_t> -1
    rlw_msgpack_reader_init(&r, data, size, &unlimited)
    opened = []  # of each open array or map: [is it a map, values left, values read, key]
    while rlw_msgpack_read(&r, &v) == RLW_OK:
        if r.c.at > at or v.at >= at:
            break
        if opened:
            top = opened[len(opened) - 1]
            if top[0] and top[2] % 2 == 0:
                top[3] = _key_shown(&v)
        if v.kind >= RLW_MSGPACK_ARRAY:
            opened.append([v.kind == RLW_MSGPACK_MAP,
                           v.size * (2 if v.kind == RLW_MSGPACK_MAP else 1), 0, ""])
        else:
            _count_value(opened)
        while opened and opened[len(opened) - 1][1] == 0:
            opened.pop()
            _count_value(opened)
    steps = ["$"]
    for is_map, _, read, key in opened:
        if not is_map:
            steps.append(f"[{read}]")
        elif read % 2:  # else it is the key itself
            steps.append(key)
    return "".join(steps)


cdef int _count_value(list opened) except -1:
    if opened:
        top = opened[len(opened) - 1]
        top[1] -= 1
        top[2] += 1
    return 0


cdef str short_text(const rlw_msgpack_value *v):
    """The beginning of a text, for an error."""
    cdef size_t size = <size_t> v.size if v.size < 100 else 100
    return v.data[:size].decode("utf-8", "replace")


cdef str _key_shown(const rlw_msgpack_value *v):
    if v.kind == RLW_MSGPACK_STRING:
        return "." + short_text(v)
    if v.kind == RLW_MSGPACK_BINARY:
        return f"[b{short_text(v)!r}]"
    if v.kind == RLW_MSGPACK_INTEGER:
        return f"[{v.integer}]"
    return "[?]"

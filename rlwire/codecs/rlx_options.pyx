"""What RLX's encoder and decoder share: their options."""

from libc.stdint cimport uint64_t

from rlwire.kernels cimport rlw_rlx_limits

from rlwire.limits import DEFAULT, Limits


cdef int fill_limits(rlw_rlx_limits *out, limits, uint64_t *message) except -1:
    if limits is None:
        limits = DEFAULT
    elif not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    # Counts and sizes have 32 bits on the wire.
    out.items = min(limits.items, 0xFFFFFFFF)
    out.string = min(limits.string, 0xFFFFFFFF)
    out.pixels = min(limits.pixels, 0xFFFFFFFF)
    out.depth = limits.depth
    out.dims = limits.dims
    message[0] = limits.message
    return 0


cdef str check_dialect(dialect):
    if dialect not in ("relaax", "readme"):
        raise ValueError(f"dialect must be 'relaax' or 'readme', not {dialect!r}")
    return dialect

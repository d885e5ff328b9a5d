from libc.stdint cimport uint8_t, uint32_t

from rlwire.codecs.dm_env_rpc.wire cimport Input, Span

# Returns the field number of the member that is set in an EnvironmentRequest or
# EnvironmentResponse, 0 for none, and sets `out` to its occurrences.
cdef uint32_t find_member(bint response, Input *input, const uint8_t *data, size_t size,
                          Span *out) except? 0xFFFFFFFF

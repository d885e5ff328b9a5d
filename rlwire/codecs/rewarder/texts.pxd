from libc.stdint cimport int64_t

cpdef bytes with_id(bytes text, int64_t number)
cpdef bytes write_text(int code, number, sent_at, episode_id, tuple values)

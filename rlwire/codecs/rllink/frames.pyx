"""RLlink's frames: their size, and messages with the episodes of rlwire's own ends.

The functions for these return None for any other message. It is then encoded or decoded from a map,
with the same results.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint8_t

cimport numpy as cnp

from rlwire.codecs._glue cimport open_range
from rlwire.codecs._output cimport Output, close_output, open_output, output_parts, output_size, put_ok
from rlwire.codecs.msgpack.encoder cimport Encoder
from rlwire.kernels cimport (rlw_cursor, rlw_left, rlw_msgpack_put_array_head, rlw_msgpack_put_integer,
                             rlw_msgpack_put_map_head, rlw_put)

from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted

cnp.import_array()

HEAD = 8
"""Bytes before a body: its length in ASCII digits, zero padded."""

FRAME_MAXIMUM = HEAD + 99_999_999
"""Bytes of the longest frame that eight digits can express."""

cdef enum:
    DIGITS = 8
    MOST = 99999999
    DEPTH = 8  # more than a plain message's levels


cpdef Py_ssize_t frame_size(
    object buffer, Py_ssize_t start, Py_ssize_t end, object maximum=FRAME_MAXIMUM,
    str limit="received",
) except -1:
    """Return the size of the frame at ``buffer[start:end]``; 0 if it needs more bytes.

    `maximum` is the longest body in bytes, `limit` its name in errors.

    Raises:
        DecodeError: the length is not eight digits, or 0.
        LimitExceeded: the body is longer than `maximum`.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef Py_ssize_t have, i = 0, size = 0
    cdef int digit = 0
    open_range(buffer, start, end, &view, &c)
    have = min(<Py_ssize_t> rlw_left(&c), DIGITS)
    for i in range(have):
        digit = c.at[i] - c"0"
        if not 0 <= digit <= 9:
            break
        size = 10 * size + digit
    PyBuffer_Release(&view)
    if have and not 0 <= digit <= 9:
        head = bytes(buffer[start : start + have])
        raise DecodeError(
            f"a frame must start with {HEAD} digits, not {quoted(head)}", offset=start + i
        )
    if have < DIGITS:
        return 0
    if size > maximum:
        raise LimitExceeded(limit, maximum, size, offset=start)
    if not size:
        raise DecodeError("the body is empty, so it has no type", offset=start)
    return DIGITS + size


cdef int _write_head(uint8_t *head, size_t size) except -1:
    cdef int i
    if size > MOST:
        raise LimitExceeded("RLlink's length", MOST, size, advice="send fewer steps at once")
    for i in range(DIGITS - 1, -1, -1):
        head[i] = c"0" + <uint8_t> (size % 10)
        size //= 10
    return 0


def framed(bytes body not None) -> bytes:
    """Return the frame of a body."""
    cdef uint8_t head[DIGITS]
    _write_head(head, len(body))
    return head[:DIGITS] + body


cdef inline bint _has_rows(object column, Py_ssize_t count) noexcept:
    return (
        type(column) is cnp.ndarray
        and cnp.PyArray_NDIM(<cnp.ndarray> column) > 0
        and cnp.PyArray_DIM(<cnp.ndarray> column, 0) == count
    )


cdef inline bint _have_rows(dict columns, Py_ssize_t count) noexcept:
    cdef PyObject *name = NULL
    cdef PyObject *column = NULL
    cdef Py_ssize_t at = 0
    while PyDict_Next(columns, &at, &name, &column):
        if not _has_rows(<object> column, count):
            return False
    return True


cdef class FrameEncoder(Encoder):
    """Encodes a body's map to a whole frame."""

    cdef int write(self, Output *out, object body) except -1:
        self._begin(out)
        Encoder.write(self, out, body)
        return self._end(out)

    cdef int _begin(self, Output *out) except -1:
        put_ok(rlw_put(&out.writer, b"00000000", DIGITS))
        out.start = DIGITS
        return 0

    cdef int _end(self, Output *out) except -1:
        _write_head(out.writer.start, output_size(out))
        out.start = 0
        return 0

    cpdef list episodes_parts(self, str name, object message, type kind):
        """Return the buffers of an `Episodes` with brief episodes; None if a value is not plain.

        Plain are columns of ndarrays, of the right lengths, without infos and custom data.
        """
        cdef Output out
        open_output(&out)
        try:
            return output_parts(&out) if self._put_episodes(&out, name, message, kind) else None
        except (EncodeError, LimitExceeded):
            return None  # the map's error has the path
        finally:
            close_output(&out)

    cdef int _put_entry(self, Output *out, str name, object value) except -1:
        Encoder.write(self, out, name)
        return Encoder.write(self, out, value)

    cdef bint _put_episodes(self, Output *out, str name, object message, type kind) except -1:
        cdef object number = message.weights_seq_no, timesteps = message.timesteps
        cdef Py_ssize_t one, steps = 0
        if type(message.episodes) is not list or self._options.depth < DEPTH:
            return False
        self._begin(out)
        out.items += 4 + len(message.episodes)
        put_ok(rlw_msgpack_put_map_head(&out.writer, 3 + (number is not None)))
        self._put_entry(out, "type", name)
        Encoder.write(self, out, "episodes")
        put_ok(rlw_msgpack_put_array_head(&out.writer, <uint32_t> len(message.episodes)))
        for episode in <list> message.episodes:
            one = self._put_episode(out, episode) if type(episode) is kind else -2
            if one < 0:
                return False
            steps += one
        self._put_entry(out, "timesteps", steps if timesteps is None else timesteps)
        if number is not None:
            self._put_entry(out, "weights_seq_no", number)
        if out.items > self._options.items:
            return False
        self._end(out)
        return True

    cdef Py_ssize_t _put_episode(self, Output *out, object episode) except -1:
        """Write an episode and return its number of steps; -2 if it is not plain."""
        cdef object rewards = episode.rewards, observations = episode.observations
        cdef object actions = episode.actions, outputs = episode.outputs
        cdef object duration = episode.duration, started = episode.started
        cdef bint timed = bool(duration)
        cdef Py_ssize_t steps
        if type(rewards) is not cnp.ndarray or not cnp.PyArray_NDIM(<cnp.ndarray> rewards):
            return -2
        steps = cnp.PyArray_DIM(<cnp.ndarray> rewards, 0)
        if not (_has_rows(observations, steps + 1) and _has_rows(actions, steps)):
            return -2
        if type(outputs) is not dict or not _have_rows(<dict> outputs, steps):
            return -2
        if episode.infos is not None or episode.custom_data or episode.lookback or started < 0:
            return -2
        out.items += 9
        put_ok(rlw_msgpack_put_map_head(&out.writer, 7 + timed + (PyDict_Size(outputs) > 0)))
        self._put_entry(out, "id_", episode.id)
        self._put_entry(out, "observations", observations)
        self._put_entry(out, "actions", actions)
        self._put_entry(out, "rewards", rewards)
        self._put_entry(out, "is_terminated", episode.terminated)
        self._put_entry(out, "is_truncated", episode.truncated and True)
        self._put_entry(out, "t_started", started)
        if PyDict_Size(outputs):
            self._put_entry(out, "extra_model_outputs", outputs)
        if timed:
            self._put_entry(out, "_last_step_time", duration)
        return steps


cdef inline object _get(dict state, object name):
    cdef PyObject *found = PyDict_GetItem(state, name)
    return None if found == NULL else <object> found


cpdef object plain_episode(object given, type kind, object number):
    """Return the episode, of the class `kind`, in a brief map; None for another map."""
    cdef dict state
    cdef object outputs, custom
    cdef Py_ssize_t steps
    if type(given) is not dict:
        return None
    state = <dict> given
    rewards = _get(state, "rewards")
    if type(rewards) is not cnp.ndarray or not cnp.PyArray_NDIM(<cnp.ndarray> rewards):
        return None
    steps = cnp.PyArray_DIM(<cnp.ndarray> rewards, 0)
    observations, actions = _get(state, "observations"), _get(state, "actions")
    if not (_has_rows(observations, steps + 1) and _has_rows(actions, steps)):
        return None
    outputs, custom = _get(state, "extra_model_outputs"), _get(state, "custom_data")
    if not (outputs is None or (type(outputs) is dict and _have_rows(<dict> outputs, steps))):
        return None
    if not (custom is None or type(custom) is dict):
        return None
    name, started = _get(state, "id_"), _get(state, "t_started")
    terminated, truncated = _get(state, "is_terminated"), _get(state, "is_truncated")
    if type(terminated) is not bool or type(truncated) is not bool or type(name) is not str:
        return None
    duration = _get(state, "_last_step_time")
    if not (duration is None or type(duration) is float) or "_start_time" in state:
        return None
    if type(started) is not int or started < 0 or _get(state, "infos") is not None:
        return None
    # In the order of the fields of `Episode`.
    return kind(
        observations,
        actions,
        rewards,
        terminated,
        truncated,
        {} if outputs is None else outputs,
        None,
        name,
        started,
        0,
        duration if duration is not None and duration > 0.0 else 0.0,
        {} if custom is None else custom,
        number,
    )

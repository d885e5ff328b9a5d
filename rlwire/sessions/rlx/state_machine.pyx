"""The state machine of RLX's sessions. Every message passes through it, so it is compiled."""

from rlwire.sessions.layer cimport Layer

from rlwire.codecs.rlx.decoder import frame_size


cdef class StateNode:
    """A state, and the next node for each command and reply that it allows.

    `reports` is true after `update_metrics`. `phase` is that of a layer in this state.
    """

    cdef readonly object state
    cdef readonly object phase
    cdef readonly dict commands
    cdef readonly dict replies
    cdef readonly bint reports

    def __init__(self, object state, object phase, bint reports):
        self.state = state
        self.phase = phase
        self.commands = {}
        self.replies = {}
        self.reports = reports


cdef class StateMachine(Layer):
    """Checks each sent and received message; `client` says which side."""

    cdef readonly StateNode _node
    cdef readonly object _encode
    cdef object _decode
    cdef object _decode_whole
    cdef str _sent_key
    cdef str _received_key
    cdef object _received
    cdef bint _client

    def __init__(self, StateNode node, bint client, object encoder, object decoder, object received):
        self._node = node
        self._client = client
        self._sent_key, self._received_key = ("command", "response") if client else ("response", "command")
        self._encode = encoder.encode_parts
        self._decode = decoder.decode
        self._decode_whole = decoder.decode_whole
        self._received = received

    def _enter(self, StateNode node):
        self._set_node(node)

    cdef void _set_node(self, StateNode node) noexcept:
        self._node, self.phase = node, node.phase

    def frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        return frame_size(buffer, start, end, self._received)

    def send(self, object event):
        cdef StateNode node = self._node
        cdef StateNode after = _after(node.commands if self._client else node.replies, event, self._sent_key)
        if after is None:
            return self._cannot_send(event)
        if not self._client and not (type(event) is dict and "data" in <dict> event):
            self._check_reply(event)
        buffers = self._encode(event)
        self._set_node(after)
        return buffers

    def receive(self, object message):
        return self._check(self._decode(message))

    def receive_whole(self, object buffer, Py_ssize_t size):
        decoded = self._decode_whole(buffer, size)
        return None if decoded is None else self._check(decoded)

    cdef list _check(self, object message):
        cdef StateNode node = self._node
        cdef StateNode after = _after(node.replies if self._client else node.commands, message, self._received_key)
        if after is None:
            self._unexpected(message)
        if after.reports and not self._client:
            self._normalize_metrics(message)
        self._set_node(after)
        return [message]


cdef StateNode _after(dict rows, object message, str key):
    """Return the node after a message; None if it is not allowed."""
    try:
        if type(message) is dict:
            return rows.get((<dict> message).get(key))
        return rows.get(message[key])
    except (KeyError, TypeError):  # no mapping, or a name that is no text
        return None

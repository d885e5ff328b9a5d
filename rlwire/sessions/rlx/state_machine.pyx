"""The state machine of RLX's sessions. Every message passes through it, so it is compiled."""

from rlwire.sessions.layer cimport Layer

from rlwire.codecs.rlx.decoder import frame_size
from rlwire.errors import LocalProtocolError
from rlwire.sessions.layer import LayerPhase

ANSWERS = {"init": "ready", "update": "action", "reset": "done", "update_metrics": "done"}
"""The response to each command; ``error`` may answer any."""

cdef object CLOSED = LayerPhase.CLOSED
cdef dict COMMANDS = ANSWERS
cdef dict EARLY = {name: ANSWERS[name] for name in ("init", "update_metrics")}
cdef dict REPLIES = {name: {reply: None, "error": None} for name, reply in ANSWERS.items()}


cdef class StateMachine(Layer):
    """Checks each sent and received message; `client` says which side.

    Attributes:
        command: the command that has no reply yet, or None.
        initialized: whether the last `init` was answered with ``ready``.
        allowed: the commands that may be next, or the replies to `command`.
    """

    cdef readonly object command
    cdef readonly bint initialized
    cdef readonly dict allowed
    cdef readonly object _encode
    cdef object _decode
    cdef object _decode_whole
    cdef str _sent_key
    cdef str _received_key
    cdef object _received
    cdef bint _client

    def __init__(self, bint client, object encoder, object decoder, object received):
        self.allowed = EARLY
        self._client = client
        self._sent_key, self._received_key = ("command", "response") if client else ("response", "command")
        self._encode = encoder.encode_parts
        self._decode = decoder.decode
        self._decode_whole = decoder.decode_whole
        self._received = received

    def _close(self):
        self.phase = CLOSED

    def frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        return frame_size(buffer, start, end, self._received)

    def send(self, object event):
        cdef object name = self._allowed_name(event, self._sent_key, self._client)
        if name is None:
            self._cannot_send(event)
        if name == "action" and "data" not in event:
            raise LocalProtocolError("an 'action' response needs 'data', the action itself")
        buffers = self._encode(event)
        self._enter(name)
        return buffers

    def receive(self, object message):
        return self._check(self._decode(message))

    def receive_whole(self, object buffer, Py_ssize_t size):
        decoded = self._decode_whole(buffer, size)
        return None if decoded is None else self._check(decoded)

    def check(self, object message):
        """Check a message that is decoded already."""
        self._check(message)

    def replied(self, object name):
        """Record a reply that is encoded elsewhere."""
        self._enter(name)

    cdef list _check(self, object message):
        cdef object name = self._allowed_name(message, self._received_key, not self._client)
        if name is None:
            self._unexpected(message)
        if not self._client and name == "update_metrics":
            self._normalize_metrics(message)
        self._enter(name)
        return [message]

    cdef int _enter(self, object name) except -1:
        """Enter the state after a command or a reply."""
        if self.command is None:
            self.command, self.allowed = name, <dict> REPLIES[name]
            return 0
        if self.command == "init":
            self.initialized = name == "ready"
        self.command, self.allowed = None, COMMANDS if self.initialized else EARLY
        return 0

    cdef object _allowed_name(self, object message, str key, bint command):
        """Return a message's command or response; None if it is not allowed now."""
        if command != (self.command is None) or self.phase is CLOSED:
            return None
        try:
            name = (<dict> message).get(key) if type(message) is dict else message[key]
            return name if name in self.allowed else None
        except (KeyError, TypeError):  # no mapping, or a name that is no text
            return None

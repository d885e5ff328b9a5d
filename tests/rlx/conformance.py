"""Conformance tests of RLX servers: a subclass has the fixture `address`."""

import contextlib
import itertools

import numpy as np

from rlwire.codecs import rlx
from rlwire.transports.address import parse
from rlwire.transports.sockets import connected_socket

# After each of these, the start of the next message is unknown.
MALFORMED = {
    "length with a leading zero": b"05:hello,",
    "length with a sign": b"-5:hello,",
    "length that is no number": b"GET / HTTP/1.1\r\n\r\n",
    "length of a terabyte": b"1000000000000:",
    "no comma after the message": b"4:\x01\x00\x00\x00;",
}

# Whole netstrings with invalid messages.
UNREADABLE = {
    "empty message": b"0:,",
    "message that ends inside its version": b"2:\x01\x00,",
    "key longer than the message": b"8:\x01\x00\x00\x00\xff\xff\xff\x7f,",
    "unknown type": b"10:\x01\x00\x00\x00\x01\x00\x00\x00k\xc8,",
    "array of an invalid dtype": b"30:\x01\x00\x00\x00\x01\x00\x00\x00k\x07"
    b"\x06\x00\x00\x00object\x00\x00\x00\x00\x02\x00\x00\x00ab,",
}


class RawClient:
    """An RLX client that does not check the protocol; `timeout` is in seconds, for each reply."""

    def __init__(self, address, timeout=5.0):
        self._socket = connected_socket(parse(address), timeout)
        self._received = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._socket.close()

    def send(self, message):
        self._socket.sendall(rlx.encode(message, framed=True))

    def send_bytes(self, data, *, piece=0):
        """Send raw bytes, in pieces of `piece` bytes unless it is 0."""
        for at in range(0, len(data), piece or len(data)):
            self._socket.sendall(data[at : at + (piece or len(data))])

    def receive(self):
        """Return the next message; ConnectionError at the end, TimeoutError after `timeout`."""
        while True:
            buffer = bytes(self._received)
            size = rlx.frame_size(buffer, 0, len(buffer), 2**30)
            if size and len(buffer) >= size:
                del self._received[:size]
                return rlx.decode(buffer[:size], framed=True)
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError(f"the server closed after {len(buffer)} bytes of a reply")
            self._received += data

    def ask(self, message):
        self.send(message)
        return self.receive()

    def rest(self):
        """Return all messages until the server closes; TimeoutError if it does not."""
        messages = []
        with contextlib.suppress(ConnectionError):
            while True:
                messages.append(self.receive())
        return messages


class RLXServerConformance:
    """Tests for any RLX server.

    A subclass supplies the fixture `address`: ``"host:port"``, ``"unix:/path"`` or
    ``(host, port)``.
    """

    timeout = 5.0
    """Seconds to wait for each reply."""

    states = ([0.0, 0.0, 0.0, 0.0], np.zeros(4, np.float64), np.zeros((84, 84, 4), np.float32))
    """States to send, valid for the agent."""

    rewards = (None, 1.0, [0.5, -0.5])
    """Rewards to send, valid for the agent."""

    @contextlib.contextmanager
    def client(self, address, *, ready=False):
        """Connect; with `ready`, send `init`."""
        with RawClient(address, self.timeout) as client:
            if ready:
                assert client.ask({"command": "init", "exploit": False}) == {"response": "ready"}
            yield client

    def check_works(self, client):
        reply = client.ask(self.update())
        assert reply["response"] == "action", reply
        assert "data" in reply

    def update(self, **changes):
        command = {"command": "update", "reward": None, "state": self.states[0], "terminal": False}
        return {**command, **changes}

    def check_error(self, reply, text=""):
        """Check that a reply is an error that starts with `text`."""
        assert reply.get("response") == "error", reply
        assert isinstance(reply.get("message"), str), reply
        assert reply["message"].startswith(text), reply

    # One command, one reply.

    def test_init(self, address):
        """The reply to `init` is `ready`."""
        for exploit in (False, True):
            with self.client(address) as client:
                reply = client.ask({"command": "init", "exploit": exploit})
                assert reply == {"response": "ready"}

    def test_update(self, address):
        """The reply to `update` is `action` with `data`."""
        with self.client(address, ready=True) as client:
            for state in self.states:
                for reward, terminal in itertools.product(self.rewards, (False, True)):
                    update = self.update(state=state, reward=reward, terminal=terminal)
                    reply = client.ask(update)
                    assert reply["response"] == "action", (state, reward, reply)
                    assert "data" in reply

    def test_reset(self, address):
        """The reply to `reset` is `done`."""
        with self.client(address, ready=True) as client:
            assert client.ask({"command": "reset"}) == {"response": "done"}
            self.check_works(client)

    def test_update_metrics(self, address):
        """The reply to `update_metrics` is `done`, for the list and the flat form."""
        entries = [
            {"method": "scalar", "name": "conformance_scalar", "y": 1.5, "x": 1},
            {"method": "scalar", "name": "conformance_scalar", "y": 2.5, "x": None},
            {"method": "histogram", "name": "conformance_histogram", "y": [1.0, 2.0], "x": 2},
        ]
        with self.client(address, ready=True) as client:
            reply = client.ask({"command": "update_metrics", "data": entries})
            assert reply == {"response": "done"}
            flat = {"command": "update_metrics", "name": "conformance_flat", "y": 1.0, "x": 1}
            assert client.ask(flat) == {"response": "done"}

    # The server rejects a command, and the connection stays open.

    def test_update_before_init(self, address):
        """`update` and `reset` before `init` are errors; `init` then works."""
        with self.client(address) as client:
            self.check_error(client.ask(self.update()))
            self.check_error(client.ask({"command": "reset"}))
            assert client.ask({"command": "init", "exploit": False}) == {"response": "ready"}
            self.check_works(client)

    def test_unknown_command(self, address):
        with self.client(address, ready=True) as client:
            self.check_error(client.ask({"command": "fly"}), "unknown command")
            self.check_works(client)

    def test_no_command(self, address):
        """A message without a command, or with a command that is not text, is an error."""
        with self.client(address, ready=True) as client:
            for message in ({}, {"response": "ready"}, {"command": None}, {"command": ["init"]}):
                self.check_error(client.ask(message))
            self.check_works(client)

    def test_bad_metrics(self, address):
        with self.client(address, ready=True) as client:
            for data in (
                "text",
                ["text"],
                [{"method": "scalar", "y": 1.0, "x": 1}],
                [{"method": "__init__", "name": "n", "y": 1.0, "x": 1}],
            ):
                reply = client.ask({"command": "update_metrics", "data": data})
                self.check_error(reply)
            self.check_works(client)

    # The byte stream.

    def test_byte_by_byte(self, address):
        """A message may arrive in any pieces."""
        with self.client(address, ready=True) as client:
            client.send_bytes(rlx.encode(self.update(), framed=True), piece=1)
            assert client.receive()["response"] == "action"

    def test_glued_commands(self, address):
        """Several commands may arrive together; replies keep their order."""
        with self.client(address) as client:
            commands = [{"command": "init"}, self.update(), {"command": "reset"}, self.update()]
            client.send_bytes(b"".join(rlx.encode(c, framed=True) for c in commands))
            replies = [client.receive()["response"] for _ in commands]
            assert replies == ["ready", "action", "done", "action"]

    def test_malformed_bytes(self, address):
        """After bytes that are not a netstring, the server sends at most one error and closes."""
        with self.client(address, ready=True) as other:
            for name, data in MALFORMED.items():
                with self.client(address, ready=True) as client:
                    client.send_bytes(data)
                    with contextlib.suppress(ConnectionResetError):
                        replies = client.rest()
                        assert len(replies) <= 1, name
                        for reply in replies:
                            self.check_error(reply)
                self.check_works(other)

    def test_unreadable_messages(self, address):
        """An invalid message in a netstring is an error (RELAAX's own server closes instead)."""
        with self.client(address, ready=True) as client:
            for data in UNREADABLE.values():
                client.send_bytes(data)
                self.check_error(client.receive())
                self.check_works(client)

    def test_connections_have_their_own_state(self, address):
        """`init` on one connection does not initialize another."""
        with self.client(address, ready=True) as first, self.client(address) as second:
            self.check_error(second.ask(self.update()))
            self.check_works(first)

    def test_peer_gone_inside_a_message(self, address):
        """A client that disconnects at any byte does not disturb others."""
        frame = rlx.encode(self.update(), framed=True)
        with self.client(address, ready=True) as other:
            for sent in (frame[:1], frame[: len(frame) // 2], frame[:-1], frame * 100):
                with self.client(address, ready=True) as client:
                    client.send_bytes(sent)
                self.check_works(other)

"""The exam for RLX servers.

::

    import pytest
    from rlwire.testing.rlx import RLXServerConformance

    class TestMyServer(RLXServerConformance):
        states = [[0.0, 0.0, 0.0, 0.0]]          # what your agent takes

        @pytest.fixture
        def address(self):
            with start_my_server() as port:
                yield ("localhost", port)

A test that does not apply to a server is switched off by setting it to None in the subclass. Not
here: what an agent should answer, which only its author knows.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlwire.codecs import rlx
from rlwire.transports.address import AddressLike, parse

__all__ = ["RLXServerConformance", "RawClient"]

# After each of these it is not known where the next message begins.
MALFORMED: dict[str, bytes] = {
    "length with a leading zero": b"05:hello,",
    "length with a sign": b"-5:hello,",
    "length that is no number": b"GET / HTTP/1.1\r\n\r\n",
    "length of a terabyte": b"1000000000000:",
    "no comma after the message": b"4:\x01\x00\x00\x00;",
}

# Whole netstrings around what is no message.
UNREADABLE: dict[str, bytes] = {
    "empty message": b"0:,",
    "message that ends inside its version": b"2:\x01\x00,",
    "key longer than the message": b"8:\x01\x00\x00\x00\xff\xff\xff\x7f,",
    "unknown type": b"10:\x01\x00\x00\x00\x01\x00\x00\x00k\xc8,",
    "array of a dtype that is none": b"30:\x01\x00\x00\x00\x01\x00\x00\x00k\x07"
    b"\x06\x00\x00\x00object\x00\x00\x00\x00\x02\x00\x00\x00ab,",
}


class RawClient:
    """A socket with netstrings, and no opinion on who may say what.

    Args:
        address: of the server.
        timeout: seconds to wait for each answer.
    """

    def __init__(self, address: AddressLike, timeout: float = 5.0) -> None:
        where = parse(address)
        family, target = where.resolve()[0]
        if where.path:
            self._socket = socket.socket(socket.AddressFamily(family), socket.SOCK_STREAM)
            self._socket.settimeout(timeout)
            self._socket.connect(target)
        else:
            self._socket = socket.create_connection((where.host, where.port), timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._socket.sendall(rlx.encode(message, framed=True))

    def send_bytes(self, data: bytes, *, piece: int = 0) -> None:
        """Send bytes as they are, in pieces of `piece` bytes if that is not 0."""
        for at in range(0, len(data), piece or len(data)):
            self._socket.sendall(data[at : at + (piece or len(data))])

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            ConnectionError: the server closed the connection.
            TimeoutError: nothing came in time.
        """
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

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message and return the answer."""
        self.send(message)
        return self.receive()

    def rest(self) -> list[dict[str, Any]]:
        """Return the messages that still come before the server closes.

        Raises:
            TimeoutError: the server does not close.
        """
        messages = []
        while True:
            try:
                messages.append(self.receive())
            except ConnectionError:
                return messages


class RLXServerConformance:
    """What a client may rely on in any RLX server; see the module for how to use it.

    A subclass supplies the fixture `address`: ``"host:port"``, ``"unix:/path"`` or
    ``(host, port)``. All tests may share one server, or each have its own.
    """

    timeout: float = 5.0
    """Seconds to wait for each answer; more for an agent that loads a model in `init`."""

    states: Sequence[Any] = (
        [0.0, 0.0, 0.0, 0.0],
        np.zeros(4, np.float64),
        np.zeros((84, 84, 4), np.float32),
    )
    """States that the agent takes; each is sent."""

    rewards: Sequence[Any] = (None, 1.0, [0.5, -0.5])
    """Rewards that the agent takes; each is sent."""

    @contextlib.contextmanager
    def client(self, address: AddressLike, *, ready: bool = False) -> Iterator[RawClient]:
        """Connect; with `ready`, send `init` and check its answer."""
        with RawClient(address, self.timeout) as client:
            if ready:
                assert client.ask({"command": "init", "exploit": False}) == {"response": "ready"}
            yield client

    def check_works(self, client: RawClient) -> None:
        """Check that an initialised connection still answers."""
        reply = client.ask(self.update())
        assert reply["response"] == "action", reply
        assert "data" in reply

    def update(self, **changes: Any) -> dict[str, Any]:
        """Return an `update` command."""
        command = {"command": "update", "reward": None, "state": self.states[0], "terminal": False}
        return {**command, **changes}

    def check_error(self, reply: dict[str, Any], text: str = "") -> None:
        """Check that a reply is an error whose message starts with `text`."""
        assert reply.get("response") == "error", reply
        assert isinstance(reply.get("message"), str), reply
        assert reply["message"].startswith(text), reply

    # One command, one reply.

    def test_init(self, address: AddressLike) -> None:
        """`init` is answered by `ready`, exploiting or not."""
        for exploit in (False, True):
            with self.client(address) as client:
                reply = client.ask({"command": "init", "exploit": exploit})
                assert reply == {"response": "ready"}

    def test_update(self, address: AddressLike) -> None:
        """`update` is answered by `action` with `data`, for each state and reward."""
        with self.client(address, ready=True) as client:
            for state in self.states:
                for reward in self.rewards:
                    reply = client.ask(self.update(state=state, reward=reward))
                    assert reply["response"] == "action", (state, reward, reply)
                    assert "data" in reply

    def test_terminal_update(self, address: AddressLike) -> None:
        """The end of an episode is an update like others, and the next episode follows."""
        with self.client(address, ready=True) as client:
            reply = client.ask(self.update(reward=1.0, terminal=True))
            assert reply["response"] == "action", reply
            self.check_works(client)

    def test_reset(self, address: AddressLike) -> None:
        """`reset` is answered by `done`."""
        with self.client(address, ready=True) as client:
            assert client.ask({"command": "reset"}) == {"response": "done"}
            self.check_works(client)

    def test_update_metrics(self, address: AddressLike) -> None:
        """`update_metrics` is answered by `done`, as a list and in its older, flat form."""
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

    # Commands that are refused, on a connection that goes on.

    def test_update_before_init(self, address: AddressLike) -> None:
        """`update` and `reset` before `init` are refused; `init` then works."""
        with self.client(address) as client:
            self.check_error(client.ask(self.update()))
            self.check_error(client.ask({"command": "reset"}))
            assert client.ask({"command": "init", "exploit": False}) == {"response": "ready"}
            self.check_works(client)

    def test_unknown_command(self, address: AddressLike) -> None:
        """A command that RLX does not have is refused by name."""
        with self.client(address, ready=True) as client:
            self.check_error(client.ask({"command": "fly"}), "unknown command")
            self.check_works(client)

    def test_no_command(self, address: AddressLike) -> None:
        """A message without a command, or with one that is no text, is refused."""
        with self.client(address, ready=True) as client:
            for message in ({}, {"response": "ready"}, {"command": None}, {"command": ["init"]}):
                self.check_error(client.ask(message))
            self.check_works(client)

    def test_bad_metrics(self, address: AddressLike) -> None:
        """Metrics that cannot be understood are refused."""
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

    def test_byte_by_byte(self, address: AddressLike) -> None:
        """A message may come in any pieces."""
        with self.client(address, ready=True) as client:
            client.send_bytes(rlx.encode(self.update(), framed=True), piece=1)
            assert client.receive()["response"] == "action"

    def test_glued_commands(self, address: AddressLike) -> None:
        """Commands that come at once are answered in their order."""
        with self.client(address) as client:
            commands = [{"command": "init"}, self.update(), {"command": "reset"}, self.update()]
            client.send_bytes(b"".join(rlx.encode(c, framed=True) for c in commands))
            replies = [client.receive()["response"] for _ in commands]
            assert replies == ["ready", "action", "done", "action"]

    def test_malformed_bytes(self, address: AddressLike) -> None:
        """Bytes that are no netstring end their connection, after at most one error."""
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

    def test_unreadable_messages(self, address: AddressLike) -> None:
        """A whole netstring around no message is answered with an error; its connection goes on.

        RELAAX's own server closes that connection without a word.
        """
        with self.client(address, ready=True) as client:
            for data in UNREADABLE.values():
                client.send_bytes(data)
                self.check_error(client.receive())
                self.check_works(client)

    def test_connections_have_their_own_state(self, address: AddressLike) -> None:
        """`init` on one connection does not initialise another."""
        with self.client(address, ready=True) as first, self.client(address) as second:
            self.check_error(second.ask(self.update()))
            self.check_works(first)

    def test_peer_gone_inside_a_message(self, address: AddressLike) -> None:
        """A client that dies while it sends, or before it reads, harms no other."""
        frame = rlx.encode(self.update(), framed=True)
        with self.client(address, ready=True) as other:
            for sent in (frame[:1], frame[: len(frame) // 2], frame[:-1], frame * 100):
                with self.client(address, ready=True) as client:
                    client.send_bytes(sent)
                self.check_works(other)

    def test_reconnect(self, address: AddressLike) -> None:
        """A server takes a new connection after each that ended."""
        deadline = time.monotonic() + self.timeout
        for _ in range(10):
            with self.client(address, ready=True) as client:
                self.check_works(client)
        assert time.monotonic() < deadline, "ten short connections took too long"

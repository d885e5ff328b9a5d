"""What a peer may do wrong: a code that says so, that connection ends, the others go on.

By frames that are written by hand, over real sockets; the same for both sides.
"""

import contextlib
import gc
import json
import socket
import struct
import threading
import tracemalloc

import pytest

from rlwire.codecs.websocket.frames import CLOSE, FrameDecoder, FrameEncoder
from rlwire.codecs.websocket.handshake import read_request, write_response
from rlwire.errors import DecodeError, LimitExceeded, RemoteProtocolError, RlwireError
from rlwire.limits import Limits
from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.raising import raised

FRAMER = FrameEncoder(True, "text")
TEXT, BINARY = 0x81, 0x82
FEW = Limits(received=1 << 20, items=10_000)


def frame_of(message):
    """A client's text frame."""
    data = message.encode() if isinstance(message, str) else message
    return b"".join(FRAMER.message(data))


def message_of(method, number=1, body="{}", **headers):
    """A message; a number may be anything."""
    more = "".join(f',"{name}":{json.dumps(value)}' for name, value in headers.items())
    return f'{{"method":"{method}","headers":{{"message_id":{number}{more}}},"body":{body}}}'


def ping(number=1):
    return message_of("v0.control.ping", number)


def reset(number=1, body='{"env_id":null}'):
    return message_of("v0.env.reset", number, body)


def header(first, second, length=b""):
    """A frame's first bytes, with a mask of zeros."""
    return bytes([first, 0x80 | second]) + length + b"\0\0\0\0"


# What a client sends, the close code, and the words of `v0.connection.close` (None: the WebSocket
# itself was broken, there is only the code and its reason).
BAD = {
    "no JSON": (frame_of("nope"), 1007, "at byte"),
    "deep JSON": (
        frame_of(message_of("v0.my.own", 1, '{"a":' * 70 + "1" + "}" * 70)),
        1009,
        "over the limit depth=64",
    ),
    "many values": (
        frame_of(message_of("v0.my.own", 1, '{"a":[' + "[]," * 10_000 + "[]]}")),
        1009,
        "over the limit items=10000",
    ),
    "a number out of range": (frame_of(ping("1e999")), 1007, "at byte"),
    "an id of 5,000 digits": (frame_of(ping("9" * 5000)), 1007, "at byte"),
    "an id of 65 characters": (frame_of(ping(json.dumps("x" * 65))), 1008, "characters"),
    "the same id twice": (frame_of(ping()) + frame_of(ping()), 1008, "message_id 1 was used"),
    "no UTF-8": (frame_of(b'{"method":"\xff"}'), 1007, None),
    "a binary frame": (header(BINARY, 2) + b"{}", 1003, None),
    "a frame without a mask": (b"\x81\x02{}", 1002, None),
    "more bytes than allowed": (header(TEXT, 127, struct.pack(">Q", (1 << 20) + 1)), 1009, None),
}

# What is answered with `v0.reply.error`, after which the connection goes on; and words of it.
REFUSED = {
    "a server's reward": (
        message_of("v0.env.reward", 1, '{"reward":1,"done":false,"info":{}}', episode_id="1"),
        "only servers",
    ),
    "an unknown method": (message_of("v0.my.own"), "unknown method"),
    "a seed out of range": (reset(1, '{"env_id":null,"seed":' + f"{2**128}}}"), "128 bits"),
    "no id": (message_of("v0.env.reset", "null", '{"env_id":null}'), "message_id"),
}


class Raw:
    """A client by hand."""

    def __init__(self, server, *, observer=False):
        self.sock = sock = socket.create_connection((server.address.host, server.address.port))
        sock.settimeout(20)
        lines = handshake_headers("openai", observer)
        sock.sendall(
            b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in lines).encode()
            + b"\r\n"
        )
        self.data = bytearray()
        while b"\r\n\r\n" not in self.data:
            self.data += sock.recv(65536)
        del self.data[: self.data.index(b"\r\n\r\n") + 4]
        assert self.message()["method"] == "v0.env.describe"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def frame(self):
        """The next frame: opcode and payload."""
        while True:
            size = len(self.data)
            if size >= 2:
                length, start = self.data[1], 2
                if length == 126 and size >= 4:
                    length, start = int.from_bytes(self.data[2:4], "big"), 4
                if length != 126 or start == 4:
                    assert length != 127
                    if size >= start + length:
                        opcode, payload = self.data[0] & 15, self.data[start : start + length]
                        del self.data[: start + length]
                        return opcode, bytes(payload)
            got = self.sock.recv(65536)
            assert got, "it hung up without a close frame"
            self.data += got

    def message(self):
        """The next message."""
        opcode, payload = self.frame()
        assert opcode == 1, (opcode, payload)
        return json.loads(payload)

    def end(self):
        """Read to the end: messages, close code and reason."""
        messages = []
        while True:
            opcode, payload = self.frame()
            if opcode == CLOSE:
                with contextlib.suppress(OSError):
                    while self.sock.recv(65536):
                        pass
                return messages, int.from_bytes(payload[:2], "big"), payload[2:].decode()
            messages.append(json.loads(payload))


@pytest.fixture(scope="module")
def server():
    # Without pings, which peers by hand do not answer: a test may take long on a busy machine.
    with RewarderServer(
        "test.Game-v0",
        "127.0.0.1:0",
        auth="openai",
        on_reset=lambda request: None,
        ping_interval=None,
        limits=FEW,
    ) as made:
        yield made


@pytest.fixture
def others(server, wait_for):
    """An observer and a client by hand; gives what checks that they go on."""
    wait_for(lambda: server.clients == 0)
    with (
        RewarderClient(str(server.address), observer=True) as observer,
        Raw(server, observer=True) as raw,
    ):
        wait_for(lambda: server.clients == 2)

        def go_on():
            server.reward(1.5, False, {"a": 1})
            step = observer.step(10)
            assert (step.reward, step.info) == (1.5, {"a": 1})
            assert observer.ping(10) > 0
            assert raw.message()["body"]["reward"] == 1.5

        go_on()
        yield go_on


@pytest.mark.parametrize("name", BAD)
def test_invalid_messages_end_the_connection(server, others, wait_for, name):
    data, code, words = BAD[name]
    with Raw(server) as bad:
        with contextlib.suppress(OSError):  # the server may have hung up before all was sent
            bad.sock.sendall(data)
        messages, closed, reason = bad.end()
        assert closed == code
        closing = [one for one in messages if one["method"] == "v0.connection.close"]
        if words is None:
            assert not closing
            assert reason
        else:
            assert words in closing[0]["body"]["message"]
            assert messages[-1] is closing[0]
            # A close frame has room for 123 bytes.
            assert closing[0]["body"]["message"].startswith(reason[:100])
    others()
    wait_for(lambda: server.clients == 2)


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_requests_get_an_error_reply(server, others, name):
    message, words = REFUSED[name]
    with Raw(server) as bad:
        bad.sock.sendall(frame_of(message) + frame_of(ping(2)))
        answer = bad.message()
        assert answer["method"] == "v0.reply.error"
        assert words in answer["body"]["message"]
        pong = bad.message()
        assert pong["method"] == "v0.reply.control.ping"
        assert pong["headers"]["parent_message_id"] == 2
    others()


def test_resets_without_end_are_refused(server, others):
    with Raw(server) as bad:
        bad.sock.sendall(b"".join(frame_of(reset(number)) for number in range(1, 31)))
        errors = [bad.message() for _ in range(30 - 16)]
        assert all("16 resets" in one["body"]["message"] for one in errors)
    others()


def memory():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced():
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("claimed", [1 << 20, (1 << 20) - 1, 70_000])
def test_a_length_that_lies_costs_no_memory_of_others(server, others, claimed):
    """A frame that is announced and does not come: what is allowed at most is set aside."""
    before = memory()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            bad = stack.enter_context(Raw(server, observer=True))
            bad.sock.sendall(header(TEXT, 127, struct.pack(">Q", claimed)) + b"{")
        others()
        assert memory() - before < 3 * (1 << 20) + (1 << 20)


@pytest.mark.usefixtures("traced")
def test_a_client_that_never_reads_is_cut_off(others, server, wait_for):
    backlog = 200_000
    with RewarderServer(
        "a", "127.0.0.1:0", auth="openai", backlog=backlog, ping_interval=None
    ) as slow:
        before = memory()
        most = 0
        with Raw(slow, observer=True), RewarderClient(str(slow.address), observer=True) as reader:
            wait_for(lambda: slow.clients == 2)
            count = 0
            while slow.statistics().get("slow") != 1:
                slow.text(f"{count} " + "x" * 20_000)
                assert reader.step(10).texts[0].split()[0] == str(count)
                count += 1
                if count % 50 == 0:
                    most = max(most, memory() - before)
                assert count < 5000
            assert most < backlog + (1 << 20)
            wait_for(lambda: slow.clients == 1)
            slow.reward(1)
            assert reader.step(10).reward == 1
    others()


@pytest.mark.usefixtures("traced")
def test_unread_replies_are_bounded(server, others):
    before = memory()
    with Raw(server) as bad:
        bad.sock.settimeout(0.5)
        sent = 0
        with contextlib.suppress(OSError):  # it does not take any more
            while sent < 400_000:
                bad.sock.sendall(b"".join(frame_of(ping(sent + one)) for one in range(1000)))
                sent += 1000
        assert 0 < sent < 400_000
        assert memory() - before < 4 << 20
        others()


def from_server(message):
    data = message.encode() if isinstance(message, str) else message
    return b"".join(FrameEncoder(False, "text").message(data))


def reward(number, value="1", episode='"1"'):
    return (
        f'{{"method":"v0.env.reward","headers":{{"sent_at":1,"message_id":{number},'
        f'"episode_id":{episode}}},"body":{{"reward":{value},"done":false,"info":{{}}}}}}'
    )


WRONG = {
    "no JSON": (from_server("nope"), DecodeError, 1007, "at byte"),
    "deep JSON": (
        from_server(message_of("v0.my.own", 1, '{"a":' * 70 + "1" + "}" * 70)),
        LimitExceeded,
        1009,
        "depth=64",
    ),
    "a sum out of range": (
        from_server(reward(1, "1e308")) + from_server(reward(2, "1e308")),
        RemoteProtocolError,
        1008,
        "finite",
    ),
    "the same id twice": (
        from_server(reward(1)) + from_server(reward(1)),
        RemoteProtocolError,
        1008,
        "message_id 1 was used",
    ),
    "a binary frame": (b"\x82\x02{}", RemoteProtocolError, 1003, "binary"),
    "2**63 - 1 bytes": (b"\x81\x7f\x7f" + b"\xff" * 7, LimitExceeded, 1009, "received"),
}


class Liar:
    """A server by hand, for one client: says what it is told to say, and hears the close frame."""

    def __init__(self, data):
        self._data = data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.where = "{}:{}".format(*self._listener.getsockname())
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        sock, _ = self._listener.accept()
        with sock, self._listener:
            sock.settimeout(20)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += sock.recv(65536)
            sock.sendall(write_response(101, key=read_request(head).key))
            first = '{"env_id":"a","env_state":"b","fps":60}'
            sock.sendall(from_server(message_of("v0.env.describe", 0, first, episode_id="1")))
            sock.recv(65536)  # the first ping, which is not answered
            sock.sendall(self._data)
            with contextlib.suppress(OSError):
                while got := sock.recv(65536):
                    self.heard += got

    def code(self):
        """The close code that came; a client's frames have masks."""
        self._thread.join(20)
        frames, data = FrameDecoder(True, "text"), self.heard
        while data:
            size = frames.frame_size(data, 0, len(data))
            opcode, _, payload = frames.frame(bytearray(data[:size]))
            if opcode == CLOSE:
                return int.from_bytes(payload[:2], "big")
            data = data[size:]
        raise AssertionError("no close frame came")


@pytest.mark.parametrize("name", WRONG)
def test_invalid_server_messages_end_the_client(name):
    data, kind, code, words = WRONG[name]
    liar = Liar(data)
    with RewarderClient(liar.where, attach=True) as client:
        assert liar.code() == code  # before a step could take one reward and leave the other
        with pytest.raises(kind, match=words):  # noqa: PT012
            for _ in range(10):
                client.step(10)
        raised(RlwireError, client.act, [])

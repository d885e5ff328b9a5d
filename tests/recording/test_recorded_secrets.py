"""Every protocol's first bytes at every protocol's port: no secret of them is in the recording."""

import base64
import contextlib

import hpack
import numpy as np
import pytest

import rlwire
from rlwire.codecs.http2 import frames
from rlwire.codecs.rllink import Codec, Ping
from rlwire.codecs.rlx import encode
from rlwire.errors import RlwireError
from rlwire.recording.files import packets
from rlwire.recording.recorder import FileRecording
from rlwire.sessions.rfb.server import FrameEncoder, NumberedFrame, RfbServerSession
from rlwire.streams import NOTHING, StreamCore
from tests.ends import TIMES
from tests.recording.captures import AgentAndPolicy, finish

pytest.importorskip("mcap")

SECRET = "s3cr3t-9-of-a-test"
BASIC = base64.b64encode(f"{SECRET}:".encode()).decode()


def http(*lines, path="/"):
    head = f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"
    more = "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    return "\r\n".join([*head, *more, *lines, "", ""]).encode()


def grpc(huffman, indexed):
    encoder = hpack.Encoder()
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/x")]
    secret = ("authorization", f"Bearer {SECRET}")
    fields += [(":authority", "x"), secret if indexed else hpack.NeverIndexedHeaderTuple(*secret)]
    block = encoder.encode(fields, huffman=huffman)
    again = encoder.encode([secret], huffman=huffman)
    data = frames.PREFACE + frames.settings({}) + frames.frame(1, 4, 1, block)
    return data + frames.frame(1, 5, 3, again) + frames.frame(5, 4, 1, bytes(4) + block)


def rllink(body):
    return b"%08d" % len(body) + body


HEADS = {
    "basic": http(f"Authorization: Basic {BASIC}"),
    "api key": http(f"Authorization: Api-Key {SECRET}", f"X-Token: {SECRET}"),
    "folded": http(f"Authorization:\r\n Bearer {SECRET}"),
    "not upgraded": f"POST /x HTTP/1.0\r\nCookie: a={SECRET}\r\n\r\npassword={SECRET}".encode(),
    "grpc": grpc(True, True),
    "grpc without huffman": grpc(False, False),
    "rllink": Codec().encode(Ping(SECRET), "json"),
    "rllink in msgpack": Codec().encode(Ping(SECRET), "msgpack"),
    "rllink, escaped": rllink(b'{"type":"PING","rlwire":{"t\\u006fken":"%s"}}' % SECRET.encode()),
    "rllink, all escaped": rllink(
        b'{"\\u0074ype":"\\u0050ING","\\u0072lwire":{"t\\u006fken":"%s"}}%s'
        % (SECRET.encode(), b" " * 5000)
    ),
    "rllink, elsewhere": rllink(b'{"type":"PING","t\\u006fken":"%s"}' % SECRET.encode()),
    "rllink, wrong": rllink(b'{"type":"PING","t\\u006fken":"%s"' % SECRET.encode() + b" " * 5000),
    "rlx": encode({"command": "init"}, framed=True) + f"token={SECRET}".encode() * 3,
    "rfb": b"RFB 003.008\n\2" + SECRET.encode()[:16],
}
PORTS = {
    "rlx": lambda auth: rlwire.serve(AgentAndPolicy, "rlx://127.0.0.1:0"),
    "rlx-ws": lambda auth: rlwire.serve(AgentAndPolicy, "rlx-ws://127.0.0.1:0"),
    "dm-env-rpc": lambda auth: rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", **auth),
    "universe": lambda auth: rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:0", **auth),
    "openpi": lambda auth: rlwire.serve(AgentAndPolicy(), "openpi://127.0.0.1:0", **auth),
    "rllink": lambda auth: rlwire.serve(AgentAndPolicy(), "rllink://127.0.0.1:0", **auth),
}


def viewer_session(password):
    newest = NumberedFrame(0, np.zeros((4, 4, 3), np.uint8))
    return RfbServerSession(FrameEncoder(lambda: newest), password=password)


def hear(session, tap, pieces):
    """Give an accepted connection these pieces, and record it."""
    core = StreamCore(session, "peer", TIMES, True, tap)
    core.begin()
    try:
        for data in pieces:
            while data:
                have = min(len(core.room()), len(data))
                core.room()[:have] = data[:have]
                data = data[have:]
                event = core.feed(have)
                while event is not NOTHING or core.more:
                    event = core.next()
                while core.sending:
                    core.wrote(sum(map(len, core.output())))
    except RlwireError as error:
        with contextlib.suppress(RlwireError):
            core.reject(error)
    core.abort("over")


@pytest.mark.parametrize("auth", [None, SECRET, "another-secret"])
@pytest.mark.parametrize("port", [*PORTS, "rfb"])
def test_recorder_writes_no_secret_at_any_port(port, auth, tmp_path):
    options = {} if auth is None else {"auth": auth}
    hidden = [SECRET.encode(), BASIC.encode(), SECRET.encode()[:16]]
    for value in (f"Bearer {SECRET}", SECRET):
        hidden.append(hpack.Encoder().encode([("authorization", value)], huffman=True)[-9:-1])
    what = FileRecording(str(tmp_path / "run.mcap"), "rlx", "1")
    with contextlib.ExitStack() as stack:
        make = lambda: viewer_session(auth)  # noqa: E731
        if port in PORTS:
            make = stack.enter_context(PORTS[port](options))._service.session
        names = {}
        for name, head in HEADS.items():
            # Every third byte at each port, and every byte at three ports.
            first = [*PORTS, "rfb"].index(port) % 3
            for cut in range(first, len(head) if len(head) < 1000 else 60, 3):
                tap = what.tap("server", "peer")
                names[tap.number] = name, cut
                session = make()
                if session.password_check is not None:
                    session.password_check.address = str(tap.number)
                hear(session, tap, [head[:cut], head[cut:]] if cut else [head])
    finish()
    found = {}
    for packet in packets(str(tmp_path / "run.mcap")):
        number = packet.connection.number
        found[number] = found.get(number, b"") + packet.data + packet.ended.encode()
    assert len(found) == len(names)
    assert not {names[n][0] for n, data in found.items() if any(word in data for word in hidden)}
    assert all(len(data) > 1 for data in found.values())

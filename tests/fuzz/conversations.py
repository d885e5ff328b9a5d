"""What a peer says to a session, through the stream core: the first byte chooses the session, its
handshake and the cuts. Whole and in pieces must come to the same events, errors and phase."""

import contextlib
import re

from rlwire.codecs.rewarder import EnvDescribe
from rlwire.codecs.websocket import frames
from rlwire.errors import ConnectionClosed, RlwireError
from rlwire.limits import Limits
from rlwire.sessions import openpi, rlx, websocket
from rlwire.sessions.rewarder import client as rewarder_client
from rlwire.sessions.rewarder import server as rewarder_server
from rlwire.sessions.stack import Stack
from rlwire.streams import NOTHING, StreamCore, StreamPhase
from tests.ends import TIMES

LIMITS = Limits(expanded=2**20, string=2**20, pixels=2**18, message=2**20, received=2**20)
CHUNKS = (1, 3, 61, 1460)


def still():
    return 1000.0


def _websocket(*inner, kind="any"):
    client = websocket.WebSocketClientSession("ws://a/", kind=kind, limits=LIMITS)
    server = websocket.WebSocketServerSession(kind=kind, limits=LIMITS)
    return (Stack(client, inner[0]), Stack(server, inner[1])) if inner else (client, server)


def _rewarder():
    runtime = rewarder_server.Runtime(
        EnvDescribe("env", "running", 60), clock=still, wall=still, password=None, limits=LIMITS
    )
    client = rewarder_client.RewarderClientSession(clock=still, wall=still, limits=LIMITS)
    return _websocket(client, runtime.connect(), kind="text")


PAIRS = (
    lambda: (rlx.RLXClientSession(limits=LIMITS), rlx.RLXServerSession(limits=LIMITS)),
    _websocket,
    lambda: _websocket(
        openpi.OpenPIClientSession(limits=LIMITS), openpi.OpenPIServerSession(limits=LIMITS)
    ),
    _rewarder,
)


def begin(pair, side, *, handshake):
    """One end, to which the other has said what opens a conversation, if anything."""
    sessions = PAIRS[pair]()
    cores = [StreamCore(session, "the peer", TIMES) for session in sessions]
    for core in cores:
        core.begin()
    for who in (0, 1, 0) if handshake else ():
        data = said_by(cores[who])
        hear(cores[1 - who], data, len(data), talk=False)
    if not handshake:  # else the phase after an error depends on what is still to be sent
        said_by(cores[side])
    if pair == 0 and side == 0:
        cores[0].put({"command": "init"})
        cores[0].wrote(cores[0].waiting)
    return cores[side]


def said_by(core):
    written = b""
    while core.sending:
        data = b"".join(core.output())[:1000]
        core.wrote(len(data))
        written += data
    return written


def plain(event):
    if isinstance(event, (bytearray, memoryview)):
        event = bytes(event)
    return re.sub("0x[0-9a-f]+", "", repr(event))


def hear(core, data, chunk, *, talk=True):
    """What comes of the bytes: events and errors, in order; what is said to them goes at once."""
    results = []

    def note(get):
        try:
            event = get()
        except RlwireError as error:
            # Bytes count from where the frame lies.
            results.append((type(error).__name__, re.sub("at byte [0-9]+", "", str(error))))
            return not isinstance(error, ConnectionClosed)
        if event is not NOTHING:
            results.append(plain(event))
        return event is not NOTHING

    while data and core.phase < StreamPhase.READ_CLOSED:
        space = core.room()
        count = min(len(space), len(data), chunk)
        space[:count] = data[:count]
        data = data[count:]
        note(lambda count=count: core.feed(count))
        while note(core.next) or core.more:
            pass
        if talk:
            said_by(core)
    return results


def feed_stream(data):
    """A session as the first byte says, the bytes behind it whole and in pieces."""
    if not data:
        return
    what, data = data[0], data[1:]
    pair, side, handshake = what % 4, what // 4 % 2, what // 8 % 2 == 0
    chunk = CHUNKS[what // 16 % 4]
    ends = []
    for size in (len(data), chunk):
        core = begin(pair, side, handshake=handshake)
        results = hear(core, data, size)
        assert core.sending == bool(core.waiting)
        have, want = core.partial
        if core.phase < StreamPhase.READ_CLOSED:
            assert have < want or not want, "a whole message waits"
            if pair == 0:
                results.append((have, want))
        phase = core.phase
        core.eof()
        hear(core, b"\0", 1)
        for _ in range(3):
            with contextlib.suppress(RlwireError):
                assert core.next() is NOTHING
        core.close()
        assert core.phase >= StreamPhase.CLOSING
        core.abort()
        ends.append((results, phase))
    assert ends[0] == ends[1], ends


def seeds():
    """What peers say, in order, to each side of each pair."""
    found = []
    for pair, talk in enumerate(TALKS):
        for side in (0, 1):
            written = b"".join(
                b"".join(_said(pair, side, event)) for who, event in talk if who != side
            )
            found += [bytes([pair + 4 * side + 16 * cut]) + written for cut in range(4)]
    for pair in range(1, 4):
        client, server = (StreamCore(session, "", TIMES) for session in PAIRS[pair]())
        client.begin()
        request = b"".join(client.output())
        hear(server, request, len(request))
        found.append(bytes([pair + 4 + 8]) + request)
        found.append(bytes([pair + 4 + 8 + 16]) + request + b"\x81\x85mask")
    return found


def _said(pair, side, event):
    """A message to one side, out of its conversation: framed as the other side would."""
    if pair == 0:
        return list(rlx.RLXClientSession()._encode(event))
    return list(frames.FrameEncoder(side == 1, "any", LIMITS).message(event))


_TELL = (
    b'{"method": "v0.env.describe", "headers": {"sent_at": 1, "message_id": 0, '
    b'"episode_id": "1"}, "body": {"env_id": "e", "env_state": "running", "fps": 60}}'
)
_ASK = (
    b'{"method": "v0.env.reset", "headers": {"sent_at": 1, "message_id": 0, '
    b'"episode_id": "0"}, "body": {"env_id": "e"}}'
)
TALKS = (
    [
        (0, {"command": "init"}),
        (1, {"response": "ready"}),
        (0, {"command": "update", "reward": 1.0, "state": [1.5, "two"], "terminal": False}),
        (1, {"response": "action", "data": b"x" * 9000}),
    ],
    [(0, "text"), (0, b"y" * 5000), (0, b"y" * 5000), (1, "ü" * 70), (1, b""), (1, b"z" * 9000)],
    [(1, b"\x81\xa1n\x05"), (0, b"\x81\xa1a\xc4\x02xy"), (1, b"\x80"), (0, b"\x93\1\2\3")],
    [(1, _TELL.decode()), (0, _ASK.decode()), (1, _TELL.decode()), (0, "{}")],
)

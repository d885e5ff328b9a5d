"""What a peer wrote into a message reaches no log as more than a short, printable line."""

import functools
import re
from types import SimpleNamespace

import gymnasium
import msgpack as original
import numpy as np
import pytest

import rlwire
from rlwire.codecs import msgpack, rewarder, rlx
from rlwire.environments.spaces import space_of
from rlwire.errors import DecodeError, RlwireError
from rlwire.sessions import rlx as rlx_sessions
from rlwire.sessions import websocket
from tests.memory import at_most
from tests.raising import raised, raised_with

FORGED = "a\n2026-01-01 INFO all is well\x1b[2J\u2028\u202e"
LONG = "k" * 16_000_000


def packed_rlx(key):
    good = rlx.encode({key: 1})
    return good[: good.index(key.encode()) + len(key.encode())] + b"\xff"


def out_of_turn(key):
    rlx_sessions.RLXServerSession().receive(rlx.encode({"command": key}, framed=True))


DECODERS = {
    "rlx": lambda key: rlx.decode(packed_rlx(key)),
    "msgpack": lambda key: msgpack.decode(original.packb({key: 0})[:-1] + b"\xc1"),
    "msgpack dtype": lambda key: msgpack.decode(
        original.packb(
            {b"nd": True, b"type": key, b"kind": b"", b"shape": [], b"data": b"12345678"}
        )
    ),
    "rlx session": out_of_turn,
}


@pytest.mark.parametrize("name", DECODERS)
def test_error_text_escapes_and_truncates_keys(name):
    text = str(raised(RlwireError, DECODERS[name], FORGED))
    assert text.isprintable()
    assert "all is well" in text
    key = LONG[: 1 << 20] if name == "rlx session" else LONG
    assert len(str(raised(RlwireError, DECODERS[name], key))) < 2500


def test_error_path_does_not_copy_a_large_key():
    """What the error costs beside the key itself, which a decoder makes before it is wrong."""
    message = original.packb({LONG: 0})[:-1] + b"\xc1"
    with at_most(1.5 * len(LONG)):
        raised(RlwireError, msgpack.decode, message)


def test_error_text_escapes_and_truncates_the_origin():
    client = websocket.WebSocketClientSession("ws://a/", origin="https://a\x9bforged" + "b" * 4000)
    text = str(raised(RlwireError, websocket.WebSocketServerSession().receive, client.output()[0]))
    assert text.isprintable()
    assert len(text) < 1500


class Odd:
    """Its default repr has an address."""


class Step(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, result):
        self.result = result

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if isinstance(self.result, Exception):
            raise self.result
        return (self.result, 1.0, False, False, {})


@pytest.mark.parametrize("result", [ValueError(f"no {Odd()}"), Odd(), [[1.0], [1.0, 2.0]]])
@pytest.mark.parametrize("url", ["dm-env-rpc://127.0.0.1:0", "universe://127.0.0.1:+0"])
def test_failed_step_error_reveals_no_address_or_numpy_text(url, result):
    options = {"lockstep": True} if url.startswith("universe") else {}
    with (
        rlwire.serve(functools.partial(Step, result), url, **options) as server,
        rlwire.make(server.url) as env,
    ):
        env.reset()
        try:
            text = str(env.step(0)[4])
        except RlwireError as error:
            text = str(error)
    assert not re.search("0x|inhomogeneous|setting an array", text)


@pytest.mark.parametrize("url", ["openpi://127.0.0.1:0", "rlx://127.0.0.1:0"])
def test_failed_agent_error_reveals_no_address(url):
    def fail(*_, **__):
        raise KeyError(Odd())

    agent = SimpleNamespace(init=lambda exploit: True, update=fail)
    served = fail if url.startswith("openpi") else lambda parameter_server: agent
    with rlwire.serve(served, url) as server, rlwire.connect(server.url) as client:
        if url.startswith("rlx"):
            client.init()
        ask = client.update if url.startswith("rlx") else client.infer
        caught = raised_with(RlwireError, "KeyError", ask, {"x": 1})
    assert "0x" not in str(caught)


@pytest.mark.parametrize(
    "space",
    [
        {"box": "float32", "shape": [2], "low": [1, 2, 3]},
        {"box": "float32", "shape": [1], "low": 3, "high": 1}, {"multi_discrete": [0]},
        {"discrete": 0}, {"text": -1}, {"multi_binary": [0]},
    ],
)  # fmt: skip
def test_invalid_space_error_reveals_no_library_text(space):
    assert re.search("wrong types, sizes or ranges", str(raised(DecodeError, space_of, space)))


@pytest.mark.parametrize(
    "body", [b'{"method": 5}', b'{"method": "v0.env.reward", "body": {"reward": "x"}}']
)
def test_json_type_error_reveals_no_msgspec_text(body):
    assert "`" not in str(raised(DecodeError, rewarder.decode, body))

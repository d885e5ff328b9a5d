"""RLX as RELAAX's README writes it: arrays without a dtype."""

import asyncio
import re

import numpy as np
import pytest

import rlwire
from rlwire.codecs import rlx
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from rlwire.rlx import AgentProxy, AsyncAgentProxy, Server
from tests import agents
from tests.raising import raised
from tests.reference import rlx as oracle
from tests.rlx.raw_client import ScriptedServer, connected, read_frame

README = {"dialect": "readme", "dtype": "float32"}
CARTPOLE = np.array([0.0273956, -0.00611216, 0.03585979, 0.0197368], np.float32)
SHAPES = [(), (0,), (4,), (300, 300), (84, 84, 4), (2, 0, 3), (1,) * 32]


# The type of an array, and the length and text of its dtype.
TYPED_ARRAY = re.compile(rb"\x07[\x03-\x07]\0\0\0(float32|bool|[<>][a-zA-Z][0-9])")


def readme(**message):
    """Return what the oracle writes, without the dtypes of arrays."""
    body = TYPED_ARRAY.sub(b"\7", oracle.encode(message))
    return b"%d:%b," % (len(body), body)


UPDATE = {"command": "update", "terminal": False, "state": CARTPOLE, "reward": 1.0}


@pytest.mark.each("shape", SHAPES)
@pytest.mark.each("copy", [True, False, None])
def test_arrays_without_a_dtype_are_encoded_and_decoded(shape, copy, same):
    for dtype in ("float32", "<f4", np.dtype(">i2"), bool, "U3"):
        array = np.ones(shape, dtype)
        message = {"state": array, "data": [array, 1]}
        options = {"dialect": "readme", "dtype": dtype, "framed": True}
        wire = rlx.encode(message, **options)
        assert wire == b"".join(rlx.encode_parts(message, **options)) == readme(**message)
        assert same(rlx.decode(wire, copy=copy, **options), message)
        assert rlx.RLXDecoder(**options).decode_whole(wire, len(wire)).keys() == message.keys()


@pytest.mark.each("shape", SHAPES)
def test_program_dialect_decoder_names_the_dialect_option(shape):
    wire = readme(state=[np.ones(shape, np.float32)])
    caught = raised(DecodeError, rlx.decode, wire, framed=True)
    assert 'dialect="readme"' in str(caught)
    assert "dtype=" in str(caught)
    assert caught.path == "$.state[0]"
    assert caught.offset == wire.index(b"\7", wire.index(b"\x08")) + 5
    # A dtype that is one, but not plain.
    wrong = rlx.encode({"k": np.ones(1)}).replace(b"float64", b"object_")
    assert "dialect" not in str(raised(DecodeError, rlx.decode, wrong))


def test_readme_dialect_decoder_names_the_dialect_option():
    typed = rlx.encode({"state": CARTPOLE})
    assert 'dialect="readme"' in str(raised(DecodeError, rlx.decode, typed, **README))


def test_arrays_without_a_dtype_obey_limits_and_sizes():
    wire = readme(state=np.ones((2, 3), np.float32))
    caught = raised(LimitExceeded, rlx.decode, wire, framed=True, limits=Limits(dims=1), **README)
    assert caught.limit == "dims"
    for dtype in ("float64", "uint8"):
        caught = raised(DecodeError, rlx.decode, wire, framed=True, dialect="readme", dtype=dtype)
        assert caught.path == "$.state"
    for end in range(wire.index(b"\7"), len(wire) - 1):
        raised(DecodeError, rlx.decode, wire[3:end], **README)


def test_array_of_another_dtype_is_an_encode_error():
    for array in (np.ones(2), np.ones(2, ">f4"), np.ones(2, bool)):
        caught = raised(EncodeError, rlx.encode, {"state": [array]}, **README)
        assert caught.path == "$.state[0]"
        assert "float32" in str(caught)


@pytest.mark.each(
    "options",
    [{"dialect": "readme"}, {"dtype": "float32"}, {"dialect": "other", "dtype": "float32"},
     {"dialect": "readme", "dtype": object}, {"dialect": "readme", "dtype": "nothing"}],
)  # fmt: skip
def test_constructors_and_codecs_reject_invalid_dialects(options):
    for call in (
        lambda: rlx.encode({}, **options),
        lambda: rlx.decode(b"\1\0\0\0", **options),
        lambda: AgentProxy("127.0.0.1:1", **options),
        lambda: AsyncAgentProxy("127.0.0.1:1", **options),
        lambda: Server(agents.Agent, "127.0.0.1:0", **options),
        lambda: rlwire.listen("rlx://127.0.0.1:0", **options),
    ):
        assert re.search("dialect|dtype", str(raised(ValueError, call)))


AGENT = """
import numpy as np
from tests import agents

class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        assert state.dtype == np.float32
        return np.append(state, np.float32(reward or 0))
"""


@pytest.mark.parametrize("workers", ["threads", "asyncio", "1"])
def test_readme_dialect_server_replies_to_a_readme_dialect_client(workers, tmp_path, monkeypatch):
    (tmp_path / "agent_of_the_document.py").write_text(AGENT)
    monkeypatch.syspath_prepend(str(tmp_path))  # of a worker process too
    url = f"rlx://127.0.0.1:0?dialect=readme&dtype=float32&workers={workers}"
    with (
        rlwire.serve("agent_of_the_document:Agent", url) as server,
        connected(server.address) as client,
    ):
        client.sendall(readme(command="init", exploit=False))
        assert read_frame(client) == readme(response="ready")
        for _ in range(2):
            client.sendall(readme(**UPDATE))
            action = np.append(CARTPOLE, np.float32(1))
            assert read_frame(client) == readme(response="action", data=action)


@pytest.fixture
def document():
    """A server of the document."""
    answers = readme(response="ready"), readme(response="action", data=CARTPOLE)
    with ScriptedServer(*answers) as script:
        script.address = "{}:{}".format(*script.address)
        yield script


async def exchange_async(address, options):
    async with AsyncAgentProxy(address, **options) as agent:
        await agent.init()
        return await agent.update(1.0, CARTPOLE)


def exchange_by_url(address, options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    with rlwire.connect(f"rlx://{address}?{query}") as agent:
        agent.init()
        return agent.update(1.0, CARTPOLE)


@pytest.mark.parametrize(
    "call", [exchange_by_url, lambda *given: asyncio.run(exchange_async(*given))]
)
def test_client_exchanges_arrays_with_a_readme_dialect_server(call, document, same):
    assert same(call(document.address, README), CARTPOLE)
    order = ("command", "reward", "state", "terminal")
    assert document.frames[1] == readme(**{key: UPDATE[key] for key in order})

"""Messages: the rewarder, PERLERT, d."""

import json
from contextlib import suppress
from functools import partial

import numpy as np
from cases import WIDE, add_cases, case, names, of_codec, refused

from rlwire.codecs import dm_env_rpc as d
from rlwire.codecs import perlert, rewarder
from rlwire.errors import RlwireError
from rlwire.sessions.rewarder import client as rewarder_client
from tests.codecs.dm_env_rpc.wires import field, varint


def backwards(message):
    reported = json.loads(rewarder.encode(message))
    return partial(rewarder.decode, json.dumps(dict(reversed(reported.items()))).encode())


add_cases(
    "rewarder",
    250,
    {
        "infos": lambda n: rewarder.EnvReward(1, False, dict.fromkeys(names(n), 1)),
        "observation": lambda n: rewarder.EnvObservation([[i, i] for i in range(n)]),
        "ragged_observation": lambda n: rewarder.EnvObservation([[1], [2, 3]] * n),
        "events": lambda n: rewarder.AgentAction([("KeyEvent", 97, True)] * n),
        "text": lambda n: rewarder.EnvText('\n"é' * n),
        "headers": lambda n: rewarder.EnvText("x", extra_headers=dict.fromkeys(names(n), 1)),
        "fields": lambda n: rewarder.EnvText("x", extra_body=dict.fromkeys(names(n), 1)),
        "others": lambda n: rewarder.EnvText("x", extra=dict.fromkeys(names(n), 1)),
        "unknown": lambda n: rewarder.UnknownMessage("v1.x", [{"a": [1]}] * n),
    },
    **of_codec(
        rewarder.encode, rewarder.decode, lambda message: rewarder.encode(message)[:-1] + b"!"
    ),
    backwards=backwards,
)


@case(100)
def rewarder_steps(n):
    """Many rewards, texts and infos between two steps, and replies."""
    session = rewarder_client.RewarderClientSession(clock=float, wall=float, attach=True)
    number = iter(range(100_000))
    made = [rewarder.EnvDescribe("x", "running", 60, episode_id="1", message_id=next(number))]
    for i in range(n):
        info = {f"name{i % 2000}": 1, "stats.a": 1}
        headers = {"episode_id": "1"}
        made += [
            rewarder.EnvReward(1, False, info, message_id=next(number), **headers),
            rewarder.EnvText("x" * 10, message_id=next(number), **headers),
            rewarder.EnvObservation([1.5, i], message_id=next(number), **headers),
        ]
    data = [rewarder.encode(one) for one in made]

    def receive():
        for one in data:
            session.receive(one)
        session.peek()
        session.pop_step()

    return receive


def read_array(array, spoil=lambda text: text):
    return partial(perlert.text_to_array, spoil(perlert.value_to_text(array)), array.dtype)


add_cases(
    "perlert",
    250,
    {
        "flat": lambda n: np.arange(n) * 1.5,
        "rows": lambda n: np.zeros((n, 2), np.float32),
        "integers": lambda n: np.arange(n),
        "words": lambda n: np.zeros(n, bool),
    },
    read=read_array,
    wrong=lambda array: refused(read_array(array, lambda text: text[:-1] + "!]")),
    write=lambda array: partial(perlert.value_to_text, array),
)


@case(100)
def perlert_mapping(n):
    mapping = {name: np.zeros(2, np.float32) for name in names(n)}
    text = perlert.value_to_text(mapping)
    return lambda: (perlert.text_to_mapping(text), perlert.value_to_text(mapping))


def both_ways(message):
    encode = partial(perlert.encode, message, limits=WIDE)
    data = encode()
    return lambda: (perlert.decode_server_message(data, limits=WIDE), encode())


@case(100)
def perlert_slots(n):
    slots = [perlert.AgentSlot(f"{i:x}", True, "x", "y", False) for i in range(n)]
    return both_ways(perlert.LobbyInformation("x", 1, slots))


@case(500)
def perlert_step(n):
    return both_ways(perlert.RolloutStep("x", 1, 2, 3, "\0" * n, 1.5, False, "a"))


@case(500)
def perlert_separators(n):
    texts = [b"A;" * n, b";" * n, b"A" * n, b"R;1;" + b"x," * n, b"\xff" * n]

    def read():
        for text in texts:
            for decode in (perlert.decode_client_message, perlert.decode_server_message):
                with suppress(RlwireError):
                    decode(text, limits=WIDE)

    return read


SPEC = d.TensorSpec("a", (2,), d.DataType.FLOAT, np.float32(0), np.float32(1))


def specs(n):
    return {i: d.TensorSpec(name, (2,), d.DataType.FLOAT) for i, name in enumerate(names(n))}


REQUESTS = {
    "settings": lambda n: d.CreateWorldRequest(dict.fromkeys(names(n), 1)),
    "texts": lambda n: d.CreateWorldRequest({"a": np.array(["xy"] * n)}),
    "actions": lambda n: d.StepRequest(dict.fromkeys(range(n), np.float32(1)), []),
    "uids": lambda n: d.StepRequest({}, list(range(n))),
    "tensor": lambda n: d.StepRequest({1: np.arange(n)}, []),
    "bytes": lambda n: d.StepRequest({1: np.zeros(n * 8, np.uint8)}, []),
}
RESPONSES = {
    "observations": lambda n: d.StepResponse(
        d.EnvironmentStateType.RUNNING, dict.fromkeys(range(n), np.zeros(2))
    ),
    "specs": lambda n: d.JoinWorldResponse(
        d.ActionObservationSpecs(specs(n), dict.fromkeys(range(n), SPEC))
    ),
}
for group, decode, encode in (
    (REQUESTS, d.decode_request, d.encode_request),
    (RESPONSES, d.decode_response, d.encode_response),
):
    works = of_codec(encode, decode, lambda message, encode=encode: encode(message)[:-1])
    add_cases("dm_env_rpc", 150, group, **works)

STEP = 3  # of a request's and a response's members


ACTION = field(1, field(1, 1) + field(2, field(1, field(1, b"\0" * 4))))
PIECE = field(2, field(1, field(1, b"\0\0\0\0")))
UID, RESET = field(STEP, field(2, 1)), field(4, b"")
WIRES = {
    # One sub-message in many pieces, each of an action in many pieces of its tensor.
    "pieces": lambda n: (
        field(STEP, field(1, field(1, 1) + PIECE * n + field(2, field(15, n)))) + UID * n
    ),
    "members_in_turn": lambda n: (UID + RESET) * n,
    "members_in_pieces_in_turn": lambda n: (UID * 2 + RESET * 2) * n,
    "unpacked_numbers": lambda n: field(
        STEP, field(1, field(1, 1) + field(2, field(4, field(1, 3) * n) + field(15, n)))
    ),
    "unknown_fields": lambda n: field(100, b"x") * n + field(STEP, field(99, 1) * n),
    "one_key_again": lambda n: field(STEP, ACTION * n),
}
add_cases("dm_env_rpc", 250, WIRES, wire=lambda data: partial(d.decode_request, data))


@case(150)
def dm_env_rpc_shape(n):
    spec = field(2, varint(1) * n) + field(1, b"x") * n
    entry = field(1, field(1, 1) + field(2, spec))
    return refused(partial(d.decode_response, field(2, field(1, entry))))


@case(150)
def dm_env_rpc_manager(n):
    given = specs(n)
    values = {name: np.zeros(2, np.float32) for name in names(n)}

    def use():
        manager = d.SpecManager(given)
        d.decode_step_response(manager, d.encode_step_response(manager, 1, values))
        manager.request(names(n))

    return use


@case(150)
def dm_env_rpc_names_twice(n):
    return refused(partial(d.SpecManager, {**specs(n), n: SPEC, n + 1: SPEC}))


@case(150)
def dm_env_rpc_steps(n):
    manager = d.SpecManager(specs(n))
    values = {name: np.zeros(2, np.float32) for name in names(n)}
    uids = list(range(n))
    state = d.EnvironmentStateType.RUNNING

    def step():
        asked = d.encode_step_request(manager, values, manager.request(names(n)))
        d.decode_step_request(manager, asked)
        d.decode_step_response(manager, d.encode_step_response(manager, state, values, uids))

    return step


@case(150)
def dm_env_rpc_nesting(n):
    flat = {f"{i % 7}.b.{i}": 1 for i in range(n)}
    long = {"a" * n + ".b": 1}
    return lambda: (d.flatten(d.unflatten(flat)), d.unflatten(long))

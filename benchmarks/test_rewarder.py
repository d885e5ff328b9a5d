"""The rewarder of Universe: actions and observations in JSON; against orjson, which checks less."""

from __future__ import annotations

import json

import numpy as np
import orjson
from harness import CARTPOLE, Calls, group

from rlwire.codecs import rewarder

HEADERS = {"sent_at": 1479493678.19, "message_id": 15, "episode_id": "1.2"}
MESSAGES = {
    "action": rewarder.AgentAction([["KeyEvent", 97, True], ["PointerEvent", 10, 20, 0]]),
    "reward": rewarder.EnvReward(-3.0, False, {"lives": 3}),
    "observation": rewarder.EnvObservation(CARTPOLE),
    "1000 numbers": rewarder.EnvObservation(np.random.default_rng(7).random(1000)),
}


@group("orjson", "json", "rlwire", payloads=tuple(MESSAGES))
def test_encode(payload: str) -> tuple[int, Calls]:
    message = MESSAGES[payload].with_headers(**HEADERS)
    wire = rewarder.encode(message)
    value = orjson.loads(wire)
    return len(wire), {
        "orjson": (orjson.dumps, value),
        "json": (json.dumps, value),
        "rlwire": (rewarder.encode, message),
    }


@group("orjson", "json", "rlwire", payloads=tuple(MESSAGES))
def test_decode(payload: str) -> tuple[int, Calls]:
    wire = rewarder.encode(MESSAGES[payload].with_headers(**HEADERS))
    return len(wire), {
        "orjson": (orjson.loads, wire),
        "json": (json.loads, wire),
        "rlwire": (rewarder.decode, wire),
    }

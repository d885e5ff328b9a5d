"""PERLERT: lines and the texts of numbers; against plain Python written with care, and orjson."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import orjson
from harness import Calls, group
from pairs import TINY

from rlwire.codecs import perlert

DATAGRAM = (
    b"city:7:1590853116323:0;obs=x:0.54,y:0.95;reward=1.5;done=false;"
    b"extra=did_jump:true,jump_length:6.84"
)
RANDOM = np.random.default_rng(7)
COUNT = 4 if TINY else 64
# 18 float32 of an agent among others, as in mpe2's environments.
OBSERVATION = RANDOM.normal(size=18).astype(np.float32)
NUMBERS = {
    "4 decimals": np.round(RANDOM.normal(size=COUNT), 4),
    "17 digits": RANDOM.normal(size=COUNT) * 10.0 ** RANDOM.integers(-12, 12, COUNT),
    "any double": RANDOM.integers(0, 0x7FF0 << 48, COUNT, np.uint64).view(np.float64),
}


def split(datagram: bytes) -> list[list[str]]:
    return [field.split(":") for field in datagram.decode().split(";")]


class PlainStep(NamedTuple):
    """The result of the parser in plain Python."""

    name: str
    number: int
    timestamp: int
    step: int
    observation: str
    reward: float | str
    done: bool
    extra: str | None


def plain_integer(text: str) -> int:
    """Read digits only: int() also accepts signs, spaces and underscores."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not an integer: {text!r}")
    return int(text)


def plain_parse(datagram: bytes) -> PlainStep:
    """Read a rollout step with the draft's checks."""
    if len(datagram) > 1200:
        raise ValueError("too long")
    header, _, body = datagram.decode().partition(";")
    name, number, timestamp, step = header.split(":")
    if not name or "," in name or "=" in name:
        raise ValueError("a bad name")
    observation, reward, done, *rest = body.split(";")
    if not (observation[:4] == "obs=" and reward[:7] == "reward=" and done[:5] == "done="):
        raise ValueError("not the fields of a step")
    extra = None
    if rest:
        (extra,) = rest
        if extra[:6] != "extra=":
            raise ValueError("not the fields of a step")
        extra = extra[6:]
        if "=" in extra:
            raise ValueError("a bad extra")
    observation = observation[4:]
    if "=" in observation:
        raise ValueError("a bad observation")
    reward = reward[7:]
    try:
        number_or_text: float | str = float(reward)
    except ValueError:
        if "=" in reward:
            raise
        number_or_text = reward
    done = done[5:]
    if done not in ("true", "false"):
        raise ValueError("a bad boolean")
    numbers = map(plain_integer, (number, timestamp, step))
    return PlainStep(name, *numbers, observation, number_or_text, done == "true", extra)


def plain_format(step: PlainStep) -> bytes:
    """Write a rollout step with the same checks."""
    for character in ":;,=":
        if character in step.name:
            raise ValueError("a bad name")
    if ";" in step.observation or "=" in step.observation:
        raise ValueError("a bad observation")
    extra = step.extra
    if extra is None:
        tail = ""
    elif ";" in extra or "=" in extra:
        raise ValueError("a bad extra")
    else:
        tail = f";extra={extra}"
    datagram = (
        f"{step.name}:{step.number}:{step.timestamp}:{step.step};obs={step.observation};"
        f"reward={step.reward};done={'true' if step.done else 'false'}{tail}"
    ).encode()
    if len(datagram) > 1200:
        raise ValueError("too long")
    return datagram


def bare_format(step: PlainStep) -> bytes:
    return (
        f"{step.name}:{step.number}:{step.timestamp}:{step.step};obs={step.observation};"
        f"reward={step.reward};done={'true' if step.done else 'false'};extra={step.extra}"
    ).encode()


def plain_array(text: str) -> Any:
    """Convert text to an array."""
    return np.array([float(x) for x in text.split(",")])


@group("str.split", "plain Python", "rlwire")
def test_read_a_step() -> tuple[int, Calls]:
    return len(DATAGRAM), {
        "str.split": (split, DATAGRAM),
        "plain Python": (plain_parse, DATAGRAM),
        "rlwire": (perlert.decode_server_message, DATAGRAM),
    }


@group("f-string", "plain Python", "rlwire")
def test_write_a_step() -> tuple[int, Calls]:
    step, plain = perlert.decode_server_message(DATAGRAM), plain_parse(DATAGRAM)
    assert isinstance(step, perlert.RolloutStep)
    assert perlert.encode(step) == plain_format(plain) == bare_format(plain) == DATAGRAM
    return len(DATAGRAM), {
        "f-string": (bare_format, plain),
        "plain Python": (plain_format, plain),
        "rlwire": (perlert.encode, step),
    }


@group("str.split", "float()", "np.fromstring", "orjson", "rlwire", payloads=tuple(NUMBERS))
def test_text_to_floats(payload: str) -> tuple[int, Calls]:
    text = perlert.value_to_text(NUMBERS[payload])
    assert perlert.text_to_array(text).tobytes() == plain_array(text).tobytes()
    return len(text), {
        "str.split": (text.split, ","),
        "float()": (plain_array, text),
        "np.fromstring": (lambda text: np.fromstring(text, sep=","), text),
        "orjson": (lambda text: np.array(orjson.loads(text)), f"[{text}]"),
        "rlwire": (perlert.text_to_array, text),
    }


@group("orjson", "join of repr", "rlwire", payloads=tuple(NUMBERS))
def test_floats_to_text(payload: str) -> tuple[int, Calls]:
    array = NUMBERS[payload]
    return len(perlert.value_to_text(array)), {
        "orjson": (functools.partial(orjson.dumps, option=orjson.OPT_SERIALIZE_NUMPY), array),
        "join of repr": (lambda array: ",".join(map(repr, array.tolist())), array),
        "rlwire": (perlert.value_to_text, array),
    }


@group("join of %.4f", "rlwire")
def test_floats_to_4_decimals() -> tuple[int, Calls]:
    array = NUMBERS["17 digits"]
    ours = functools.partial(perlert.value_to_text, decimals=4)  # without trailing zeros

    def plain(array: Any) -> str:
        return ",".join("%.4f" % x for x in array)  # noqa: UP031

    assert np.array_equal(plain_array(ours(array)), plain_array(plain(array)))
    return len(ours(array)), {"join of %.4f": (plain, array), "rlwire": (ours, array)}


def stream() -> tuple[perlert.StepWriter, tuple[Any, ...], bytes]:
    """Return a writer, its arguments, and the datagram."""
    writer = perlert.StepWriter("simple_spread", 0, decimals=3)
    step = (1590853116323, 250, OBSERVATION, -1.25, False, {"total": -31.5})
    return writer, step, writer.write(*step)


@group("f-string", "rlwire")
def test_write_a_step_of_18_floats() -> tuple[int, Calls]:
    writer, step, datagram = stream()

    def plain(sent: int, number: int, array: Any, reward: float, *_: Any) -> bytes:
        text = ",".join("%.3f" % x for x in array)  # noqa: UP031
        return plain_format(
            PlainStep("simple_spread", 0, sent, number, text, reward, False, "total:-31.5")
        )

    assert len(plain(*step)) >= len(datagram)  # without trailing zeros
    return len(datagram), {"f-string": (plain, *step), "rlwire": (writer.write, *step)}


@group("str.split", "plain Python", "rlwire")
def test_read_a_step_of_18_floats() -> tuple[int, Calls]:
    *_, datagram = stream()

    def read(wire: bytes) -> Any:
        step: Any = perlert.decode_server_message(wire)
        return perlert.text_to_array(step.observation, np.float32)

    def plain(wire: bytes) -> Any:
        return np.array([float(x) for x in plain_parse(wire).observation.split(",")], np.float32)

    return len(datagram), {
        "str.split": (split, datagram),
        "plain Python": (plain, datagram),
        "rlwire": (read, datagram),
    }

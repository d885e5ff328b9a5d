"""How long do PERLERT's datagrams and number texts take, against plain Python written with care?

`python benchmarks/bench_perlert_codec.py` prints the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pairs import TINY, Line, call_times, print_head, print_lines

from rlwire.codecs import perlert

DATAGRAM = (
    b"city:7:1590853116323:0;obs=x:0.54,y:0.95;reward=1.5;done=false;"
    b"extra=did_jump:true,jump_length:6.84"
)
RANDOM = np.random.default_rng(7)
COUNT = 4 if TINY else 64
# As simulators have them: 18 numbers of an agent among others, float32.
OBSERVATION = RANDOM.normal(size=18).astype(np.float32)


# --- the rivals


@dataclass(slots=True)
class PlainStep:
    """What a careful parser in plain Python gives."""

    name: str
    number: int
    timestamp: int
    step: int
    observation: str
    reward: float | str
    done: bool
    extra: str | None


def plain_integer(text: str) -> int:
    """Digits only: int() alone also reads signs, spaces and underscores."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not an integer: {text!r}")
    return int(text)


def plain_parse(datagram: bytes) -> PlainStep:
    """A rollout step, with the checks that the draft asks for."""
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
    return PlainStep(
        name,
        plain_integer(number),
        plain_integer(timestamp),
        plain_integer(step),
        observation,
        number_or_text,
        done == "true",
        extra,
    )


def plain_format(step: PlainStep) -> bytes:
    """The way back, with the same checks."""
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
    """The same with no check at all."""
    return (
        f"{step.name}:{step.number}:{step.timestamp}:{step.step};obs={step.observation};"
        f"reward={step.reward};done={'true' if step.done else 'false'};extra={step.extra}"
    ).encode()


def plain_array(text: str) -> Any:
    """Text to an array."""
    return np.array([float(x) for x in text.split(",")])


def numpy_array(text: str) -> Any:
    """Text to an array by NumPy's own reader, which stops without a word at what it cannot read."""
    return np.fromstring(text, sep=",")


def plain_decimals(array: Any) -> str:
    """An array to text, four decimals."""
    return ",".join("%.4f" % x for x in array)  # noqa: UP031


def plain_shortest(array: Any) -> str:
    """An array to text that reads back the same."""
    return ",".join(map(repr, array.tolist()))


# --- the works


def our_decimals(array: Any) -> str:
    """The same text as `plain_decimals`."""
    text: str = perlert.array_to_text(array, decimals=4)
    return text


STEP = perlert.decode_server_message(DATAGRAM)
assert isinstance(STEP, perlert.RolloutStep)
PLAIN_STEP = plain_parse(DATAGRAM)
ROUNDED = np.round(RANDOM.normal(size=COUNT), 4)
WIDE = RANDOM.normal(size=COUNT) * 10.0 ** RANDOM.integers(-12, 12, COUNT)
ANY = RANDOM.integers(0, 0x7FF0 << 48, COUNT, np.uint64).view(np.float64)


def _text(array: Any) -> str:
    return perlert.array_to_text(array)


Calls = dict[str, tuple[Callable[..., Any], Any]]

WORKS: dict[str, tuple[Calls, float | None]] = {
    "datagram to a step": (
        {"rlwire": (perlert.decode_server_message, DATAGRAM), "str.split": (plain_parse, DATAGRAM)},
        5,
    ),
    "step to a datagram": (
        {"rlwire": (perlert.encode, STEP), "f-string": (plain_format, PLAIN_STEP)},
        3,
    ),
    "step to a datagram, rival unchecked": (
        {"rlwire": (perlert.encode, STEP), "f-string": (bare_format, PLAIN_STEP)},
        None,
    ),
    f"text to {COUNT} floats, 4 decimals": (
        {
            "rlwire": (perlert.text_to_array, _text(ROUNDED)),
            "np.array of float()": (plain_array, _text(ROUNDED)),
            "np.fromstring": (numpy_array, _text(ROUNDED)),
        },
        6,
    ),
    f"text to {COUNT} floats, 17 digits": (
        {
            "rlwire": (perlert.text_to_array, _text(WIDE)),
            "np.array of float()": (plain_array, _text(WIDE)),
            "np.fromstring": (numpy_array, _text(WIDE)),
        },
        None,
    ),
    f"text to {COUNT} floats, any double": (
        {
            "rlwire": (perlert.text_to_array, _text(ANY)),
            "np.array of float()": (plain_array, _text(ANY)),
            "np.fromstring": (numpy_array, _text(ANY)),
        },
        None,
    ),
    f"{COUNT} floats to 4 decimals": (
        {"rlwire": (our_decimals, WIDE), "join of %.4f": (plain_decimals, WIDE)},
        15,
    ),
    f"{COUNT} floats to shortest, 4 decimals": (
        {"rlwire": (perlert.array_to_text, ROUNDED), "join of repr": (plain_shortest, ROUNDED)},
        None,
    ),
    f"{COUNT} floats to shortest, 17 digits": (
        {"rlwire": (perlert.array_to_text, WIDE), "join of repr": (plain_shortest, WIDE)},
        None,
    ),
}


def _stream() -> None:
    """The steps of one instance, a reader and a writer made once."""
    writer = perlert.StepWriter("simple_spread", 0, decimals=3)
    reader = perlert.StepReader("simple_spread", 0)
    datagram = writer.write(1590853116323, 250, OBSERVATION, -1.25, False, {"total": -31.5})

    def write(observation: Any) -> bytes:
        return writer.write(1590853116323, 250, observation, -1.25, False, {"total": -31.5})

    def plain_write(observation: Any) -> bytes:
        return plain_format(
            PlainStep(
                "simple_spread",
                0,
                1590853116323,
                250,
                ",".join("%.3f" % x for x in observation),  # noqa: UP031
                -1.25,
                False,
                "total:-31.5",
            )
        )

    def read(wire: bytes) -> Any:
        step = reader.read(wire)
        assert step is not None
        return perlert.text_to_array(step[2], np.float32)

    def plain_read(wire: bytes) -> Any:
        return np.array([float(x) for x in plain_parse(wire).observation.split(",")], np.float32)

    WORKS["write a step of 18 float32"] = (
        {"rlwire": (write, OBSERVATION), "f-string": (plain_write, OBSERVATION)},
        None,
    )
    WORKS["read a step of 18 float32"] = (
        {"rlwire": (read, datagram), "str.split": (plain_read, datagram)},
        None,
    )
    WORKS["StepReader.read alone"] = (
        {"rlwire": (reader.read, datagram), "str.split": (plain_parse, datagram)},
        None,
    )


_stream()


def lines() -> list[Line]:
    """The ratios and their targets."""
    found = []
    for work, (calls, target) in WORKS.items():
        times = call_times(calls)
        for place, rival in enumerate(list(calls)[1:]):
            aim = target if place == 0 else None
            found.append(Line(work, times["rlwire"], rival, times[rival], aim, faster=True))
    return found


if __name__ == "__main__":
    assert perlert.encode(STEP) == plain_format(PLAIN_STEP) == bare_format(PLAIN_STEP) == DATAGRAM
    assert our_decimals(WIDE) == plain_decimals(WIDE)
    assert perlert.text_to_array(_text(ANY)).tobytes() == plain_array(_text(ANY)).tobytes()
    print_head(f"PERLERT's datagrams, {len(DATAGRAM)} bytes, and texts of numbers.")
    print_lines(lines())

"""Times the functions that `rlwire.install("lerobot")` replaces, beside pickle and torch.save.

The values are an observation of two cameras, 50 actions, and 100 transitions of states or of
images. "decode" is of what the receiver has joined, "receive" of several chunks. LeRobot and
PyTorch are not in the dependency group `benchmarks`.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from pairs import TINY, Line, print_head, print_lines
from rounds import take_turns

SECONDS = 0.05 if TINY else 3.0


def transitions(shapes: dict[str, tuple[int, ...]]) -> list[dict[str, Any]]:
    return [
        {
            "state": {name: torch.rand(shape) for name, shape in shapes.items()},
            "action": torch.rand(1, 14),
            "reward": 0.5,
            "next_state": {name: torch.rand(shape) for name, shape in shapes.items()},
            "done": False,
            "truncated": False,
            "complementary_info": {"discrete_penalty": torch.tensor(0.0)},
        }
        for _ in range(100)
    ]


def works() -> dict[str, tuple[Any, str, tuple[float, float]]]:
    """Return values, rivals, and how many times faster rlwire should be: encode, decode."""
    from lerobot.async_inference.helpers import TimedAction, TimedObservation

    cameras = {name: np.zeros((480, 640, 3), np.uint8) for name in ("front", "wrist")}
    raw = {**cameras, **{f"joint{i}.pos": i + 0.1 for i in range(14)}, "task": "pick"}
    images = {f"observation.image.{name}": (1, 3, 128, 128) for name in cameras}
    return {
        "observation": (TimedObservation(1.5, 3, raw, True), "pickle", (15, 20)),
        "50 actions": (
            [TimedAction(i / 30, i, action) for i, action in enumerate(torch.rand(50, 14))],
            "pickle",
            (10, 10),
        ),
        "100 states": (transitions({"observation.state": (1, 14)}), "pickle", (15, 15)),
        "100 images": (transitions(images), "torch.save", (3, 10)),
    }


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def loaded(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def chunks(message: bytes) -> list[Any]:
    """Return a message as LeRobot's gRPC messages bring it."""
    starts = range(0, len(message), utils.CHUNK_SIZE)
    states = [utils.TransferState.TRANSFER_MIDDLE] * len(starts)
    states[-1] = utils.TransferState.TRANSFER_END
    return [
        SimpleNamespace(transfer_state=state, data=message[start : start + utils.CHUNK_SIZE])
        for state, start in zip(states, starts, strict=True)
    ]


def main() -> None:
    import rlwire
    from rlwire.codecs.lerobot import Codec

    torch.set_num_threads(1)
    codec = Codec()
    join = FunctionType(utils.receive_bytes_in_chunks.__code__, vars(utils), "join", ("",))
    rlwire.install("lerobot")
    ends: dict[str, tuple[Callable[..., Any], ...]] = {
        "pickle": (pickle.dumps, join, pickle.loads),
        "torch.save": (saved, join, loaded),
        "rlwire": (codec.encode, utils.receive_bytes_in_chunks, codec.decode),
    }
    lines = []
    for name, (value, rival, (encodes, decodes)) in works().items():
        calls: dict[str, dict[str, Callable[[], Any]]] = {}
        sizes = []
        for end in ("rlwire", rival):
            encode, receive, decode = ends[end]
            message = encode(value)
            sizes.append(len(message))
            receive = functools.partial(receive, chunks(message), None, threading.Event())
            calls.setdefault("encode", {})[end] = functools.partial(encode, value)
            calls.setdefault("decode", {})[end] = functools.partial(decode, receive())
            if len(message) > utils.CHUNK_SIZE:
                calls.setdefault("receive", {})[end] = functools.partial(received, receive, decode)
        assert sizes[0] < sizes[1], name
        for what, both in calls.items():
            found = take_turns(both, SECONDS, 10)
            target = {"encode": encodes, "decode": decodes, "receive": 8}[what]
            lines.append(
                Line(f"{what} {name}", found["rlwire"], rival, found[rival], target, faster=True)
            )
    print_lines(lines)


def received(receive: Callable[[], bytes], decode: Callable[[bytes], Any]) -> Any:
    return decode(receive())


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "consumers"))
    import lerobot_stand_ins

    print_head(__doc__.partition("\n")[0], "lerobot", "torch")
    try:
        import lerobot  # noqa: F401
        import torch
    except ImportError as error:
        print(f"{error.name} is not installed: pip install torch; pip install --no-deps lerobot")
    else:
        lerobot_stand_ins.install()
        from lerobot.transport import utils

        main()

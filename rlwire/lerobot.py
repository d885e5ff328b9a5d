"""The drop-in for LeRobot: `rlwire.install("lerobot")`, at both ends.

LeRobot sends observations, actions, transitions and weights as pickles over gRPC. Whoever reaches
its port can run code (CVE-2026-25874). With the drop-in they are messages of `Codec`. gRPC and its
messages stay LeRobot's.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import logging
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from rlwire._imports import after_import
from rlwire.buffers import joined
from rlwire.codecs.lerobot import PICKLES, Codec, NotLoaded, different
from rlwire.errors import LimitExceeded, on_error
from rlwire.limits import DEFAULT, Limits
from rlwire.msgpack_numpy import replace_code

# Code that runs in `lerobot.transport.utils`.
_rlwire: Any = None
_CODE: dict[str, Any] = {
    "state_to_bytes": lambda state_dict: _rlwire.dumps(state_dict),
    "bytes_to_state_dict": lambda buffer: _rlwire.loads(buffer, dict),
    "python_object_to_bytes": lambda python_object: _rlwire.dumps(python_object),
    "bytes_to_python_object": lambda buffer: _rlwire.loads(buffer),
    "bytes_to_transitions": lambda buffer: _rlwire.loads(buffer, list),
    "transitions_to_bytes": lambda transitions: _rlwire.dumps(transitions),
    "receive_bytes_in_chunks": lambda iterator, queue, shutdown_event, log_prefix="": (
        _rlwire.receive(iterator, queue, shutdown_event, log_prefix)
    ),
}
# The SHA-256 of their source, in LeRobot 0.4.3 to 0.6.2.
_SOURCE = "e7f0588cf764a66d60eb25726bef4b9704315ea5929a9b7d95f28e4b62aab4f2"
# These modules call `pickle` inline.
_MODULES = ("lerobot.async_inference.policy_server", "lerobot.async_inference.robot_client")


def _receive(
    limits: Limits, states: Any, iterator: Any, queue: Any, shutdown: Any, prefix: Any
) -> bytes | bytearray | None:
    """Join chunks, as LeRobot does; one chunk is not copied, several become a bytearray."""
    parts: list[bytes] = []
    size = 0
    logging.info("%s Starting receiver", prefix)
    for item in iterator:
        if shutdown.is_set():
            logging.info("%s Shutting down receiver", prefix)
            return None
        state, data = item.transfer_state, item.data
        if state == states.TRANSFER_BEGIN:
            parts, size = [], 0
        elif state not in (states.TRANSFER_MIDDLE, states.TRANSFER_END):
            logging.warning("%s Received unknown transfer state %s", prefix, state)
            raise ValueError(f"Received unknown transfer state {state}")
        size += len(data)
        if size > limits.message:
            raise LimitExceeded("message", limits.message, size)
        parts.append(data)
        if state != states.TRANSFER_END:
            continue
        message = data if len(parts) == 1 else joined(parts)
        parts, size = [], 0
        # Before it is queued: so only the peer that sent it is told, and the loop goes on.
        if message.startswith(PICKLES):
            raise NotLoaded(message)
        if queue is None:
            return message
        queue.put(message)
    return None


def replace_lerobot(*, limits: Limits | None = DEFAULT) -> contextlib.ExitStack:
    """Replace the code of the functions, and `pickle` in the modules that call it themselves."""
    from lerobot.transport import utils

    try:
        sources = [inspect.getsource(getattr(utils, name)) for name in _CODE]
    except (AttributeError, OSError, TypeError) as error:
        raise different(f"{utils.__name__} ({error})") from None
    if hashlib.sha256("".join(sources).encode()).hexdigest() != _SOURCE:
        raise different(f"a function of {utils.__name__}")
    undo = contextlib.ExitStack()
    codec = Codec(limits)
    receive = functools.partial(_receive, codec.limits, utils.TransferState)
    ours = SimpleNamespace(dumps=codec.encode, loads=codec.decode, receive=receive)

    def replace(module: ModuleType) -> None:
        used = set(re.findall(r"\bpickle\.(\w+)", inspect.getsource(module)))
        own = getattr(module, "pickle", None)
        if not used <= {"dumps", "loads"} or type(own) is not ModuleType:
            raise different(module.__name__)
        undo.callback(setattr, module, "pickle", own)
        vars(module)["pickle"] = ours

    with on_error(undo.close):
        for name in _MODULES:
            if name in sys.modules:
                replace(sys.modules[name])
            undo.callback(after_import(name, replace))
        replace_code(undo, utils, _CODE, ours)
    return undo

"""What all tests share: the slow oracle, a strict comparison, and the count of live blocks."""

from __future__ import annotations

import gc
import importlib.util
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest
from PIL import Image

from rlwire import buffers

# Ctrl-C is ignored in what a shell script starts in the background, and in what that starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair; pytest-timeout sees what hangs.
hypothesis.settings.register_profile(
    "rlwire", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("rlwire")


@pytest.fixture(autouse=True)
def no_leaked_blocks(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """In a debug build: whatever a test received into is freed when it ends."""
    before = buffers.live_blocks()
    yield
    if not buffers.DEBUG:
        return
    # pytest keeps what is logged, and an error among it the frames that it came through.
    logged = request.config.pluginmanager.get_plugin("logging-plugin")
    deadline = time.monotonic() + 2.0  # a connection's thread may still be on its way out
    while buffers.live_blocks() > before and time.monotonic() < deadline:
        for records in (
            caplog.get_records("call"),
            logged.caplog_handler.records,
            logged.report_handler.records,
        ):
            records.clear()
        gc.collect()
        time.sleep(0.01)
    assert buffers.live_blocks() <= before, "blocks outlive the test"


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    """`tests/reference/rlx.py`: encode() and decode() in slow Python."""
    path = Path(__file__).parent / "reference" / "rlx.py"
    spec = importlib.util.spec_from_file_location("rlx_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """Whether two values are the same in type, order, dtype, byte order, shape and every bit."""
    return _same


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Image.Image) and isinstance(other, Image.Image):
        return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        return (one.dtype.str, one.shape, one.tobytes()) == (
            other.dtype.str,
            other.shape,
            other.tobytes(),
        )
    if isinstance(one, float):
        return one.hex() == other.hex()
    return bool(one == other)

"""What the tests of codecs share."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def protobuf():
    """`tests/reference/dm_env_rpc.py`: our values to protobuf's own messages and back."""
    path = Path(__file__).parents[1] / "reference" / "dm_env_rpc.py"
    spec = importlib.util.spec_from_file_location("dm_env_rpc_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def perlert_oracle():
    """`tests/reference/perlert.py`: PERLERT in slow Python, from the draft alone."""
    path = Path(__file__).parents[1] / "reference" / "perlert.py"
    spec = importlib.util.spec_from_file_location("perlert_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""What the tests of codecs share."""

import importlib

import pytest


@pytest.fixture(scope="session")
def protobuf():
    """`tests/reference/dm_env_rpc.py`: our values to protobuf's own messages and back."""
    return importlib.import_module("tests.reference.dm_env_rpc")


@pytest.fixture(scope="session")
def perlert_oracle():
    """`tests/reference/perlert.py`: PERLERT in slow Python, from the draft alone."""
    return importlib.import_module("tests.reference.perlert")

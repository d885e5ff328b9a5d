"""The error that a call raises, for a test of its facts."""

import re

import pytest

__all__ = ["raised", "raised_with"]


def raised(kind, call, /, *arguments, **options):
    """Return the error of this class, or of one of several, that the call raises."""
    try:
        result = call(*arguments, **options)
    except kind as error:
        return error.with_traceback(None)  # which would keep the arguments alive
    return pytest.fail(f"raised no {kind}, returned {result!r:.200}")


def raised_with(kind, pattern, call, /, *arguments, **options):
    """Return the error that the call raises, once its text matches this pattern."""
    error = raised(kind, call, *arguments, **options)
    assert re.search(pattern, str(error)), error
    return error

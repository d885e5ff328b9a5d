"""The error that a call raises, for a test of its facts."""

import pytest

__all__ = ["raised"]


def raised(kind, call, /, *arguments, **options):
    """Return the error of this class, or of one of several, that the call raises."""
    try:
        result = call(*arguments, **options)
    except kind as error:
        return error.with_traceback(None)  # which would keep the arguments alive
    return pytest.fail(f"raised no {kind}, returned {result!r:.200}")

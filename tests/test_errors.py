from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from rlwire import errors
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, MissingExtra, RlwireError

BASES = {
    "EncodeError": ValueError,
    "DecodeError": ValueError,
    "LimitExceeded": ValueError,
    "LocalProtocolError": Exception,
    "RemoteProtocolError": Exception,
    "PeerError": Exception,
    "DeadlineExceeded": TimeoutError,
    "ConnectionClosed": ConnectionError,
    "MissingExtra": ImportError,
}


def test_the_tree_is_the_one_of_the_docstring() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert set(classes) == set(errors.__all__) == {"RlwireError", *BASES}
    for name, base in BASES.items():
        assert issubclass(classes[name], RlwireError)
        assert issubclass(classes[name], base)
        assert classes[name].__name__ in (errors.__doc__ or "")
        if base is not Exception:
            assert f"({base.__name__})" in (errors.__doc__ or "")
    for name, base in BASES.items():
        if base is Exception:
            assert classes[name].__bases__ == (RlwireError,)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (EncodeError("no type"), "no type"),
        (EncodeError("no type", path="$.a[3]"), "no type - at $.a[3]"),
        (DecodeError("bad byte", offset=7), "bad byte - at byte 7"),
        (DecodeError("bad byte", offset=7, path="$.a"), "bad byte - at byte 7, $.a"),
        (LimitExceeded("depth", 64, 65), "65 is over the limit depth=64"),
        (LimitExceeded("depth", 64, 65, path="$.a"), "65 is over the limit depth=64 - at $.a"),
        (LimitExceeded("depth", 64, 65, offset=0), "65 is over the limit depth=64 - at byte 0"),
        (
            LimitExceeded("depth", 64, 65, offset=9, path="$.a"),
            "65 is over the limit depth=64 - at byte 9, $.a",
        ),
        (
            LimitExceeded("depth", 64, 65, offset=9, advice="nest less"),
            "65 is over the limit depth=64 - at byte 9: nest less",
        ),
        (
            MissingExtra("ale_py", "bench"),
            "ale_py is not installed; it comes with the extra 'bench': pip install 'rlwire[bench]'",
        ),
    ],
)
def test_texts(error: RlwireError, words: str) -> None:
    assert str(error) == words


def test_attributes() -> None:
    encode = EncodeError("why", path="$.a")
    assert (encode.reason, encode.path) == ("why", "$.a")
    decode = DecodeError("why", offset=3, path="$.a")
    assert (decode.reason, decode.offset, decode.path) == ("why", 3, "$.a")
    limit = LimitExceeded("items", 5, 6, offset=1, path="$")
    assert (limit.limit, limit.maximum, limit.size) == ("items", 5, 6)
    assert (limit.offset, limit.path) == (1, "$")
    assert LimitExceeded("items", 5, 6).offset is None
    missing = MissingExtra("rich", "bench")
    assert (missing.package, missing.extra) == ("rich", "bench")


@pytest.mark.parametrize(
    "error",
    [
        EncodeError("why", path="$.a"),
        DecodeError("why", offset=3, path="$.a"),
        LimitExceeded("items", 5, 6, offset=1, path="$"),
        LimitExceeded("items", 5, 6),
        LimitExceeded("items", 5, 6, advice="send fewer"),
        MissingExtra("rich", "bench"),
        errors.PeerError("text"),
        errors.ConnectionClosed("text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_sent_to_another_process(error: RlwireError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)

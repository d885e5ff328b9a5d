import logging

import pytest

from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc import StatusError
from rlwire.dm_env_rpc.status import report, status_of
from rlwire.errors import DecodeError, EncodeError, LimitExceeded


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StatusError(Code.ALREADY_EXISTS, "one is enough"), 6, "step: one is enough"),
        (ValueError("a seed is positive"), 3, "step: a seed is positive"),
        (ValueError(), 3, "step: ValueError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 3, "step: 'utf-8' codec"),
        (DecodeError("no", offset=3), 3, "step: no - at byte 3"),
        (EncodeError("float16"), 13, "step: rlwire.errors.EncodeError: float16"),
        (LimitExceeded("message", 5, 6), 8, "6 is over the limit message=5"),
        (NotImplementedError("later"), 12, "step: NotImplementedError: later"),
        (PermissionError("no"), 7, "step: PermissionError: no"),
        (TimeoutError("slow"), 4, "step: TimeoutError: slow"),
        (MemoryError(), 8, "step: MemoryError"),
        (KeyError("pos"), 13, "step: KeyError: 'pos'"),
        (SystemExit(1), 13, "step: SystemExit: 1"),
    ],
)
def test_exceptions_convert_to_a_status_code_and_message(error, code, text):
    status = status_of("step", error)
    assert status.code == code
    assert text in status.message
    assert status.message.startswith("step: ")
    assert status.details == ()


def test_status_message_is_encodable_and_bounded():
    status = status_of("step", ValueError("x" * 5000 + "end"))
    assert len(status.message) == 2003
    assert status.message.endswith("x...")
    assert status_of("step", ValueError("\udcff")).message == "step: \\udcff"


def test_failed_request_is_logged_with_peer_and_severity(caplog):
    """The world's own exceptions have their traceback at ERROR; what it refuses has none."""
    caplog.set_level(logging.INFO, "rlwire")
    for what, error in (
        ("step", KeyError("pos")),
        ("step", ValueError("a bug")),
        ("join_world", KeyError("pos")),
        ("step", StatusError(Code.NOT_FOUND, "no world")),
        ("join_world", ValueError("no such level")),
        ("step", EncodeError("no tensor")),
    ):
        report(logging.getLogger("rlwire"), "10.0.0.7:5", what, error)
    lines = [(each.levelname, each.getMessage(), bool(each.exc_info)) for each in caplog.records]
    assert lines == [
        ("ERROR", "10.0.0.7:5: step: KeyError: 'pos'", True),
        ("ERROR", "10.0.0.7:5: step: a bug", True),
        ("ERROR", "10.0.0.7:5: join_world: KeyError: 'pos'", True),
        ("WARNING", "10.0.0.7:5: step: no world", False),
        ("WARNING", "10.0.0.7:5: join_world: no such level", False),
        ("ERROR", "10.0.0.7:5: step: rlwire.errors.EncodeError: no tensor", False),
    ]

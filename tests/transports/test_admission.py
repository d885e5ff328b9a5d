import pytest

from rlwire.errors import LimitExceeded
from rlwire.transports.admission import Admission
from tests.raising import raised


def test_connections_are_limited_in_total_and_per_address():
    admission = Admission(4, 2)
    admission.enter("192.0.2.1")
    admission.enter("192.0.2.1")
    with pytest.raises(LimitExceeded, match=r"max_connections_per_address=2.*192\.0\.2\.1"):
        admission.enter("192.0.2.1")
    admission.enter("192.0.2.2")
    admission.enter("")
    assert raised(LimitExceeded, admission.enter, "192.0.2.3").limit == "max_connections"
    assert admission._count == 4
    admission.leave("192.0.2.1")
    admission.enter("192.0.2.1")
    for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2", ""):
        admission.leave(host)
    assert admission._count == 0
    assert not admission._open, "nothing is kept of those who left"


def test_unix_connections_count_towards_the_total_only():
    admission = Admission(5, 1)
    for _ in range(5):
        admission.enter("")
    assert raised(LimitExceeded, admission.enter, "").limit == "max_connections"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True), ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True), ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%1", "fe80::2%2", True), ("odd:address", "odd:address", True),
        ("odd:address", "other:address", False),
    ],
)  # fmt: skip
def test_addresses_of_one_host_are_counted_together(one, other, same):
    admission = Admission(5, 1)
    admission.enter(one)
    if same:
        raised(LimitExceeded, admission.enter, other)
    else:
        admission.enter(other)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "5", None])
def test_invalid_admission_arguments_are_rejected(wrong):
    assert "1" in str(raised(ValueError, Admission, wrong, 1))
    assert "1" in str(raised(ValueError, Admission, 1, wrong))

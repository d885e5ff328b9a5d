import dataclasses

import pytest

from rlwire.limits import DEFAULT, Limits
from tests.raising import raised_with

FIELDS = [field.name for field in dataclasses.fields(Limits)]


def test_default_limits_are_finite_and_documented():
    assert Limits() == DEFAULT
    assert DEFAULT.message == 10**9  # RELAAX's own maximum
    for name in FIELDS:
        assert 0 < getattr(DEFAULT, name) <= 10**9
        assert f"{name}:" in (Limits.__doc__ or "")
    assert DEFAULT.received <= DEFAULT.message


@pytest.mark.each("name", FIELDS)
@pytest.mark.each("value", [0, -1, 1.5, "5", None, True])
def test_limits_other_than_positive_ints_are_rejected(name, value):
    raised_with(ValueError, f"limit {name} must be a positive int", Limits, **{name: value})


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("message", 2**60 - 1),
        ("string", 2**60 - 1),
        ("items", 2**60 - 1),
        ("expanded", 2**60 - 1),
        ("depth", 500),
        ("dims", 32),
        ("datagram", 65_507),
    ],
)
def test_limits_are_bounded_by_the_kernels(name, most):
    assert getattr(Limits(**{name: most}), name) == most
    raised_with(ValueError, f"limit {name} must be", Limits, **{name: most + 1})


def test_limits_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.depth = 5
    assert dataclasses.replace(DEFAULT, depth=5).depth == 5
    assert len({Limits(), Limits(), Limits(depth=5)}) == 2

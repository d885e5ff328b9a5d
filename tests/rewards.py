"""Rewards of every scalar type that environments return, and the number that each is."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

REWARDS = [
    (np.array([1.5]), 1.5), (np.array([[2]], np.uint8), 2.0), (Fraction(1, 4), 0.25), (True, 1.0),
    (Decimal("0.5"), 0.5), (np.float16(3), 3.0), (np.float32(0.5), 0.5), (np.bool_(True), 1.0),
    (10**30, 1e30), (math.nan, math.nan), (-math.inf, -math.inf), (np.inf, math.inf),
]  # fmt: skip
of_any_scalar_type = pytest.mark.parametrize(("reward", "number"), REWARDS)

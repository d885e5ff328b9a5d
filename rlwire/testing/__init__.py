"""Tests to inherit: `rlx`, for RLX servers. Tests by recordings: `replay`."""

from rlwire.testing.recordings import Difference as Difference
from rlwire.testing.recordings import replay as replay

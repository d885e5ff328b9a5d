"""Regression tests of servers and clients against recordings; needs the extra `record`."""

from rlwire.recording.replaying import Difference as Difference
from rlwire.recording.replaying import replay as replay

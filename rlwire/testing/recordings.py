"""Regression tests of servers and clients against recordings; needs the extra `record`."""

from rlwire.recording.replaying import Difference, replay

__all__ = ["Difference", "replay"]

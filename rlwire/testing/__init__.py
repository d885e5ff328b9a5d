"""Conformance tests to inherit: `rlx`, for RLX servers."""

"""Algorithms that are shipped, for ``algorithm:NAME``."""

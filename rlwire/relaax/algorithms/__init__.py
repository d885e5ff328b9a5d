"""The algorithms that rlwire ships, for ``algorithm:NAME``."""

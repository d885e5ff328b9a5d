"""Algorithms that come with rlwire, for ``algorithm:NAME``: to be read and copied."""

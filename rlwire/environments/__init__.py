"""Environments of any kind, driven in one way: one, or many side by side."""

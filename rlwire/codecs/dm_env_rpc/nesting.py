"""Nested dictionaries to dm_env_rpc's flat names, which nest at periods, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

__all__ = ["flatten", "is_within", "unflatten"]


def flatten(nested: Mapping[str, Any], *, strict: bool = True) -> dict[str, Any]:
    """Return one flat dictionary with keys joined by periods. An empty mapping is a value."""
    flat: dict[str, Any] = {}
    _flatten(nested, strict, "", flat)
    return flat


def _flatten(nested: Mapping[str, Any], strict: bool, prefix: str, flat: dict[str, Any]) -> None:
    for key, value in nested.items():
        if not isinstance(key, str):
            raise EncodeError(f"a key must be str, not {type(key).__qualname__} ({quoted(key)})")
        if strict and "." in key:
            raise EncodeError(f"the key {quoted(key)} contains '.', which separates nested keys")
        name = prefix + key
        if isinstance(value, Mapping) and value:
            _flatten(value, strict, name + ".", flat)
        elif name in flat:
            raise EncodeError(f"two values have the flat name {quoted(name)}")
        else:
            flat[name] = value


class _Branch(dict[str, Any]):
    """A dictionary created by `unflatten`, as opposed to a dictionary that is a value."""


def is_within(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is one of `names` or nests in one, as ``task.size`` in ``task``."""
    return any(name == each or name.startswith(each + ".") for each in names)


def unflatten(flat: Mapping[str, Any], *, limits: Limits = DEFAULT) -> dict[str, Any]:
    """Return nested dictionaries; each name is split into keys at its periods."""
    root = _Branch()
    for name, value in flat.items():
        keys = name.count(".") + 1
        if keys > limits.depth:
            raise LimitExceeded("depth", limits.depth, keys)
        *outer, last = name.split(".")
        branch = root
        for key in outer:
            inner = branch.setdefault(key, _Branch())
            if type(inner) is not _Branch:
                raise EncodeError(f"{quoted(name)} nests in {quoted(key)}, which is a value itself")
            branch = inner
        if last in branch:
            raise EncodeError(f"{quoted(name)} is a value, but other names nest in it")
        branch[last] = value
    return _plain(root)


def _plain(branch: _Branch) -> dict[str, Any]:
    return {
        key: _plain(value) if type(value) is _Branch else value for key, value in branch.items()
    }

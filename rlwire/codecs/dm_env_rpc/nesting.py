"""Nested dictionaries and dm_env_rpc's flat names, which nest at a period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

__all__ = ["flatten", "is_within", "unflatten"]


def flatten(nested: Mapping[str, Any], *, strict: bool = True) -> dict[str, Any]:
    """Return one flat dictionary; keys are joined by periods. An empty mapping is a value."""
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
            raise EncodeError(f"two values would be called {quoted(name)}")
        else:
            flat[name] = value


class _Branch(dict[str, Any]):
    """A dictionary that unflatten made, not one that is a value."""


def is_within(name: str, names: Iterable[str]) -> bool:
    """Whether a flat name is one of these, or nests in one, as ``task.size`` does in ``task``."""
    return any(name == each or name.startswith(each + ".") for each in names)


def unflatten(flat: Mapping[str, Any], *, limits: Limits = DEFAULT) -> dict[str, Any]:
    """Return nested dictionaries; each name is split into the keys on the way to its value."""
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
                raise EncodeError(
                    f"{quoted(name)} needs {quoted(key)} to hold values, but it is one itself"
                )
            branch = inner
        if last in branch:
            raise EncodeError(f"{quoted(name)} is a value, but other names begin with it")
        branch[last] = value
    return _plain(root)


def _plain(branch: _Branch) -> dict[str, Any]:
    return {
        key: _plain(value) if type(value) is _Branch else value for key, value in branch.items()
    }

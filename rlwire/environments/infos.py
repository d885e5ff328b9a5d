"""Gymnasium's infos as MessagePack with arrays, if client and server are both rlwire's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, quoted, shown, text_of
from rlwire.limits import DEFAULT, Limits

logger = logging.getLogger(__name__)

_NESTED = 1000  # mappings of an info that are searched for entries that cannot be carried
_LOGGED = 100  # entries that are logged: their keys may be others in each step


class InfoCodec:
    """Encodes infos without the entries that `decode` would reject, and logs each of these once."""

    def __init__(self, limits: Limits = DEFAULT, default: Any = None, ext_hook: Any = None) -> None:
        # Keys may be numbers, tuples and None. "nd" is a key of the user, b"nd" marks an array.
        options: dict[str, Any] = {"limits": limits, "arrays": "bytes", "strict_map_key": False}
        options["ext_hook"] = ext_hook
        self._encode = msgpack.Encoder(limits=limits, default=default).encode
        self._check = msgpack.Decoder(copy=False, **options).decode
        self.decode = msgpack.Decoder(copy=True, **options).decode
        self._logged: set[str] = set()

    def checked(self, value: Any) -> bytes:
        """Encode any value; EncodeError, DecodeError or LimitExceeded if `decode` would fail."""
        encoded = self._encode(value)
        self._check(encoded)
        return encoded

    def encode(self, info: Any) -> bytes:
        try:
            return self.checked(dict(info))
        except Exception:  # also an error of the info's own methods
            entries: list[tuple[Any, Any]] = []
        try:
            entries += self._carried(info, "info", count()).items()
        except Exception as error:
            self._log("info", error)
        while True:
            try:
                return self.checked(dict(entries))
            except Exception as error:  # a limit on all together: leave out the largest
                entries.sort(key=lambda entry: len(self._encode(entry[1])))
                most = len(entries) // 2
                for key, _ in entries[most:]:
                    self._log(f"info[{quoted(key)}]", error)
                del entries[most:]

    def _carried(self, info: Mapping[Any, Any], where: str, searched: count[int]) -> dict[Any, Any]:
        """Return the entries that can be carried one by one."""
        found: dict[Any, Any] = {}
        for key, value in info.items():
            inner = f"{where}[{quoted(key)}]"
            try:
                entry = {_plain(key): value}
                try:
                    self.checked(entry)
                except (EncodeError, DecodeError):
                    if not isinstance(value, Mapping) or next(searched) > _NESTED:
                        raise
                    entry = {_plain(key): self._carried(value, inner, searched)}
                    self.checked(entry)
                found |= entry
            except Exception as error:
                self._log(inner, error)
        return found

    def _log(self, where: str, error: Exception) -> None:
        if where not in self._logged and len(self._logged) < _LOGGED:
            self._logged.add(where)
            logger.warning(
                "%s is left out: it cannot be sent: %s", shown(where), shown(text_of(error))
            )


def _plain(key: Any) -> Any:
    """Replace NumPy scalars by Python's equal numbers, also in tuples."""
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    return key.item() if isinstance(key, np.generic) else key

"""`Remote`: the addresses of one environment, and remotes by URL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rlwire.errors import without_secret
from rlwire.transports.address import AddressLike, parse
from rlwire.universe.options import PASSWORD
from rlwire.urls import URL, parse_url


@dataclass(frozen=True)
class Remote:
    """The addresses of one environment.

    Attributes:
        pixels: the VNC server's address, if any.
        rewarder: the rewarder's address, if any.
        auth: the password of both.
        env_id: the environment that resets request; None for the current one.
        tls: whether both connections are encrypted.
        label: the name in errors and logs; by default the index and the addresses.
    """

    pixels: AddressLike | None = None
    rewarder: AddressLike | None = None
    auth: str | None = field(default=PASSWORD, repr=False)
    env_id: str | None = None
    tls: bool = False
    label: str = ""

    def __post_init__(self) -> None:
        if self.pixels is None and self.rewarder is None:
            raise ValueError("a remote needs pixels, a rewarder, or both; this one has neither")
        if self.pixels is not None:
            parse(self.pixels)
        if self.rewarder is not None and parse(self.rewarder).path:
            raise ValueError(f"a rewarder's address must be host:port, not {self.rewarder}")

    def labelled(self, index: int) -> Remote:
        """Return the remote with a label for errors and logs."""
        where = "+".join(str(parse(each)) for each in (self.pixels, self.rewarder) if each)
        return self if self.label else replace(self, label=f"{index}:{where}")


Remotes: TypeAlias = str | URL | Remote | Sequence[str | URL | Remote]

_FORM = "vnc://host:5900+15900,host2:5900+15900?password=..."


def remotes_of(given: Remotes) -> list[Remote]:
    """Return the remotes of URLs, URLs in strings, or `Remote` s, with labels.

    ``"vnc://h:5900+15900,h2:5901+15901?password=secret"`` has two remotes, each with pixels and a
    rewarder. ``vnc://h:5900`` has pixels only, ``vnc://h:+15900`` and the original's
    ``vnc://h+15900`` a rewarder only. URLs of the scheme ``universe`` may have the environment's
    id as path. ValueError if some remotes have pixels or a rewarder and others do not.
    """
    several = [given] if isinstance(given, (str, URL, Remote)) else list(given)
    found: list[Remote] = []
    for each in several:
        if isinstance(each, Remote):
            found.append(each)
        elif isinstance(each, URL):
            found.append(_of_url(each))
        else:
            found += map(_of_url, _urls(each))
    if not found:
        raise ValueError(f"no remotes were given; expected such as {_FORM}")
    for what in ("pixels", "rewarder"):
        have = [getattr(each, what) is not None for each in found]
        if any(have) and not all(have):
            raise ValueError(
                f"all remotes or none must have {what}: index {have.index(False)} has none; use "
                f"one UniverseEnv for each kind"
            )
    return [each.labelled(index) for index, each in enumerate(found)]


def _urls(text: str) -> list[URL]:
    """Return the URLs in a string, which may share a scheme and a query."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.partition("+")[0] not in ("vnc", "universe"):
        raise ValueError(f"{without_secret(text)!r} names no remotes; expected such as {_FORM}")
    rest, _, query = rest.partition("?")
    urls = []
    for part in rest.split(","):
        where = part.removeprefix(f"{scheme}://")
        if scheme.startswith("vnc"):
            where = re.sub(r"^([^:+/]+)\+", r"\1:+", where)  # the original's form without pixels
            if not re.search(r":[0-9+]", where):
                shown = without_secret(where)
                raise ValueError(f"{without_secret(text)!r}: {shown!r} has no port, as {_FORM} has")
        whole = f"universe{scheme.removeprefix('vnc').removeprefix('universe')}://{where}"
        try:
            urls.append(parse_url(f"{whole}?{query}" if query else whole))
        except ValueError as error:
            raise ValueError(f"{without_secret(text)!r}: {error}") from None
    return urls


def _of_url(url: URL) -> Remote:
    if url.scheme != "universe":
        raise ValueError(f"expected a URL of universe:// or vnc://, not {url.shown}")
    return Remote(
        pixels=url.pixels_address,
        rewarder=None if url.only_pixels else url.address,
        auth=url.query.get("password", url.query.get("auth", PASSWORD)),
        env_id=url.path or None,
        tls=url.tls,
    )

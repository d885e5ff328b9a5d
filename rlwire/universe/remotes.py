"""`Remote`: where one environment is, and what texts and URLs name several of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rlwire.registry import URL, parse_url
from rlwire.transports.address import AddressLike, parse

PASSWORD = "openai"
"""The document's password, of both connections."""


@dataclass(frozen=True)
class Remote:
    """Where one environment is.

    Attributes:
        pixels: the address of its VNC server, None for none.
        rewarder: the address of its rewarder, None for none.
        auth: the password of both.
        env_id: which of its environments resets ask for; None for the one that runs.
        tls: whether both connections are encrypted.
        index: its place among the remotes.
        label: what errors and logs call it; by default the index and where it is.

    Raises:
        ValueError: it has neither, or an address is none.
    """

    pixels: AddressLike | None = None
    rewarder: AddressLike | None = None
    auth: str | None = field(default=PASSWORD, repr=False)
    env_id: str | None = None
    tls: bool = False
    index: int = 0
    label: str = ""

    def __post_init__(self) -> None:
        if self.pixels is None and self.rewarder is None:
            raise ValueError("a remote has pixels, a rewarder, or both; this one has neither")
        if self.pixels is not None:
            parse(self.pixels)
        if self.rewarder is not None and parse(self.rewarder).path:
            raise ValueError(f"a rewarder has a host and a port, unlike {self.rewarder}")

    @property
    def where(self) -> str:
        """Both addresses, for texts."""
        given = (self.pixels, self.rewarder)
        return "+".join(str(parse(address)) for address in given if address is not None)

    def at(self, index: int) -> Remote:
        """Return it at a place among others."""
        return replace(self, index=index, label=self.label or f"{index}:{self.where}")


Remotes: TypeAlias = str | URL | Remote | Sequence[str | URL | Remote]

_FORM = "vnc://host:5900+15900,host2:5900+15900?password=..."


def remotes_of(given: Remotes) -> list[Remote]:
    """Return the remotes that texts, URLs and `Remote` s name, each with an index and a label.

    ``"vnc://h:5900+15900,h2:5901+15901?password=secret"`` names two, each with pixels and a
    rewarder; ``vnc://h:5900`` has pixels only, ``vnc://h:+15900`` and the original's
    ``vnc://h+15900`` a rewarder only. URLs of the scheme ``universe`` are the same, with a path
    that says which environment. Commas stand between addresses, or between whole URLs.

    Raises:
        ValueError: a text is none, or some have pixels or a rewarder and others have not: what
            they have is the same in all.
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
                f"all remotes have {what} or none has: the one at index {have.index(False)} has "
                f"none. Make a UniverseEnv of each kind"
            )
    return [each.at(index) for index, each in enumerate(found)]


def _urls(text: str) -> list[URL]:
    """Return the URLs that a text names, the scheme and the query of which may stand once."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.partition("+")[0] not in ("vnc", "universe"):
        raise ValueError(f"{text!r} names no remotes; expected such as {_FORM}")
    rest, _, query = rest.partition("?")
    urls = []
    for part in rest.split(","):
        place = part.removeprefix(f"{scheme}://")
        if scheme.startswith("vnc"):
            place = re.sub(r"^([^:+/]+)\+", r"\1:+", place)  # the original's rewarder only
            if not re.search(r":[0-9+]", place):
                raise ValueError(f"{text!r}: {place!r} has no port; expected such as {_FORM}")
        whole = f"universe{scheme.removeprefix('vnc').removeprefix('universe')}://{place}"
        try:
            urls.append(parse_url(f"{whole}?{query}" if query else whole))
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
    return urls


def _of_url(url: URL) -> Remote:
    if url.scheme != "universe":
        raise ValueError(f"{url}: remotes are of universe://, or vnc://")
    return Remote(
        pixels=url.pixels_address,
        rewarder=None if url.only_pixels else url.address,
        auth=url.query.get("password", url.query.get("auth", PASSWORD)),
        env_id=url.path or None,
        tls=url.tls,
    )

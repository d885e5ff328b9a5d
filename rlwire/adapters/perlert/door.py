"""PERLERT by URL: what the front door calls; see `rlwire.protocols`."""

from __future__ import annotations

from typing import Any

from rlwire.adapters.doors import Arguments, clients
from rlwire.adapters.perlert.client import AsyncClient, Client
from rlwire.adapters.perlert.endpoint import PerlertEndpoint
from rlwire.adapters.perlert.server import PerlertServer
from rlwire.protocols import URL
from rlwire.sessions.perlert.server import ServerSettings
from rlwire.transports.datagram_cipher import DatagramCipher

__all__ = ["async_client", "client", "endpoint", "server"]


def server(
    environment: Any,
    url: URL,
    *,
    name: str | None = None,
    frames: float | None = None,
    auth: DatagramCipher | bytes | None = None,
    threads: int = 0,
    **options: Any,
) -> PerlertServer:
    """Return a server of an environment in real time; not started.

    Args:
        environment: as `PerlertServer.add` takes it.
        url: where the lobby listens; its path is the instance's name.
        name: the instance's name, where the URL has none.
        frames: how many steps a second an agent is told of, at most.
        auth: the key that agents need as well, or a cipher made of it.
        threads: how many step environments; 0 steps them on the event loop.
        options: `PerlertServer`'s, and those of its method `add`.

    Raises:
        TypeError, ValueError, ImportError, AttributeError: what is wrong with the arguments.
    """
    if frames is not None:
        options["session_settings"] = ServerSettings(frames_per_second=frames)
    return PerlertServer(
        environment,
        url.address,
        name=url.path or name,
        auth=auth,
        threads=threads,
        **options,
    )


def _means(url: URL, options: dict[str, Any]) -> Arguments:
    if not url.path:
        raise ValueError(f"{url}: which instance? As in {url.replace(path='CartPole-v1:0')}")
    return (url.address, url.path), options


client, async_client = clients(Client, AsyncClient, _means)


def endpoint(url: URL, *, copy: bool = True, **options: Any) -> PerlertEndpoint:
    """Return a slot of the instance that the URL names.

    Args:
        url: of the lobby.
        copy: of no use: observations are read from text.
        options: `PerlertEndpoint`'s.

    Raises:
        ValueError: the URL names no instance.
        What `PerlertEndpoint` raises.
    """
    where, options = _means(url, options)
    return PerlertEndpoint(*where, **options)

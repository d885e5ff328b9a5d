"""Universe by URL, for `rlwire.registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlwire.environments.loading import load_environment
from rlwire.serving.fronts import rendering, with_settings
from rlwire.serving.serving import BackgroundServer
from rlwire.universe.options import OPTIONS as OPTIONS
from rlwire.universe.options import PASSWORD, UniverseEnvironmentOptions
from rlwire.universe.rewarder.client import AsyncRewarderClient, RewarderClient
from rlwire.universe.rewarder.environment import RewarderEndpoint
from rlwire.universe.rewarder.player import EnvironmentRewarder
from rlwire.universe.server import UniverseServer
from rlwire.urls import URL, client_tls

if TYPE_CHECKING:
    from rlwire.universe.environment import UniverseEndpoint


def server(
    environment: Any, url: URL, *, env_kwargs: Mapping[str, Any] | None = None, **options: Any
) -> BackgroundServer:
    """Return an `EnvironmentRewarder`, or a `UniverseServer` if the URL has pixels; not started."""
    if url.pixels is None:
        _refuse(url, options, ("keys", "play", "frames", "view_auth", "page"))
        made = _each(environment, lambda target: with_settings(target, env_kwargs))
        name = url.path or options.pop("name", None)
        return EnvironmentRewarder(made, url, name=name, **options)
    made = _each(environment, lambda target: rendering(target, env_kwargs))
    return UniverseServer(made, url, **options)


def _refuse(url: URL, options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ValueError for options that the URL's kind, with pixels or without, does not have."""
    if needs := [name for name in names if options.get(name) is not None]:
        pixels = f"a URL with pixels, such as universe://{url.host}:5900+{url.port}"
        other = "a URL without pixels" if url.pixels is not None else pixels
        raise ValueError(f"{url.shown}: {', '.join(needs)}: only for {other}")


def _each(environment: Any, prepare: Callable[[Any], Any]) -> Any:
    """Prepare an environment, or each one of a dictionary."""
    found = load_environment(environment) if isinstance(environment, str) else environment
    if not isinstance(found, Mapping):
        return prepare(found)
    return {env_id: _each(target, prepare) for env_id, target in found.items()}


client, async_client = RewarderClient, AsyncRewarderClient
dissector = "rlwire.universe.rewarder.dissector:RewarderDissector"
pixels_dissector = "rlwire.universe.rfb.dissector:RfbDissector"


def endpoint(url: URL, *, copy: bool = True, **options: Any) -> RewarderEndpoint | UniverseEndpoint:
    if url.pixels is not None:
        from rlwire.universe.environment import UniverseEndpoint

        _refuse(url, options, ("attach", "step_timeout"))
        tls = client_tls(url, options.pop("tls", None))
        auth = options.pop("auth", url.query.get("password", url.query.get("auth", PASSWORD)))
        both = {name: options.pop(name) for name in {"timeout", "limits", "record"} & set(options)}
        both |= {"auth": auth, "tls": tls}
        pixels = {"address": url.pixels_address, **both, **(options.pop("pixels", None) or {})}
        rewarder = {
            "address": url.address,
            "observer": options.pop("observer", False),
            **both,
            **(options.pop("rewarder", None) or {}),
        }
        spaces = {name: options.pop(name, None) for name in ("observation_space", "action_space")}
        return UniverseEndpoint(
            url.shown,
            None if url.only_pixels else rewarder,
            pixels,
            UniverseEnvironmentOptions(url.address, **options),
            env_id=url.path or None,
            copy=copy,
            **spaces,
        )
    _refuse(url, options, ("actions", "pixels", "rate", "rewarder", "start_timeout"))
    return RewarderEndpoint(url, env_id=url.path or None, **options)

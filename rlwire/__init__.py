"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

These functions take URLs (`rlwire.registry.URL`); `rlwire.aio` is the same for asyncio. Each also
takes the options of the URL's protocol, the fields of the dataclasses in ``rlwire.<room>.options``,
as keywords, before those of the URL's query. ``rlwire serve rlx:// --help`` lists them. Modules are
imported on first use.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import EllipsisType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlwire.environments.remote import RemoteEnvironment
    from rlwire.environments.vector import VectorEnvironment
    from rlwire.limits import Limits
    from rlwire.registry import URL
    from rlwire.serving.serving import BackgroundServer
    from rlwire.transports.sockets import Backoff, Timeouts

    __version__: str

__all__ = ["__version__", "connect", "get_include", "install", "listen", "listen_vec", "make"]
__all__ += ["make_vec", "play", "serve", "uninstall"]


def _with_compiled_modules(sources: str) -> str:
    """Return the package's folder: a checkout without compiled modules uses the installed one."""
    folders = [sources, *(os.path.join(folder, "rlwire") for folder in sys.path)]
    found = PathFinder.find_spec("rlwire.buffers", folders)
    if found is None or found.origin is None:
        raise ImportError(
            f"rlwire in {os.path.dirname(sources)} has no compiled modules, and no other is "
            "installed: run `pip install .` there",
            name="rlwire",
            path=sources,
        )
    return os.path.dirname(os.path.abspath(found.origin))


_here = os.path.dirname(os.path.abspath(__file__))
if os.path.exists(os.path.join(_here, "buffers.pyx")):  # a checkout
    __path__ = [_with_compiled_modules(_here)]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported late: it is slow, and with `python -m rlwire` the current folder comes first.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__all__)


def get_include() -> str:
    """Return the include folder for ``#include <rlwire/rlwire.h>``."""
    import rlwire.buffers as buffers  # the compiled module knows where the package really is

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec; see `rlwire.installing.install`."""
    from rlwire import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Undo `install`."""
    from rlwire import installing

    installing.uninstall(library)


def _given(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add the arguments that were given; None is a value of two of them."""
    named = {name: value for name, value in more.items() if value is not ...}
    may_be_none = ("auth", "idle_timeout")
    return options | {k: v for k, v in named.items() if v is not None or k in may_be_none}


def serve(
    thing: Any,
    url: str | URL,
    *,
    auth: Any = ...,
    tls: Any = None,
    timeout: Timeouts | float | None = None,
    idle_timeout: float | EllipsisType | None = ...,
    limits: Limits | None = None,
    workers: str | int | None = None,
    max_connections: int | None = None,
    **options: Any,
) -> BackgroundServer:
    """Serve an environment, an agent or a policy in the background; return the running server.

    ::

        with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)
        rlwire.serve(MyAgent, "rlx://localhost:7001", workers=4).wait()

    Args:
        thing: an environment for clients that train; an agent or policy for clients that are
            environments. An object, a factory, or a name: ``"gym:CartPole-v1"``,
            ``"my_module:MyAgent"``. It is made and checked before the server listens.
        url: where to listen; port 0 lets the system choose.
        auth: the secret that clients must send; PERLERT's is a key.
        tls: a `ServerTLS`, an SSL context, or a callable that returns one.
        timeout: seconds, or a `Timeouts`.
        idle_timeout: seconds after which a silent connection is closed; None for never.
        limits: maxima for received and sent messages.
        workers: ``"threads"``, ``"asyncio"``, or over RLX a number of processes.
        max_connections: concurrent connections of each process.
        options: further options of the protocol.

    Raises:
        OSError: the address cannot be listened on, or a file cannot be read.
        TypeError, ValueError: the URL or an option is invalid.
        ImportError, AttributeError: the name does not exist; `MissingExtra` if an extra is missing.
        Exception: the factory's own.
    """
    from rlwire.registry import resolve

    more = {"timeout": timeout, "limits": limits, "workers": workers, "tls": tls, "auth": auth}
    more |= {"idle_timeout": idle_timeout, "max_connections": max_connections}
    make_server, where, keywords = resolve(url, "server", _given(options, **more))
    server: BackgroundServer = make_server(thing, where, **keywords)
    server.check()
    return server.start()


def connect(
    url: str | URL,
    *,
    auth: Any = ...,
    tls: Any = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Return a connected client of a URL's protocol.

    ::

        with rlwire.connect("dm-env-rpc://localhost:9911/world") as client:
            client.step()

    | URL | client |
    |---|---|
    | ``rlx://`` | `rlwire.rlx.AgentProxy` |
    | ``dm-env-rpc://`` | `rlwire.dm_env_rpc.Client`, in the world that the path names |
    | ``perlert://`` | `rlwire.perlert.Client` of the instance that the path names |
    | ``universe://`` | `rlwire.universe.rewarder.RewarderClient`, of the port after the plus |
    | ``openpi://`` | `rlwire.openpi.Client` |
    | ``rllink://`` | `rlwire.rllink.Client` |

    Args:
        url: the server.
        auth: the server's secret.
        tls: a `ClientTLS`, an SSL context, or a callable that returns one.
        timeout: seconds, or a `Timeouts`.
        backoff: the waits between attempts to connect.
        limits: maxima for received and sent messages.
        options: further options of the protocol.

    Raises:
        OSError: the server cannot be reached, or a file cannot be read.
        RlwireError: the server speaks another protocol, or rejects the client.
        TypeError, ValueError: the URL or an option is invalid.
    """
    from rlwire.registry import resolve, spoken

    more = {"auth": auth, "tls": tls, "timeout": timeout, "backoff": backoff, "limits": limits}
    begin, where, keywords = resolve(url, "client", _given(options, **more))
    with spoken(where):
        return begin(where, **keywords)


def make(
    url: str | URL,
    *,
    like: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    copy: bool = True,
    render_mode: str | None = None,
    auth: Any = ...,
    tls: Any = None,
    timeout: Timeouts | float | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> RemoteEnvironment:
    """Return the environment at a URL as a `gymnasium.Env`.

    ::

        env = rlwire.make("dm-env-rpc://localhost:9911")
        env = gymnasium.make("rlwire/Remote-v0", url="dm-env-rpc://localhost:9911")

    `rlwire.environments.endpoint.Endpoint` describes lost connections.

    Args:
        url: the server.
        like: an environment, or its name (``"CartPole-v1"``, ``"module:factory"``), with the same
            spaces.
        observation_space: overrides the server's. Servers other than rlwire's may not describe
            theirs; then pass both spaces, or `like`.
        action_space: as `observation_space`.
        copy: False allows observations that are read-only views.
        render_mode: ``"rgb_array"`` makes `render` return a picture: the newest one where pixels
            are streamed, else requested from rlwire's dm_env_rpc servers. Gymnasium's `RecordVideo`
            and `HumanRendering` need it.
        auth: the server's secret; the environment's `spec` hides it.
        tls: as `connect`.
        timeout: as `connect`.
        limits: as `connect`.
        options: further options of the protocol.

    Raises:
        OSError, RlwireError, TypeError, ValueError: as `connect`; EncodeError if the spaces do not
            fit the server's.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire.registry import resolve, spoken

    if render_mode not in (None, "rgb_array"):
        raise ValueError(
            f'render_mode must be "rgb_array" or None, not {render_mode!r}; for a window, wrap the '
            f"environment in gymnasium.wrappers.HumanRendering"
        )
    options = _given(options, auth=auth, tls=tls, timeout=timeout, limits=limits)
    begin, where, keywords = resolve(url, "environment", options)
    from rlwire.environments.remote import RemoteEnvironment, Secret, given_spaces

    if "auth" in keywords:
        secret = Secret.of(keywords["auth"])
        keywords["auth"] = secret.value
        named = ("auth_file", "auth_env", "password")
        options = {k: v for k, v in options.items() if k not in named} | {"auth": secret}
    spaces = given_spaces(like, observation_space, action_space, keywords.get("agent"))
    with spoken(where):
        endpoint = begin(where, copy=copy, **spaces, **keywords)
    arguments = {"url": str(url), "copy": copy, **spaces, **options}
    return RemoteEnvironment(endpoint, arguments, render_mode)


def make_vec(
    environment: Any,
    num_envs: int | None = None,
    *,
    workers: int | None = None,
    caller_steps: bool = False,
    autoreset_mode: str = "NextStep",
    copy: bool = True,
    context: str | None = None,
    env_kwargs: dict[str, Any] | None = None,
) -> VectorEnvironment:
    """Return environments, in worker processes or by URL, as a Gymnasium vector environment.

    ::

        envs = rlwire.make_vec("gym:ALE/Pong-v5", num_envs=16)
        envs = rlwire.make_vec([server.url for server in servers])

    Workers write their results straight into the batch, in shared memory. For URLs, a step sends
    all requests before it receives; a lost environment ends its episode as truncated and reconnects
    for the next.

    Args:
        environment: a factory: ``"gym:CartPole-v1"``, ``"module:factory"`` or a function; or a
            sequence of factories. Or URLs, as of `make`; one URL is connected to `num_envs` times.
        num_envs: number of environments; optional for a sequence.
        workers: number of processes, by default that of cores; 0 steps in this process.
        caller_steps: whether this process steps a share as well. That saves a wake-up, but a crash
            of an environment ends the program.
        autoreset_mode: as `gymnasium.vector.AutoresetMode`: ``"NextStep"``, ``"SameStep"``,
            ``"Disabled"``.
        copy: False lets the next step overwrite the returned arrays.
        context: start method, as of `multiprocessing.get_context`. Unless processes are forked,
            functions must be picklable, and scripts need ``if __name__ == "__main__":``.
        env_kwargs: keyword arguments of the factory; for URLs, those of `make`.

    Raises:
        TypeError, ValueError: invalid arguments, or a server has too few places.
        EncodeError: a space has no fixed size, such as Text or Sequence.
        PeerError: a factory failed in its process.
        MissingExtra: Gymnasium is not installed.
    """
    from collections import Counter

    from rlwire.environments import vector
    from rlwire.registry import URL

    several = isinstance(environment, Sequence) and not isinstance(environment, str)
    count = len(environment) if several and num_envs is None else num_envs
    if count is None or count < 1 or (several and count != len(environment)):
        raise ValueError(
            f"num_envs must be the number of environments, not {num_envs}"
            + (f": got {len(environment)}" if several else "")
        )
    many = environment if several else [environment] * count
    urls = [isinstance(each, URL) or (isinstance(each, str) and "://" in each) for each in many]
    if any(urls):
        if not all(urls) or workers or caller_steps:
            raise ValueError("URLs cannot be combined with other environments, nor with workers")
        options = {"copy": False, **(env_kwargs or {})}
        counts = Counter(map(str, many))
        return vector.remote(
            [functools.partial(_one_of, counts.pop(str(url), 1), url, options) for url in many],
            mode=autoreset_mode,
            copy=copy,
        )
    makes = [vector.maker(each, env_kwargs) for each in many]
    return vector.local(
        makes,
        workers=workers,
        caller_steps=caller_steps,
        mode=autoreset_mode,
        copy=copy,
        context=context,
    )


def _one_of(count: int, url: str | URL, options: dict[str, Any]) -> RemoteEnvironment:
    """Make an environment if its server has `count` places."""
    made = make(url, **options)
    places = made.endpoint.places if count > 1 else None
    if places is not None and places < count:
        made.close()
        raise ValueError(
            f"{url} has {places} place{'' if places == 1 else 's'} for environments, not {count}: "
            f"start several servers, and pass make_vec their URLs"
        )
    return made


def listen(
    url: str | URL,
    *,
    like: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    auth: Any = ...,
    tls: Any = None,
    timeout: Timeouts | float | None = None,
    idle_timeout: float | EllipsisType | None = ...,
    limits: Limits | None = None,
    max_connections: int | None = None,
    **options: Any,
) -> RemoteEnvironment:
    """Return an environment that connects to its trainer, as a `gymnasium.Env`: RLX and openpi.

    ::

        env = rlwire.listen("rlx://localhost:7001", like="CartPole-v1")

    A reset waits for a client, without a timeout; Ctrl-C interrupts it. Further clients wait, and
    are rejected above `max_connections`. A client that disconnects ends its episode as truncated,
    with the last observation and ``info["lost"]``. Clients begin episodes: they get no seeds or
    options, and a reset inside an episode continues it, with ``info["continued"]``.

    Clients wait while the trainer learns: the server answers openpi's pings, `AgentProxy` and
    `openpi.Client` wait for an hour (`Timeouts.idle`), RELAAX's clients without a limit.

    The returned ``callers`` is a `rlwire.environments.called.Callers`, with `url` and
    `statistics()`.

    `like` is an environment, or its name, with the same spaces. By default the spaces are those
    that the first client sends, as rlwire's `play` over RLX does, and this function waits for it.
    A silent client counts as lost after `idle_timeout` seconds (an hour). Other arguments are those
    of `serve`.

    Raises:
        OSError: the address cannot be listened on, or a file cannot be read.
        TypeError, ValueError: the URL or an option is invalid, or a space is unknown.
        EncodeError: a space has no fixed size.
        MissingExtra: Gymnasium is not installed.
    """
    more = {"timeout": timeout, "limits": limits, "tls": tls, "auth": auth}
    more |= {"idle_timeout": idle_timeout, "max_connections": max_connections}
    options = _given(options, **more)
    (env,), callers = _called(url, 1, like, observation_space, action_space, options)
    env.callers = callers
    return env


def listen_vec(
    url: str | URL,
    num_envs: int,
    *,
    like: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    autoreset_mode: str = "NextStep",
    copy: bool = True,
    **options: Any,
) -> VectorEnvironment:
    """Return environments that connect to their trainer as a Gymnasium vector environment.

    ::

        envs = rlwire.listen_vec("rlx://localhost:7001", num_envs=8, like="CartPole-v1")

    Each client has one of `num_envs` places. Other arguments are those of `listen` and `make_vec`.
    """
    from rlwire.environments import vector

    found, callers = _called(url, num_envs, like, observation_space, action_space, options)
    try:
        makes = [lambda each=each: each for each in found]
        together = vector.remote(makes, mode=autoreset_mode, copy=copy)
    except BaseException:
        callers.close()
        raise
    together.callers = callers
    return together


def _called(
    url: str | URL, num_envs: int, like: Any, seen: Any, done: Any, options: dict[str, Any]
) -> tuple[list[RemoteEnvironment], Any]:
    from rlwire.registry import resolve

    begin, where, keywords = resolve(url, "listener", options)
    from rlwire.environments.remote import RemoteEnvironment, given_spaces

    callers = begin(where, num_envs, **given_spaces(like, seen, done), **keywords)
    return [RemoteEnvironment(endpoint) for endpoint in callers.endpoints], callers


def play(
    environment: Any, url: str | URL, *, episodes: int = 1, seed: int | None = None, **options: Any
) -> list[float]:
    """Play an environment with an agent or policy at a URL; return each episode's reward.

    ::

        rlwire.play("gym:CartPole-v1", "rlx://localhost:7001", episodes=10)
        rlwire.play("dm-env-rpc://localhost:9911", "rlx://localhost:7001")      # a gateway

    `environment` is an environment, a factory, its name, or the URL of a served one; `seed` is that
    of the first episode. Options are those of `connect`.

    Raises:
        OSError, RlwireError, TypeError, ValueError: as `connect`, or an action does not fit.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire.registry import resolve, spoken

    begin, where, keywords = resolve(url, "player", _given(options, seed=seed))
    with spoken(where):
        totals: list[float] = begin(environment, where, episodes=episodes, **keywords)
    return totals


class _Registration:
    """Registers with a Gymnasium that is imported later: it has had no entry points since 1.0."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the registry, and register once it has run."""
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(cls)
        from importlib.util import find_spec

        found = find_spec(name)
        if found is not None and found.loader is not None:
            run = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _register(module)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


def _register(registry: Any) -> None:
    registry.register("rlwire/Remote-v0", entry_point="rlwire:make")


_REGISTRY = "gymnasium.envs.registration"
if hasattr(sys.modules.get(_REGISTRY), "register"):
    _register(sys.modules[_REGISTRY])
else:
    sys.meta_path.insert(0, _Registration)

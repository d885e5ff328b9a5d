"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Here is the front door; `rlwire.registry.URL` explains the URLs that it takes, and `rlwire.aio` is
the same for asyncio. Layers, each a folder: `codecs` (bytes to values and back, compiled),
`sessions` (who may say what when), `transports` (moving buffers), `environments` (one, or many side
by side), and a room for each protocol, such as `rlwire.rlx`. Nothing is imported until it is used.

All functions take the options of a URL's protocol by name: some are in their signatures, and all
are fields of the dataclasses in ``rlwire.<room>.options``, such as
`rlwire.rlx.options.RLXServerOptions`. ``rlwire serve rlx:// --help`` lists them as well. They go
before those of the URL's query.
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
    """Return where the package is: here, or where it is installed.

    Python that is started in a checkout imports this file from there, and a regular install leaves
    no compiled modules in it. All other modules are then those of the installed package.
    """
    folders = [sources, *(os.path.join(folder, "rlwire") for folder in sys.path)]
    found = PathFinder.find_spec("rlwire.buffers", folders)
    if found is None or found.origin is None:
        raise ImportError(
            f"the rlwire in {os.path.dirname(sources)} has no compiled modules, and no other is "
            "installed: run `pip install .` there, or Python elsewhere",
            name="rlwire",
            path=sources,
        )
    return os.path.dirname(os.path.abspath(found.origin))


_here = os.path.dirname(os.path.abspath(__file__))
if os.path.exists(os.path.join(_here, "buffers.pyx")):  # which no wheel has
    __path__ = [_with_compiled_modules(_here)]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not above: it imports half of Python, and with `python -m rlwire` the current folder is first.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__all__)


def get_include() -> str:
    """Return the folder to give a C or C++ compiler for ``#include <rlwire/rlwire.h>``."""
    import rlwire.buffers as buffers  # the compiled module knows where the package really is

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec: `rlwire.installing.install`."""
    from rlwire import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Take `install` back: `rlwire.installing.uninstall`."""
    from rlwire import installing

    installing.uninstall(library)


def _given(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return options with those of a signature that were given; None is a value of two of them."""
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

    What is served is made and checked before anything listens.

    Args:
        thing: what there is to serve: where the trainer calls, an environment; where the
            environment calls, an agent or a policy. An object, what makes one, or its name:
            ``"gym:CartPole-v1"``, ``"my_module:MyAgent"``.
        url: where to listen; with port 0 the system chooses one.
        auth: the secret that clients must have, if any; PERLERT's is a key.
        tls: a `ServerTLS`, an SSL context, or a callable that returns one.
        timeout: seconds, or a `Timeouts`, for what connections wait for.
        idle_timeout: seconds after which a silent connection is closed; None for never.
        limits: maxima for what is read and written.
        workers: ``"threads"``, ``"asyncio"``, or over RLX a number of processes.
        max_connections: how many are served at once, in each process.
        options: the protocol's others.

    Raises:
        OSError: the address cannot be listened on, or a file cannot be read.
        TypeError, ValueError: the URL or an option is invalid.
        ImportError, AttributeError: there is no such thing; `MissingExtra` if a package is missing.
        Exception: whatever making the thing raises.
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
    """Return a connected client of a URL's protocol, which speaks as the protocol does.

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
        url: where the server is.
        auth: the secret that the server asks for.
        tls: a `ClientTLS`, an SSL context, or a callable that returns one.
        timeout: seconds, or a `Timeouts`, for what the connection waits for.
        backoff: the waits between attempts to connect.
        limits: maxima for what is read and written.
        options: the protocol's others.

    Raises:
        OSError: the server cannot be reached, or a file cannot be read.
        RlwireError: it speaks another protocol, or refuses us.
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
    """Return the environment that is served at a URL, as a `gymnasium.Env`.

    ::

        env = rlwire.make("dm-env-rpc://localhost:9911")
        env = gymnasium.make("rlwire/Remote-v0", url="dm-env-rpc://localhost:9911")

    What a lost connection does is said in `rlwire.environments.endpoint.Endpoint`.

    Args:
        url: where it is served.
        like: takes the spaces from an environment, or one of this name: ``"CartPole-v1"``,
            ``"module:factory"``.
        observation_space: in place of what the server tells. Where the protocol tells nothing, and
            the server is not rlwire's, it is needed, or `like`.
        action_space: as `observation_space`.
        copy: False lets observations be read-only views, where the protocol allows it.
        render_mode: ``"rgb_array"`` lets `render` return the environment's picture: the newest one
            where pixels travel, otherwise asked for, from rlwire's dm_env_rpc servers. Gymnasium's
            `RecordVideo` and `HumanRendering` need it.
        auth: the secret that the server asks for; the environment's `spec` does not show it.
        tls: a `ClientTLS`, an SSL context, or a callable that returns one.
        timeout: seconds, or a `Timeouts`, for what the connection waits for.
        limits: maxima for what is read and written.
        options: the protocol's others.

    Raises:
        OSError: the server cannot be reached, or a file cannot be read.
        RlwireError: it speaks another protocol, or refuses us; EncodeError if the spaces are not
            the server's.
        TypeError, ValueError: the URL or an option is invalid.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire.registry import resolve, spoken

    if render_mode not in (None, "rgb_array"):
        raise ValueError(
            f'render_mode is "rgb_array" or None, not {render_mode!r}; for a window, wrap the '
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
    """Return environments as one of Gymnasium's vector environments: in processes, or by URL.

    ::

        envs = rlwire.make_vec("gym:ALE/Pong-v5", num_envs=16)
        envs = rlwire.make_vec([server.url for server in servers])

    Each process steps its share of the environments, and writes what they give where it belongs in
    the batch, in shared memory. Those that are served somewhere, by URL, need no processes: a step
    asks all of them before it waits for any. One that is lost ends its episode as truncated, and
    comes back with the next.

    Args:
        environment: what makes one of them, such as ``gym:CartPole-v1``, ``module:factory`` or a
            function; or a sequence of such, one for each environment. Or URLs, as `make` takes
            them; one URL is connected to `num_envs` times.
        num_envs: how many; for a sequence it is known.
        workers: how many processes; as many as there are cores by default, 0 for this one alone.
        caller_steps: whether this process steps a share of them as well, beside one worker less
            by default. A step then waits for no wake-up of this process; but what crashes one of
            its environments ends the program, and what they raise is raised here as it is.
        autoreset_mode: when an environment whose episode is over begins the next one, as
            `gymnasium.vector.AutoresetMode` has it: ``"NextStep"``, ``"SameStep"``, ``"Disabled"``.
        copy: whether each call gives arrays of its own; without, the next step writes to the same.
        context: how processes are started, as `multiprocessing.get_context` takes it. Unless they
            are forked, functions must be picklable, and a program needs the usual
            ``if __name__ == "__main__":``.
        env_kwargs: keyword arguments for what makes the environments; for URLs, those of `make`.

    Raises:
        TypeError, ValueError: there is nothing to make environments of, or no number of them; or a
            server has no place for so many.
        EncodeError: a space has no arrays of a fixed size, such as Text or Sequence.
        PeerError: an environment could not be made in its process.
        MissingExtra: Gymnasium is not installed.
    """
    from collections import Counter

    from rlwire.environments import vector
    from rlwire.registry import URL

    several = isinstance(environment, Sequence) and not isinstance(environment, str)
    count = len(environment) if several and num_envs is None else num_envs
    if count is None or count < 1 or (several and count != len(environment)):
        raise ValueError(
            f"num_envs must be how many environments there shall be, not {num_envs}"
            + (f": {len(environment)} were given" if several else "")
        )
    many = environment if several else [environment] * count
    urls = [isinstance(each, URL) or (isinstance(each, str) and "://" in each) for each in many]
    if any(urls):
        if not all(urls) or workers or caller_steps:
            raise ValueError("environments by URL have no worker processes, nor others beside them")
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
    """Make an environment, if its URL has a place for so many."""
    made = make(url, **options)
    places = made.endpoint.places if count > 1 else None
    if places is not None and places < count:
        made.close()
        raise ValueError(
            f"{url} has {places} place{'' if places == 1 else 's'} for environments, not {count}: "
            f"serve several, and give make_vec their URLs"
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
    """Return an environment that calls here, for its trainer, as a `gymnasium.Env`: RLX and openpi.

    ::

        env = rlwire.listen("rlx://localhost:7001", like="CartPole-v1")

    A reset waits for a caller for as long as it takes; Ctrl-C ends that. Further callers wait until
    the place is free, and are refused beyond `max_connections`. A caller that leaves ends its
    episode as truncated, with the last observation and ``info["lost"]``; the next reset waits for
    the next caller. Episodes are begun by callers: seeds and options are not told to them, and a
    reset in the middle of one goes on where it stands, with ``info["continued"]``.

    Between two calls of the trainer callers wait, however long it learns: pings of openpi's are
    answered meanwhile, and `AgentProxy` and `openpi.Client` put up with an hour (`idle` of their
    `Timeouts`), RELAAX's for ever.

    ``callers`` of what is returned is `rlwire.environments.called.Callers`, with `url` and
    `statistics()`.

    Args:
        url: where to listen; with port 0 the system chooses one.
        like: takes the spaces from an environment, or one of this name.
        observation_space: by default the first caller's, which rlwire's `play` over RLX sends; this
            function then waits for that caller.
        action_space: as `observation_space`.
        auth: as of `serve`.
        tls: as of `serve`.
        timeout: as of `serve`.
        idle_timeout: seconds after which a caller that says nothing counts as gone (an hour).
        limits: as of `serve`.
        max_connections: as of `serve`.
        options: the protocol's others.

    Raises:
        OSError: the address cannot be listened on, or a file cannot be read.
        TypeError, ValueError: the URL or an option is invalid, or nobody tells a space.
        EncodeError: a space has no arrays of a fixed size.
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
    """Return environments that call here as one of Gymnasium's vector environments.

    ::

        envs = rlwire.listen_vec("rlx://localhost:7001", num_envs=8, like="CartPole-v1")

    Each caller has a place, as of `listen`, and steps with the others.

    Args:
        url: where to listen; with port 0 the system chooses one.
        num_envs: how many places.
        like: as of `listen`, and so are the spaces.
        observation_space: as of `listen`.
        action_space: as of `listen`.
        autoreset_mode: as of `make_vec`.
        copy: as of `make_vec`.
        options: as of `listen`.
    """
    from rlwire.environments import vector

    found, callers = _called(url, num_envs, like, observation_space, action_space, options)
    try:
        makes = [functools.partial(_same, each) for each in found]
        together = vector.remote(makes, mode=autoreset_mode, copy=copy)
    except BaseException:
        callers.close()
        raise
    together.callers = callers
    return together


def _called(
    url: str | URL, num_envs: int, like: Any, seen: Any, done: Any, options: dict[str, Any]
) -> tuple[list[RemoteEnvironment], Any]:
    """Return an environment for each place, and what has the places."""
    from rlwire.registry import resolve

    begin, where, keywords = resolve(url, "listener", options)
    from rlwire.environments.remote import RemoteEnvironment, given_spaces

    callers = begin(where, num_envs, **given_spaces(like, seen, done), **keywords)
    return [RemoteEnvironment(endpoint) for endpoint in callers.endpoints], callers


def _same(environment: Any) -> Any:
    return environment


def play(
    environment: Any,
    url: str | URL,
    *,
    episodes: int = 1,
    seed: int | None = None,
    **options: Any,
) -> list[float]:
    """Have an agent or policy somewhere play an environment; return each episode's reward.

    ::

        rlwire.play("gym:CartPole-v1", "rlx://localhost:7001", episodes=10)
        rlwire.play("dm-env-rpc://localhost:9911", "rlx://localhost:7001")      # a gateway

    Args:
        environment: an environment, what makes one, or its name; or a URL of one that is served.
        url: where the agent is.
        episodes: how many to play.
        seed: of the first episode.
        options: as of `connect`.

    Raises:
        OSError: nobody is there, or a file cannot be read.
        RlwireError: the connection is lost for good, what listens there speaks another protocol, or
            an action is none of the environment's.
        TypeError, ValueError: the URL or an option is invalid, or it is no environment.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire.registry import resolve, spoken

    begin, where, keywords = resolve(url, "player", _given(options, seed=seed))
    with spoken(where):
        totals: list[float] = begin(environment, where, episodes=episodes, **keywords)
    return totals


class _Registration:
    """Finds Gymnasium's registry for a program that imports Gymnasium after rlwire.

    Gymnasium has had no entry points since 1.0.
    """

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the registry as it would be found without this, and register once it has run."""
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

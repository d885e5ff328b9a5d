"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Each function accepts a URL (`rlwire.urls.URL`) and the options of its protocol, as keywords or
in the URL's query; keywords win. `rlwire.aio` has the same functions for asyncio. Importing rlwire
imports no protocol.
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
    from rlwire.serving.serving import BackgroundServer
    from rlwire.transports.sockets import Backoff, Timeouts
    from rlwire.urls import URL

    __version__: str

__all__ = ["__version__", "connect", "get_include", "install", "listen", "listen_vec", "make"]
__all__ += ["make_vec", "play", "serve", "uninstall"]


def _add_compiled_modules(sources: str) -> None:
    """In a checkout that is not built, as after ``pip install .``, use the installed modules."""
    folders = [sources, *(os.path.join(folder, "rlwire") for folder in sys.path)]
    found = PathFinder.find_spec("rlwire.buffers", folders)
    if found is None or found.origin is None:
        raise ImportError(
            f"rlwire in {os.path.dirname(sources)} has no compiled modules, and rlwire is not "
            "installed: run `pip install .` there",
            name="rlwire",
            path=sources,
        )
    __path__[:] = [os.path.dirname(os.path.abspath(found.origin))]


if os.path.exists(os.path.join(os.path.dirname(__file__), "buffers.pyx")):  # a checkout
    _add_compiled_modules(os.path.dirname(os.path.abspath(__file__)))


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Slow to import; and with `python -m rlwire` a module of the current folder could replace it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__all__)


def get_include() -> str:
    """Return the include folder for ``#include <rlwire/rlwire.h>``."""
    import rlwire.buffers as buffers  # compiled, therefore never from a bare checkout

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec in this process.

    Args:
        library: ``"dm_env_rpc"``, ``"msgpack_numpy"``, ``"openpi_client"`` or ``"rllib"``.
        options: for dm_env_rpc, ``transport=False``: True also replaces grpcio. For msgpack_numpy,
            ``pickle=False``: True keeps its pickles of object arrays, for trusted peers.

    ImportError if the library is missing, RuntimeError if it is another version.
    """
    from rlwire import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Undo `install`: the library uses its own codec again."""
    from rlwire import installing

    installing.uninstall(library)


def _given(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add the arguments that were given; for `auth` and `idle_timeout`, None is a value."""
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
        rlwire.serve("dm-env-rpc://localhost:9911", "universe://localhost:5900+15900")  # a gateway

    Args:
        thing: an environment, if trainers connect; an agent or policy, if environments connect. An
            object, a factory, a name such as ``"my_module:MyAgent"``, or for a gateway the URL of
            a served environment. It is made and checked before the server listens.
        url: where to listen; port 0 lets the system choose.
        options: these and others are fields of the protocol's dataclass of options.
            ``rlwire serve rlx:// --help`` lists them, and in Python
            ``help(rlwire.registry.protocol("rlx").options["server"])``.

    Raises:
        OSError: the address cannot be listened on, or a file cannot be read.
        TypeError, ValueError: the URL or an option is invalid.
        ImportError, AttributeError: `thing` names nothing; `MissingExtra` if an extra is missing.
        Exception: the factory's own.
    """
    from rlwire._options import resolve

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
    """Connect to a server; return the client of the URL's protocol.

    ::

        with rlwire.connect("dm-env-rpc://localhost:9911/world") as client:
            client.step()

    | URL | client |
    |---|---|
    | ``rlx://`` | `rlwire.rlx.AgentProxy` |
    | ``dm-env-rpc://`` | `rlwire.dm_env_rpc.Client`, in the world that the path names |
    | ``perlert://`` | `rlwire.perlert.Client` of the instance that the path names |
    | ``universe://`` | `rlwire.universe.rewarder.RewarderClient`, at the port after the plus |
    | ``openpi://`` | `rlwire.openpi.Client` |
    | ``rllink://`` | `rlwire.rllink.Client` |

    Args:
        url: the server.
        options: as for `serve`, of the side ``"client"``.

    Raises:
        OSError: the server cannot be reached, or a file cannot be read.
        RlwireError: the server speaks another protocol, or rejects the client.
        TypeError, ValueError: the URL or an option is invalid.
    """
    from rlwire._options import resolve
    from rlwire.urls import naming_protocol

    more = {"auth": auth, "tls": tls, "timeout": timeout, "backoff": backoff, "limits": limits}
    begin, where, keywords = resolve(url, "client", _given(options, **more))
    with naming_protocol(where):
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
    """Connect to the environment at a URL; return it as a `gymnasium.Env`.

    ::

        env = rlwire.make("dm-env-rpc://localhost:9911")
        env = gymnasium.make("rlwire/Remote-v0", url="dm-env-rpc://localhost:9911")

    If the connection is lost, the episode is truncated with the last observation, and
    ``info["lost"]`` says why. The next reset connects again, or raises.

    Args:
        url: the server.
        like: an environment with the same spaces, or its name, such as ``"CartPole-v1"``.
        observation_space: overrides the server's; required, as `like` or with `action_space`, if
            the server does not describe its spaces. rlwire's do.
        action_space: as `observation_space`.
        copy: False allows observations that are read-only views of received messages.
        render_mode: ``"rgb_array"`` makes `render` return a picture: the newest one if the server
            streams pixels, else one requested from rlwire's dm_env_rpc server. Gymnasium's
            `RecordVideo` and `HumanRendering` need it.
        options: as for `serve`, of the side ``"environment"``.

    Raises:
        OSError, RlwireError, TypeError, ValueError: as `connect`; EncodeError if the spaces do not
            fit the server's.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire._options import resolve
    from rlwire.urls import naming_protocol, parse_url

    if render_mode not in (None, "rgb_array"):
        raise ValueError(
            f'render_mode must be "rgb_array" or None, not {render_mode!r}; for a window, wrap the '
            f"environment in gymnasium.wrappers.HumanRendering"
        )
    auth = getattr(auth, "value", auth)  # of a `Secret`, in a spec
    options = _given(options, auth=auth, tls=tls, timeout=timeout, limits=limits)
    begin, where, keywords = resolve(url, "environment", options)
    from rlwire.environments.remote import RemoteEnvironment, Secret, given_spaces

    if "auth" in keywords:
        named = ("auth_file", "auth_env", "password")
        options = {k: v for k, v in options.items() if k not in named}
        options["auth"] = Secret(keywords["auth"])
        url = parse_url(url)
        url = url.replace(options=tuple(each for each in url.options if each[0] not in named))
    agent = keywords.get("agent")
    spaces, episode = given_spaces(like, observation_space, action_space, agent)
    with naming_protocol(where):
        endpoint = begin(where, copy=copy, **spaces, **keywords)
    arguments = {"url": str(url), "copy": copy, **spaces, **options}
    return RemoteEnvironment(endpoint, arguments, render_mode, episode)


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
    """Make environments in worker processes, or connect to URLs; return a vector environment.

    ::

        envs = rlwire.make_vec("gym:ALE/Pong-v5", num_envs=16)
        envs = rlwire.make_vec([server.url for server in servers])

    Workers write results straight into the batch, in shared memory. With URLs, a step sends all
    requests before it receives; a lost environment truncates its episode and reconnects for the
    next.

    Args:
        environment: a factory (``"gym:CartPole-v1"``, ``"module:factory"`` or a function) or a
            URL, used `num_envs` times; or a sequence of factories or of URLs.
        num_envs: number of environments (default: the sequence's length).
        workers: number of processes (default: the number of cores); 0 steps in this process.
        caller_steps: whether this process also steps some environments. That saves a wake-up, but
            if an environment crashes, so does the program.
        autoreset_mode: a `gymnasium.vector.AutoresetMode` by name: ``"NextStep"``, ``"SameStep"``,
            ``"Disabled"``.
        copy: False lets the next step overwrite the returned arrays.
        context: start method of `multiprocessing.get_context` (default: the platform's). Unless
            processes are forked, functions must be picklable, and scripts need
            ``if __name__ == "__main__":``.
        env_kwargs: keyword arguments of the factory; for URLs, the options of `make`.

    Raises:
        TypeError, ValueError: an argument is invalid, or a server has too few places.
        EncodeError: a space has no fixed size, such as Text or Sequence.
        PeerError: a factory failed in its process.
        MissingExtra: Gymnasium is not installed.
    """
    from collections import Counter

    from rlwire._options import check_count, natural
    from rlwire.environments import vector
    from rlwire.urls import URL

    several = isinstance(environment, Sequence) and not isinstance(environment, str)
    count = len(environment) if several and num_envs is None else num_envs
    if count is not None:
        check_count("num_envs", count)
    if workers is not None:
        check_count("workers", workers, natural)
    if count is None or (several and count != len(environment)):
        raise ValueError(
            f"num_envs must be the number of environments, not {num_envs}"
            + (f": got {len(environment)}" if several else "")
        )
    many = environment if several else [environment] * count
    urls = [isinstance(each, URL) or (isinstance(each, str) and "://" in each) for each in many]
    if any(urls):
        if not all(urls) or workers or caller_steps:
            raise ValueError("URLs cannot be combined with factories, workers= or caller_steps=")
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
    """Connect to an environment; ValueError if its server has fewer than `count` places."""
    from rlwire.errors import without_secret

    made = make(url, **options)
    places = made.endpoint.places if count > 1 else None
    if places is not None and places < count:
        made.close()
        raise ValueError(
            f"{without_secret(url)} has {places} slot{'' if places == 1 else 's'}, but num_envs is "
            f"{count}: start several servers, and pass make_vec their URLs"
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
    """Listen for an environment that connects to its trainer; return it as a `gymnasium.Env`.

    ::

        env = rlwire.listen("rlx://localhost:7001", like="CartPole-v1")

    A reset waits for a client, without a timeout; Ctrl-C interrupts it. Further clients are queued,
    and rejected above `max_connections`. If a client disconnects, its episode is truncated with the
    last observation and ``info["lost"]``. Clients begin episodes: seeds and options are ignored,
    and a reset inside an episode continues it, with ``info["continued"]``.

    Clients wait while the trainer learns: `AgentProxy` and `openpi.Client` for an hour
    (`Timeouts.idle`), RELAAX's clients without a limit. The server answers openpi's pings. The
    result's `callers`, a `rlwire.environments.callers.Callers`, has `url` and `statistics()`.

    Args:
        url: where to listen, over RLX or openpi; port 0 lets the system choose.
        like: an environment with the same spaces, or its name. By default the first client sends
            its spaces, as `play` does over RLX, and this function waits for it.
        observation_space: instead of `like`.
        action_space: instead of `like`.
        options: as for `serve`, of the side ``"listener"``.

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
    """Listen for environments that connect to their trainer; return a vector environment.

    ::

        envs = rlwire.listen_vec("rlx://localhost:7001", num_envs=8, like="CartPole-v1")

    Options are those of `listen`, other arguments as for `make_vec`.
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
    from rlwire._options import check_count, resolve

    check_count("num_envs", num_envs)
    begin, where, keywords = resolve(url, "listener", options)
    from rlwire.environments.remote import RemoteEnvironment, given_spaces

    spaces, episode = given_spaces(like, seen, done)
    callers = begin(where, num_envs, **spaces, **keywords)
    return [RemoteEnvironment(each, episode=episode) for each in callers.endpoints], callers


def play(
    environment: Any, url: str | URL, *, episodes: int = 1, seed: int | None = None, **options: Any
) -> list[float]:
    """Play episodes with the agent or policy at a URL; return the total reward of each.

    ::

        rlwire.play("gym:CartPole-v1", "rlx://localhost:7001", episodes=10)
        rlwire.play("dm-env-rpc://localhost:9911", "rlx://localhost:7001")      # a gateway

    Args:
        environment: an environment, a factory, its name, or the URL of a served one.
        url: the server of the agent or policy, over RLX, openpi or RLlink.
        episodes: number of episodes.
        seed: seed of the first episode (default: none).
        options: as for `serve`, of the side ``"player"``: those of `connect`, and a few more.

    Raises:
        OSError, RlwireError, TypeError, ValueError: as `connect`, or an action does not fit.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire._options import check_count, natural, resolve
    from rlwire.urls import naming_protocol

    check_count("episodes", episodes, natural)
    begin, where, keywords = resolve(url, "player", _given(options, seed=seed))
    with naming_protocol(where):
        totals: list[float] = begin(environment, where, episodes=episodes, **keywords)
    return totals


def _register_environment() -> None:
    """Register ``rlwire/Remote-v0`` when Gymnasium is imported: 1.0 dropped its entry points."""
    name = "gymnasium.envs.registration"

    def register(module: Any) -> None:
        module.register("rlwire/Remote-v0", entry_point="rlwire:make")

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)
            found = PathFinder.find_spec(name, path)
            if found is not None and found.loader is not None:
                run = found.loader.exec_module

                def execute(module: ModuleType) -> None:
                    run(module)
                    register(module)

                found.loader.exec_module = execute  # type: ignore[method-assign]
            return found

    if hasattr(sys.modules.get(name), "register"):  # else it is missing, or just being imported
        register(sys.modules[name])
    else:
        sys.meta_path.insert(0, Finder)


_register_environment()

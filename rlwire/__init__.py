"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Each function accepts a URL (`rlwire.urls.URL`) and the options of its protocol, as keywords or
in the URL's query; keywords win. The options are the fields of the protocol's dataclass: ``rlwire
serve rlx:// --help`` lists them, and in Python, after ``import rlwire.registry``,
``help(rlwire.registry.protocol("rlx").options["server"])``. The sides are ``"server"`` for `serve`,
``"client"`` for `connect`, ``"environment"`` for `make`, ``"listener"`` for `listen`, and
``"player"`` for `play`. All have ``limits`` and ``record``; most ``auth``, ``tls`` and ``timeout``.

An invalid URL or option is a TypeError or ValueError, an address that cannot be used or a file that
cannot be read an OSError, a peer that speaks another protocol or rejects the connection an
RlwireError, and an extra that is not installed a `MissingExtra`.

`rlwire.aio` has the same functions for asyncio. Importing rlwire imports no protocol.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rlwire import _imports

if TYPE_CHECKING:
    from rlwire.environments.remote import RemoteEnvironment
    from rlwire.environments.vector import VectorEnvironment
    from rlwire.serving.serving import BackgroundServer
    from rlwire.urls import URL

    __version__: str

__all__ = ["__version__", "connect", "get_include", "install", "listen", "listen_vec", "make"]
__all__ += ["make_vec", "play", "serve", "uninstall"]


_imports.use_compiled_modules(__path__)


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imports.version_of_package()


def get_include() -> str:
    """Return the include folder for ``#include <rlwire/rlwire.h>``."""
    import rlwire.buffers as buffers  # compiled, therefore never from a bare checkout

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec in this process; LeRobot at both ends.

    Args:
        library: ``"dm_env_rpc"``, ``"lerobot"``, ``"msgpack_numpy"``, ``"openpi_client"`` or
            ``"rllib"``.
        options: ``pickle=True`` keeps pickles of object arrays, for trusted peers (msgpack_numpy);
            ``limits`` (lerobot).

    ImportError if the library is missing, RuntimeError if it is another version.
    """
    from rlwire import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Undo `install`: the library uses its own codec again."""
    from rlwire import installing

    installing.uninstall(library)


def serve(target: Any, url: str | URL, **options: Any) -> BackgroundServer:
    """Serve an environment, an agent or a policy in the background; return the running server.

    ::

        with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)
        rlwire.serve(MyAgent, "rlx://localhost:7001", workers=4).wait()
        rlwire.serve("dm-env-rpc://localhost:9911", "universe://localhost:5900+15900")  # a gateway

    Args:
        target: an environment, if trainers connect; an agent or policy, if environments connect. An
            object, a factory, a name such as ``"my_module:MyAgent"``, or for a gateway the URL of
            a served environment. It is made and checked before the server listens.
        url: where to listen; port 0 lets the system choose.

    Raises:
        ImportError, AttributeError: `target` names nothing. A factory's own errors are raised too.
    """
    from rlwire._options import resolve

    make_server, where, keywords = resolve(url, "server", options)
    server: BackgroundServer = make_server(target, where, **keywords)
    server.check()
    return server.start()


def connect(url: str | URL, **options: Any) -> Any:
    """Connect to a server; return the client of the URL's protocol.

    ::

        with rlwire.connect("dm-env-rpc://localhost:9911/world") as client:
            client.step()

    It is an `AgentProxy` of `rlwire.rlx`, a `Client` of `rlwire.dm_env_rpc` or `rlwire.perlert` (in
    the world or instance that the path names), `rlwire.openpi` or `rlwire.rllink`, or a
    `RewarderClient` of `rlwire.universe.rewarder` (at the port after the plus).
    """
    from rlwire._options import resolve
    from rlwire.urls import naming_protocol

    make_client, where, keywords = resolve(url, "client", options)
    with naming_protocol(where):
        return make_client(where, **keywords).__enter__()


def make(
    url: str | URL,
    *,
    like: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    copy: bool = True,
    render_mode: str | None = None,
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
        observation_space, action_space: override the server's; required, or `like`, if the server
            does not describe its spaces. rlwire's do.
        copy: False allows observations that are read-only views of received messages.
        render_mode: ``"rgb_array"`` makes `render` return a picture: the newest one if the server
            streams pixels, else one requested from rlwire's dm_env_rpc server. Gymnasium's
            `RecordVideo` and `HumanRendering` need it.

    Raises:
        EncodeError: the spaces do not fit the server's.
    """
    from rlwire.environments.remote import connected

    spaces = (like, observation_space, action_space)
    return connected(url, spaces, copy=copy, render_mode=render_mode, options=options)


def make_vec(
    environment: Any,
    num_envs: int | None = None,
    *,
    workers: int | None = None,
    caller_steps: bool = False,
    autoreset_mode: str | None = None,
    copy: bool = True,
    env_kwargs: dict[str, Any] | None = None,
    sb3: bool = False,
) -> VectorEnvironment | Any:
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
            Unless `multiprocessing` forks them, functions must be picklable, and scripts need
            ``if __name__ == "__main__":``.
        caller_steps: whether this process also steps some environments. That saves a wake-up, but
            if an environment crashes, so does the program.
        autoreset_mode: a `gymnasium.vector.AutoresetMode` by name: ``"NextStep"`` (default),
            ``"SameStep"``, ``"Disabled"``.
        copy: False lets the next step overwrite the returned arrays.
        env_kwargs: keyword arguments of the factory; for URLs, the options of `make`.
        sb3: return a `VecEnv` for Stable-Baselines3, in ``"SameStep"`` mode.

    Raises:
        TypeError, ValueError: an argument is invalid, or a server has too few places.
        EncodeError: a space has no fixed size, such as Text or Sequence.
        PeerError: a factory failed in its process.
    """
    if sb3:
        from rlwire.environments.stable_baselines3 import VecEnv

        autoreset_mode = autoreset_mode or "SameStep"
    from rlwire.environments import vector
    from rlwire.errors import on_error

    making = {"workers": workers, "caller_steps": caller_steps}
    modes: Any = {"mode": autoreset_mode or "NextStep", "copy": copy}
    envs = vector.made(environment, num_envs, env_kwargs, make, making, **modes)
    with on_error(envs.close):
        return VecEnv(envs) if sb3 else envs


def listen(
    url: str | URL,
    *,
    like: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
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
        observation_space, action_space: instead of `like`.

    Raises:
        ValueError, EncodeError: a space is unknown, or has no fixed size.
    """
    from rlwire.environments.remote import listening

    return listening(url, 1, (like, observation_space, action_space), options)[0]


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
    from rlwire.environments.vector import listening

    spaces = (like, observation_space, action_space)
    return listening(url, num_envs, spaces, options, mode=autoreset_mode, copy=copy)


def play(environment: Any, url: str | URL, *, episodes: int = 1, **options: Any) -> list[float]:
    """Play episodes with the agent or policy at a URL; return the total reward of each.

    ::

        rlwire.play("gym:CartPole-v1", "rlx://localhost:7001", episodes=10)
        rlwire.play("dm-env-rpc://localhost:9911", "rlx://localhost:7001")      # a gateway

    Args:
        environment: an environment, a factory, its name, or the URL of a served one.
        url: the server of the agent or policy, over RLX, openpi or RLlink.
        episodes: number of episodes.

    RemoteProtocolError if an action does not fit.
    """
    from rlwire._options import check_count, natural, resolve
    from rlwire.urls import naming_protocol

    check_count("episodes", episodes, natural)
    begin, where, keywords = resolve(url, "player", options)
    with naming_protocol(where):
        totals: list[float] = begin(environment, where, episodes=episodes, **keywords)
    return totals


_imports.register_environment()

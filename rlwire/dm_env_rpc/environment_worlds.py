"""`EnvironmentWorlds`: makes worlds of dm_env, Gymnasium and PettingZoo environments.

docs/protocols/dm_env_rpc.md describes observations, rewards, settings and the end of an episode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlwire.codecs.dm_env_rpc import Settings
from rlwire.dm_env_rpc.environment_factory import EnvironmentFactory
from rlwire.dm_env_rpc.environment_world import EnvironmentWorld
from rlwire.dm_env_rpc.step_converter import ConverterOptions, Names


class EnvironmentWorlds:
    """A `WorldFactory` that makes an environment for each ``create_world``.

    ::

        server = Server(EnvironmentWorlds(MyEnvironment, accepts=["level"]), "localhost:9999")

    Settings in `accepts` become keyword arguments of `make_environment`, NumPy scalars as Python's
    and names with periods as nested dictionaries. An agent's settings override those of its world.
    A reset that changes them makes a new environment. ``seed``, and if `accepts` has ``options``
    also ``options.NAME``, are arguments of Gymnasium's ``reset``, unless `make_environment` has
    such an argument in `accepts`.

    The agents of a PettingZoo environment share it. ``join_world``'s setting ``agent`` selects one,
    by default the first free one, and only ``create_world`` sets arguments. An episode begins when
    all agents have requested it. The environment steps when all agents in the episode have sent
    actions. An agent that leaves or resets interrupts the episode for the others.

    Args:
        make_environment: a class or function that makes an environment; or an environment, which
            serves one world at a time and is not closed.
        names: names of observations, actions, reward and discount.
        default_actions: by name, for steps without an action. Actions without a default are
            required in every step.
        infos: whether Gymnasium's infos are sent to `rlwire.make`, the only client that reads them.
        accepts: the settings that clients may set, by default none, because an argument may be a
            path, a URL or a size. A name includes nested ones: ``task`` accepts ``task.size``.

    Attributes:
        accepts: the settings that clients may set, with ``seed``.

    Raises:
        TypeError: `make_environment` is neither an environment nor callable, or needs an argument
            that is not in `accepts`.
        ValueError: `accepts` has a name that is not an argument of the factory.
    """

    def __init__(
        self,
        make_environment: Any,
        *,
        names: Names | None = None,
        default_actions: Mapping[str, Any] | None = None,
        infos: bool = True,
        accepts: Collection[str] = (),
    ) -> None:
        self._factory = EnvironmentFactory(make_environment, accepts)
        self._options = ConverterOptions(names or Names(), infos, dict(default_actions or {}))
        self.accepts = self._factory.accepts
        self.sampled = False  # whether `sample` has made an environment: `Server.check` needs none

    def __call__(self, settings: Settings) -> EnvironmentWorld:
        return EnvironmentWorld(self._factory, self._options, settings)

    def sample(self) -> EnvironmentWorld | None:
        """Return a world made without settings; None if some are required."""
        if self._factory.needs_settings:
            return None
        self.sampled = True
        return self({})

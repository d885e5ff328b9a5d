"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Layers, each a folder: `codecs` (bytes to values and back, compiled), `sessions` (who may say what
when), `transports` (moving buffers), `environments` (one, or many side by side), `adapters` (what
users hold). Nothing of them is imported until it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlwire.environments.vector import VectorEnvironment

__all__ = ["__version__", "get_include", "install", "make_vec", "uninstall"]


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

try:
    __version__ = version("rlwire")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


def get_include() -> str:
    """Return the folder to give a C or C++ compiler for ``#include <rlwire/rlwire.h>``."""
    from rlwire import buffers  # the compiled module knows where the package really is

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec: `rlwire.adapters.installing.install`."""
    from rlwire.adapters import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Take `install` back: `rlwire.adapters.installing.uninstall`."""
    from rlwire.adapters import installing

    installing.uninstall(library)


def make_vec(
    environment: Any,
    num_envs: int | None = None,
    *,
    workers: int | None = None,
    autoreset_mode: str = "NextStep",
    copy: bool = True,
    context: str | None = None,
    settings: dict[str, Any] | None = None,
) -> VectorEnvironment:
    """Return environments as one of Gymnasium's vector environments, in worker processes.

    ::

        envs = rlwire.make_vec("gym:ALE/Pong-v5", num_envs=16)
        observations, infos = envs.reset(seed=1)
        observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())

    Each process steps its share of the environments, and writes what they give where it belongs in
    the batch, in memory that all share.

    Args:
        environment: what makes one of them, such as ``gym:CartPole-v1``, ``module:factory`` or a
            function; or a sequence of such, one for each environment.
        num_envs: how many; for a sequence it is known.
        workers: how many processes; as many as there are cores by default, 0 for this one alone.
        autoreset_mode: when an environment whose episode is over begins the next one, as
            `gymnasium.vector.AutoresetMode` has it: ``"NextStep"``, ``"SameStep"``, ``"Disabled"``.
        copy: whether each call gives arrays of its own; without, the next step writes to the same.
        context: how processes are started, as `multiprocessing.get_context` takes it. Unless they
            are forked, functions must be picklable, and a program needs the usual
            ``if __name__ == "__main__":``.
        settings: keyword arguments for what makes the environments.

    Raises:
        TypeError, ValueError: there is nothing to make environments of, or no number of them.
        EncodeError: a space has no arrays of a fixed size, such as Text or Sequence.
        PeerError: an environment could not be made in its process.
        MissingExtra: Gymnasium is not installed.
    """
    from rlwire.environments import vector

    several = isinstance(environment, Sequence) and not isinstance(environment, str)
    count = len(environment) if several and num_envs is None else num_envs
    if count is None or count < 1 or (several and count != len(environment)):
        raise ValueError(
            f"num_envs must be how many environments there shall be, not {num_envs}"
            + (f": {len(environment)} were given" if several else "")
        )
    makes = [
        vector.maker(each, settings) for each in (environment if several else [environment] * count)
    ]
    return vector.local(makes, workers=workers, mode=autoreset_mode, copy=copy, context=context)

"""RLlink by URL: what the front door calls; see `rlwire.registry`."""

from __future__ import annotations

import inspect
from typing import Any

from rlwire.environments.loading import load
from rlwire.registry import URL
from rlwire.rllink.client import AsyncClient, Client
from rlwire.rllink.options import OPTIONS
from rlwire.rllink.server import LearnerServer
from rlwire.serving.fronts import check_no_environment, clients

__all__ = ["OPTIONS", "async_client", "client", "play", "server"]


def server(learner: Any, url: URL, **options: Any) -> LearnerServer:
    """Return a server of a learner, a class of learners, or ``"module:learner"``; not started."""
    check_no_environment(learner, url)
    if isinstance(learner, str):
        learner = load(learner, "'module:learner'")
    made: Any = learner() if inspect.isclass(learner) else learner
    return LearnerServer(made, url.address, **options)


client, async_client = clients(Client, AsyncClient)


def play(environment: Any, url: URL, **options: Any) -> list[float]:
    """Have an environment sample; arguments as of `rlwire.rllink.environment.play`."""
    from rlwire.rllink import environment as sampling  # needs Gymnasium

    return sampling.play(environment, str(url), **options)

"""RLlink's part of `rlwire.play`: an environment samples by itself, and sends what it has sampled.

Not here: what a policy is (`policies`), how steps become a batch (`collector`), the conversation
(`client`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from rlwire.codecs.rllink import SetState
from rlwire.environments.loading import load
from rlwire.environments.playing import opened
from rlwire.errors import ConnectionClosed, RemoteProtocolError
from rlwire.rllink.client import Client
from rlwire.rllink.collector import EpisodeCollector
from rlwire.rllink.policies import acted, resolve_policy
from rlwire.transports.address import AddressLike

_RECONNECTS = 5  # times that a lost trainer is looked for in a row, with the client's waits each


def play(
    environment: Any,
    address: AddressLike,
    *,
    episodes: int = 1,
    seed: int | None = None,
    policy: Any = None,
    steps: int | None = None,
    **options: Any,
) -> list[float]:
    """Play an environment with a trainer's weights, and send it the steps; return each reward.

    A batch has exactly as many steps as the trainer asks for; what is left at the end is sent too.
    When the trainer is lost and comes back, the batch that it had not answered is sampled anew.

    Args:
        environment: an environment, what makes one, its name, or a URL of one that is elsewhere.
        address: the trainer's.
        episodes: how many to play to their ends.
        seed: of the first episode.
        policy: as `rlwire.rllink.policies` says, or ``"module:policy"``; by default what
            runs the ONNX that the trainer sends.
        steps: in a batch, where the trainer does not say (as Ray's, whose config is a pickle).
        options: of `Client`.

    Raises:
        ValueError: neither the trainer nor the caller says how many steps a batch has.
        RemoteProtocolError: an action is none of the environment's.
        ConnectionClosed, OSError: the connection is lost, and cannot be made again.
    """
    act = resolve_policy(load(policy, "'module:policy'") if isinstance(policy, str) else policy)
    totals: list[float] = []
    with opened(environment, seed, "RLlink") as game, Client(address, **options) as client:
        collector, weights = _begin(client, steps)
        lost = 0
        while len(totals) < episodes:
            observation = game.reset()
            collector.reset(observation)
            while not game.over:
                action, outputs = acted(act(observation, weights))
                observation, reward = game.step(action)
                ended = game.over and not game.truncated, game.truncated
                collector.step(action, observation, reward, *ended, outputs=outputs)
                last = game.over and len(totals) == episodes - 1
                if collector.full or last:
                    try:
                        # A client that does not wait for new weights asks for the newest.
                        weights = client.send(collector.take()) or client.get_state()
                        lost = 0
                    except (ConnectionClosed, OSError):
                        lost += 1
                        if lost > _RECONNECTS or last:
                            raise
                        collector, weights = _rejoin(client, steps)
                        if not game.over:
                            collector.reset(observation)
            totals.append(game.total)
    return totals


def _begin(client: Client, steps: int | None) -> tuple[EpisodeCollector, SetState]:
    config = client.get_config()
    wanted = config.env_steps_per_sample or steps
    if wanted is None:
        raise ValueError(
            f"{client.address} does not say how many steps a batch has: give steps= (RLlib's "
            "get_rollout_fragment_length())"
        )
    weights = client.get_state()
    if weights is None:
        raise RemoteProtocolError("the trainer has no weights")
    return EpisodeCollector(wanted), weights


def _rejoin(client: Client, steps: int | None) -> tuple[EpisodeCollector, SetState]:
    """Connect again, and begin a batch; who is about to end may take a connection, and drop it."""
    for _ in range(_RECONNECTS - 1):
        with contextlib.suppress(ConnectionClosed):
            client.connect()
            return _begin(client, steps)
    client.connect()
    return _begin(client, steps)

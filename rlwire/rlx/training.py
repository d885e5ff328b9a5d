"""`TrainingBase`: runs episodes against an RLX server, and moves on when a server dies.

Has the interface of `relaax.environment.training.TrainingBase`. Not here: the connection itself
(`rlwire.rlx.agent_proxy`).

Differences from the original, all on purpose:

- `run` raises what ends the training: the exception of a user's own `episode`, and
  `AgentProxyException` when no server is left. The original logs these and returns, so that the
  program ends with success.
- An episode that fails again and again against servers that can be reached is given up after
  `TrainingBase.retries` attempts in a row; the original repeats it for ever.
- Settings may come from arguments, too, instead of the command line and the file that it names
  (`rlwire.rlx.config`).
- Metrics are sent whatever their name; the original sends those that the file enables.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any, ClassVar

from rlwire.errors import DecodeError, PeerError, RemoteProtocolError
from rlwire.rlx.agent_proxy import AgentProxy, AgentProxyException
from rlwire.rlx.config import options as settings

logger = logging.getLogger(__name__)

_SAID = (PeerError, DecodeError, RemoteProtocolError)


class TrainingBase:
    """A base for training programs: define `episode`, call `run`.

    With no address, the settings are read from the command line and the file that it names, as
    RELAAX does it (``--config app.yaml --exploit False --show-ui False``): see
    `rlwire.rlx.options`. Other arguments on the command line are left to the program.

    Args:
        address: of the RLX server, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; or a
            list of them, of which one is in use at a time.
        max_episodes: how many episodes to run; 1 by default.
        infinite_run: go on after `max_episodes`; False by default.
        exploit: asks the agent not to explore or learn; False by default.
        options: further arguments for `AgentProxy`, such as `tls`, `timeouts` and `limits`.

    Attributes:
        agent: the `AgentProxy`; it stays the same object when the server changes.
    """

    reward_metric = "episode_reward"
    """The scalar under which an episode's reward is reported. RELAAX's program says
    `episode_reward`; its README says `game_score`: set that here if your charts expect it."""

    retries = 10
    """How many times in a row one episode is tried, and one reconnection is attempted."""

    proxy: ClassVar[type[AgentProxy]] = AgentProxy
    """What `agent` is made of."""

    def __init__(
        self,
        address: Any = None,
        *,
        max_episodes: int | None = None,
        infinite_run: bool | None = None,
        exploit: bool | None = None,
        **options: Any,
    ) -> None:
        if address is None:
            address = [part.strip() for part in settings.rlx_server_address.split(",")]
            if max_episodes is None:
                max_episodes = settings.get("environment/max_episodes")
            if infinite_run is None:
                infinite_run = settings.get("environment/infinite_run")
            exploit = settings.exploit if exploit is None else exploit
        self.addresses: list[Any] = list(address) if isinstance(address, list) else [address]
        if not self.addresses:
            raise ValueError("expected at least one address of an RLX server, got an empty list")
        self.max_episodes = 1 if max_episodes is None else max_episodes
        self.infinite_run = bool(infinite_run)
        self.exploit = bool(exploit)
        self.agent = self.proxy(self.addresses[0], **options)

    def episode(self, number: int) -> float | None:
        """Run one episode with `self.agent`; return its reward, or None to report nothing."""
        raise NotImplementedError("define episode(self, number) in your subclass of TrainingBase")

    def initialize_agent(self, retry: int = 6) -> None:
        """Connect to the first server that answers, from the one in use on, and send `init`.

        Args:
            retry: how many times each server is tried, with growing pauses.

        Raises:
            AgentProxyException: no server could be reached, or all refused.
        """
        rounds = dataclasses.replace(self.agent.backoff, attempts=max(1, retry))
        # The pause after the last round is not waited for.
        for pause in (*rounds.delays(), None):
            refused = 0
            for _ in self.addresses:
                self.agent.address = self.addresses[0]
                try:
                    self.agent.connect(retry=1)
                    self.agent.init(self.exploit)
                    return
                except AgentProxyException as error:
                    logger.warning("can't use RLX server %s: %s", self.addresses[0], error)
                    failure = error
                    refused += isinstance(error.__cause__, _SAID)
                self._next_address()
            # Servers that were reached and said no, or what makes no sense, will say so again.
            if pause is None or refused == len(self.addresses):
                break
            time.sleep(pause)
        self.agent.disconnect()
        raise AgentProxyException(
            f"no RLX server takes this training; the last of {len(self.addresses)} said: {failure}"
        ) from failure

    def run(self) -> None:
        """Run the episodes, numbered from 0.

        When a server dies in an episode, the same number starts again with the next server.

        Raises:
            AgentProxyException: no server is left, or one episode failed `retries` times.
            Exception: what `episode` raised.
        """
        number = 0
        failures = 0
        try:
            self.initialize_agent()
            while self.infinite_run or number < self.max_episodes:
                try:
                    reward = self.episode(number)
                    if reward is not None:
                        self.agent.metrics.scalar(self.reward_metric, reward)
                except AgentProxyException as error:
                    failures += 1
                    if failures >= self.retries:
                        raise
                    logger.error("episode %d lost its agent: %s; reconnecting", number, error)
                    self._next_address()
                    self.initialize_agent(retry=self.retries)
                else:
                    number += 1
                    failures = 0
        except Exception as error:
            logger.error("training ends in episode %d: %s", number, error)
            raise
        finally:
            self.agent.disconnect()

    def _next_address(self) -> None:
        self.addresses.append(self.addresses.pop(0))

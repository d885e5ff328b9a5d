"""`LearnerServer`: an algorithm of one's own behind an `Server`, in a thread of its own.

Not here: RLlib's algorithms, which take what they need by themselves
(`rlwire.rllib.rllink`).
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol

from rlwire.codecs.rllink import SetConfig, SetState
from rlwire.rllink.client import PORT
from rlwire.rllink.server import Server
from rlwire.serving.serving import Running
from rlwire.transports.address import AddressLike

logger = logging.getLogger(__name__)


class Learner(Protocol):
    """An algorithm."""

    def get_state(self) -> SetState:
        """Return the weights that simulators begin with; called once, in the server's thread."""

    def learn(self, episodes: list[Any]) -> SetState | None:
        """Learn from what `Server.sample` gave; return new weights, or None for the same."""


class LearnerServer(Server):
    """An `Server` whose episodes go to a learner, and whose weights come from it.

    Args:
        learner: a `Learner`.
        address: where to listen.
        steps: that one message of a client is to bring.
        on_policy: whether clients wait for new weights before they go on.
        batch: steps that the learner is given at once, at least; by default what there is.
        options: of `Server`.

    Raises:
        TypeError: it is no learner.
        ValueError: another argument makes no sense.
    """

    def __init__(
        self,
        learner: Learner,
        address: AddressLike = f"localhost:{PORT}",
        *,
        steps: int = 500,
        on_policy: bool = True,
        batch: int = 1,
        **options: Any,
    ) -> None:
        for name in ("get_state", "learn"):
            if not callable(getattr(learner, name, None)):
                raise TypeError(f"a learner has a method {name}, {type(learner).__name__} has none")
        for name, value in (("steps", steps), ("batch", batch)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        super().__init__(address, config=SetConfig(steps, on_policy), **options)
        self._learner = learner
        self._batch = batch
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def _run(self) -> Running:
        running = super()._run()
        self._ending.clear()
        self._thread = threading.Thread(target=self._learn, name="rlwire learner", daemon=True)
        self._thread.start()
        return running

    def _after_stop(self) -> None:
        self._ending.set()
        super()._after_stop()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)
            if thread.is_alive():
                logger.warning("the learner did not end within 5.0 s and is left behind")

    def _learn(self) -> None:
        try:
            state = self._learner.get_state()
            self.set_state(state)
            episodes: list[Any] = []
            while not self._ending.is_set():
                episodes += self.sample()
                if episodes and sum(map(len, episodes)) >= self._batch:
                    state = self._learner.learn(episodes) or state
                    episodes = []
                # Those whose batch is not full go on with what there is.
                self.set_state(state)
        except Exception:
            if not self._ending.is_set():
                logger.exception("the learner failed; nothing is learnt any more")
                self.stop_soon()  # clients would wait for weights that never come

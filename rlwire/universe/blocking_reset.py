"""`BlockingReset` makes a `UniverseEnv` wait until each remote has an observation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rlwire.errors import DeadlineExceeded
from rlwire.universe.events import PEEK
from rlwire.universe.sums import Outcome, added


class BlockingReset:
    """Wait until each index has an observation: in `reset`, and in `step` where one has none.

    What arrives meanwhile is added to what the next step returns. All other attributes are those
    of the inner vector.

    Args:
        env: the inner vector.
        timeout: seconds to wait; None waits forever.
        clock: returns seconds that only go forward.
    """

    def __init__(
        self,
        env: Any,
        timeout: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.env = env
        self._timeout = timeout
        self._clock = clock
        self._owed: Outcome | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.env.close()

    def __repr__(self) -> str:
        return f"<BlockingReset{self.env!r}>"

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes, and return the first observation of each."""
        observation_n = self.env.reset(*arguments, **options)
        self._owed = None
        self._owed = self._until_all(self.env.step([[] for _ in observation_n]))
        return self._owed[0]

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act, and return what has come when each index has an observation; errors as `reset`."""
        outcome: Outcome = self.env.step(action_n)
        owed, self._owed = self._owed, None
        if owed is not None:
            for index, observation in enumerate(outcome[0]):
                owed[0][index] = None if observation is None else {**observation, "text": []}
            outcome = added(owed, outcome)
        return self._until_all(outcome)

    def _until_all(self, outcome: Outcome) -> Outcome:
        until = None if self._timeout is None else self._clock() + self._timeout
        while any(observation is None for observation in outcome[0]):
            left = None if until is None else until - self._clock()
            if left is not None and left <= 0:
                self._owed = outcome
                missing = [index for index, seen in enumerate(outcome[0]) if seen is None]
                errors = [info["error"] for info in outcome[3]["n"] if "error" in info]
                raise DeadlineExceeded(
                    f"nothing is seen at {missing} within timeout={self._timeout:g} s"
                    + (f": {'; '.join(errors)}" if errors else "")
                )
            self.env.wait(left, turns=True)
            # Leaves the rewards of an episode that begins after one that ended to the next step.
            idle: list[list[Any]] = [[PEEK] if done else [] for done in outcome[2]]
            outcome = added(outcome, self.env.step(idle))
        return outcome

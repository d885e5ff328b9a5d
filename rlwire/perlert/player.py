"""`PacedPlayer` runs one instance's environment in real time, one step per tick."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np

from rlwire.environments.pacing import Pacer
from rlwire.errors import RlwireError
from rlwire.perlert.environment import Outcome, Simulation
from rlwire.perlert.options import PerlertInstanceOptions
from rlwire.perlert.spaces import OWN_TAG
from rlwire.sessions.perlert.server import Instance
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0

_Outcomes: TypeAlias = Mapping[str, Outcome]


@dataclass(eq=False)
class PacedPlayer:
    """Makes, steps and closes one instance's environment in one thread.

    That is the event loop's, or the `executor`'s only one. If the environment raises, the run ends
    with ``done``. The next run starts after a back-off of 1 to 10 s, in a new environment if `make`
    is given. `phase` shifts the ticks by a fraction of a period.
    """

    instance: Instance
    simulation: Simulation  # the caller's; that of a class is made anew, of its spaces
    make: Callable[[], Simulation] | None
    options: PerlertInstanceOptions
    _: KW_ONLY
    send: Callable[[], object]  # what is queued for the rollout port
    log: RateLimitedLog
    once: RateLimitedLog
    executor: Executor | None = None
    phase: float = 0.0

    def __post_init__(self) -> None:
        self.rate, self.extra = self.options.rate, self.options.extra
        self._keys = list(self.simulation.agents)
        self._played = self.simulation if self.make is None else None
        self._pacer = Pacer(self.rate)
        self._stopped = False
        self._failures = 0  # in a row
        # Read once: the wall clock may be set back.
        self._epoch = time.time() - time.monotonic()
        self._counts = Counter[str](runs=0, steps=0, failures=0, abandoned=0)
        self._at = self.instance.session.rollout.at

    def __str__(self) -> str:
        return str(self.instance)

    async def open(self) -> None:
        await self._in_thread(self._open)

    def _in_thread(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call in the environment's thread."""
        loop = asyncio.get_running_loop()
        if self.executor is not None:
            return loop.run_in_executor(self.executor, call)
        made = loop.create_future()
        made.set_result(call())
        return made

    def _open(self) -> Simulation:
        if self._played is None:
            assert self.make is not None
            self._played = self.make()
        return self._played

    def statistics(self) -> dict[str, int]:
        return {**self._counts, "missed": self._pacer.missed}

    def start_run(self) -> None:
        self._counts["runs"] += 1
        self._step = 0
        instance = self.instance
        # Each run of each instance has a seed of its own.
        which = (zlib.crc32(instance.name.encode()), instance.number, self._counts["runs"])
        sequence = np.random.SeedSequence(self.options.seed, spawn_key=which)
        self._seed = int(sequence.generate_state(1)[0]) >> 1  # many environments accept 31 bits
        self._totals = dict.fromkeys(self._keys, 0.0)
        self._last: dict[str, Outcome] = {}
        self._texts: dict[str, str] = {}  # the last action of each client,
        self._parsed: dict[str, Any] = {}  # and the last valid one
        self._tags = {lease.key: lease.tag for lease in instance.lobby.leases.values()}
        totals = self.options.totals
        asked = (key for key, tag in self._tags.items() if totals or tag.startswith(OWN_TAG))
        self._summed = set(asked if totals is not False else ())  # get the sum of rewards
        logger.debug("%s: run %d started, clients %s", self, self._counts["runs"], self._tags)
        pause = min(_FIRST_PAUSE * 2.0 ** (self._failures - 1), _LONGEST_PAUSE)
        # Not at once: first the clients receive ``start``.
        self._at(time.monotonic() + (pause if self._failures else 0.0), self._reset)
        self.send()  # sets the timer

    def _reset(self, now: float) -> None:
        self._call(lambda: self._open().reset(self._seed), self._on_reset, now)

    def _on_reset(self, outcomes: _Outcomes, now: float) -> None:
        self._publish(outcomes, now)
        self._pacer.restart(at=time.monotonic() + (1.0 + self.phase) / self.rate)
        self._continue(now)

    def _continue(self, now: float) -> None:
        instance = self.instance
        if instance.rollout is not None and not self._step % max(1, int(self.rate)):
            for key in instance.drop_silent(now):  # checked once per second
                self._counts["abandoned"] += 1
                logger.info("%s: run ended for %s (%s): silent", self, key, self._tags[key])
        if instance.rollout is not None:
            if not all(each.terminated or each.truncated for each in self._last.values()):
                self._at(self._pacer.due(), self._tick)
                return
            # For clients whose agents the environment does not list.
            instance.finish(now)
        self._failures = 0
        logger.info(
            "%s: run %d ended: %d steps, seed %d, %s",
            self,
            self._counts["runs"],
            self._step,
            self._seed,
            ", ".join(f"{key} ({tag}) {self._totals[key]:g}" for key, tag in self._tags.items()),
        )

    def _tick(self, now: float) -> None:
        if self._stopped:
            return
        if missed := self._pacer.advance():
            self.log.warning(
                "%s: %d ticks missed at %g Hz: steps take too long, or the server is overloaded",
                self,
                missed,
                self.rate,
            )
        actions = self._actions()
        self._call(lambda: self._advance(actions), self._on_step, now)

    def _advance(self, actions: dict[str, Any]) -> _Outcomes:
        simulation = self._open()
        default = self.options.default_action
        for key in self._keys:
            if key not in actions:
                if default is None:
                    actions[key] = simulation.default(key)
                elif callable(default):
                    last = self._last.get(key)
                    actions[key] = default(key, None if last is None else last.seen)
                else:
                    actions[key] = default
        return simulation.step(actions)

    def _on_step(self, outcomes: _Outcomes, now: float) -> None:
        self._step += 1
        self._counts["steps"] += 1
        self._publish(outcomes, now)
        self._continue(now)

    def _call(
        self, work: Callable[[], _Outcomes], then: Callable[[_Outcomes, float], None], now: float
    ) -> None:
        if self._stopped:
            return
        if self.executor is None:
            self._finish_call(work, then, now)
            return

        def done(busy: asyncio.Future[_Outcomes]) -> None:
            if not self._stopped:
                self._finish_call(busy.result, then, time.monotonic())
                self.send()

        self._in_thread(work).add_done_callback(done)

    def _finish_call(
        self, result: Callable[[], _Outcomes], then: Callable[[_Outcomes, float], None], now: float
    ) -> None:
        try:
            then(result(), now)
        except BaseException as error:  # an environment's exit() must not end the server
            if self.executor is None and isinstance(error, KeyboardInterrupt):
                raise
            self._fail(error)

    def _actions(self) -> dict[str, Any]:
        simulation = self.simulation
        actions = {}
        for key, text in self.instance.actions().items():
            if text != self._texts.get(key):
                self._texts[key] = text
                try:
                    self._parsed[key] = simulation.parse(key, text)
                except Exception as error:  # invalid text: the last valid action is repeated
                    logger.debug("%s: invalid action of %s: %r: %s", self, key, text[:80], error)
                    self.instance.session.dropped["invalid_action"] += 1
            if key in self._parsed:
                actions[key] = self._parsed[key]
        return actions

    def _publish(self, outcomes: _Outcomes, now: float) -> None:
        steps: dict[str, tuple[Any, float, bool, Mapping[str, Any] | None]] = {}
        for key, outcome in outcomes.items():
            observation, reward, terminated, truncated, info, _seen = outcome
            if math.isfinite(reward):  # else it would hide the later ones in the sum
                self._totals[key] += reward
            extra = self._extra(key, terminated, truncated)
            if info or self.extra is not None:
                extra = {**self._user_extra(key, info), **extra}
            steps[key] = observation, reward, terminated or truncated, extra or None
        self._last.update(outcomes)
        at = self._step, self._milliseconds(now), now
        try:
            self.instance.publish(steps, *at)
        except (RlwireError, TypeError, ValueError) as error:
            if self.extra is None:
                raise
            for key, (_, _, terminated, truncated, _, _) in outcomes.items():
                steps[key] = *steps[key][:3], self._extra(key, terminated, truncated) or None
            self.instance.publish(steps, *at)  # raises again if it was not the extra
            self.once.warning("%s: extra= is not sent: %s", self, error)

    def _extra(self, key: str, terminated: bool, truncated: bool) -> dict[str, Any]:
        # The sum makes up for lost datagrams; ``done`` does not distinguish truncation.
        extra: dict[str, Any] = {"total": self._totals[key]} if key in self._summed else {}
        if truncated:
            extra["truncated"] = True
            if terminated:
                extra["terminated"] = True
        return extra

    def _user_extra(self, key: str, info: Mapping[Any, Any]) -> Mapping[str, Any]:
        if self.extra is not None:
            try:
                return dict(self.extra(key, info) or {})
            except Exception as error:
                self.once.warning("%s: extra= failed, and is not sent: %r", self, error)
        elif info:
            self.once.warning(
                "%s: the info (%s) is not sent, since PERLERT has no field for it; to send entries "
                "in EXTRA, pass extra=lambda key, info: {...}",
                self,
                ", ".join(map(str, info)),
            )
        return {}

    def _milliseconds(self, now: float) -> int:
        return int((self._epoch + now) * 1000)

    def _fail(self, error: BaseException) -> None:
        self._failures += 1
        self._counts["failures"] += 1
        logger.error(
            "%s: the environment failed: run %d ended at step %d, seed %d",
            self,
            self._counts["runs"],
            self._step,
            self._seed,
            exc_info=error,
        )
        now = time.monotonic()
        if self.instance.rollout is not None:
            steps = {}
            for key in self._keys:
                last = self._last.get(key)
                extra = {**self._extra(key, False, True), "error": True}
                steps[key] = ("" if last is None else last.observation, 0.0, True, extra)
            try:
                self.instance.publish(steps, self._step + 1, self._milliseconds(now), now)
            except RlwireError:  # the last observation cannot be encoded
                self.instance.finish(now)
        self._in_thread(self._close)

    def _close(self) -> None:
        if self.make is not None and self._played is not None:  # not the caller's environment
            played, self._played = self._played, None
            played.close()

    async def stop(self, grace: float) -> None:
        """End the run for its clients, and close the environment after its current step."""
        self._stopped = True
        if self.instance.rollout is not None:
            now = time.monotonic()
            self.instance.finish(now, self._milliseconds(now))
            self.send()
        done, _ = await asyncio.wait([self._in_thread(self._close)], timeout=grace)
        if not done:
            logger.warning("%s: a step did not end within %.1f s: not closed", self, grace)

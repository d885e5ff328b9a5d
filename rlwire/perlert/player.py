"""`PacedPlayer`: one instance's environment, and its rollouts in real time, a step a tick."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from rlwire.errors import RlwireError
from rlwire.perlert.environment import Default, Outcome, Simulation
from rlwire.sessions.perlert.server import Instance
from rlwire.transports.pacing import Pacer
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

Extra: TypeAlias = Callable[[str, Mapping[Any, Any]], Mapping[str, Any] | None]
"""Makes of an agent's key and the environment's info what goes into EXTRA."""

ABANDON: Final = 300.0
"""Seconds after which a rollout ends of whose clients none has been heard."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
_LOG_INTERVAL = 60.0
_SHORTEST_DELAY = 0.001


class TickTimer:
    """Calls the players of a server when their ticks are due, on an event loop.

    One timer for all, and what those that are due together have to send is sent at once: an event
    loop's own timers, one a player, cost more than the rest of a tick. `send` sends what the
    session has to send.
    """

    def __init__(self, send: Callable[[], object]) -> None:
        self.send = send
        self.loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self.log = RateLimitedLog(logger, _LOG_INTERVAL, lines=1)
        self.says_infos = False  # that infos are not sent: once for a server

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Call something with the time as soon as it is `when`, by `time.monotonic`."""
        self._count += 1
        heapq.heappush(self._due, (when, self._count, call))
        if when < self._timer_at:
            self._set_timer(when)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Event loops keep time to a millisecond; uvloop rounds down, and would wake us for nothing.
        delay = max(_SHORTEST_DELAY, when - time.monotonic())
        self._timer = self.loop.call_later(delay, self._call)
        self._timer_at = when

    def _call(self) -> None:
        self._timer, self._timer_at = None, -math.inf  # nothing sets a timer before the end of this
        now = time.monotonic()
        due = self._due
        while due and due[0][0] <= now:
            call = heapq.heappop(due)[2]
            try:
                call(now)
            except Exception:  # whatever is wrong with one player, the others play on
                logger.exception("a tick has failed")
        self._timer_at = math.inf
        if due:
            self._set_timer(due[0][0])
        self.send()

    def stop(self) -> None:
        """Forget all calls."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()


@dataclass(eq=False)
class PacedPlayer:
    """Plays one instance's environment, on an event loop.

    If the environment raises, the rollout ends with ``done`` for all its clients. The next one
    gets an environment made anew, where `make` is given, and begins after a pause that doubles
    with each failure in a row. An environment that nothing makes anew is not closed.

    It steps on `executor`, or on the loop's own thread. `phase`, from 0 to 1, shifts its ticks by
    so much of a period, so that the instances of a server do not all send at once. The other
    arguments are those of `Server.add`.
    """

    instance: Instance
    simulation: Simulation | None
    make: Callable[[], Simulation] | None
    timer: TickTimer
    _: KW_ONLY
    rate: float
    default_action: Default = None
    extra: Extra | None = None
    seed: int | None = None
    executor: Executor | None = None
    phase: float = 0.0

    def __post_init__(self) -> None:
        assert self.simulation is not None
        self._keys = list(self.simulation.agents)
        self._pacer = Pacer(self.rate)
        self._busy: asyncio.Future[Any] | None = None
        self._stopped = False
        self._failures = 0  # in a row
        # As long as the wall clock may be set back, it is not asked twice.
        self._epoch = time.time() - time.monotonic()
        self._counts = Counter[str](runs=0, steps=0, failures=0, abandoned=0)
        # Of the rollout:
        self._seed = 0
        self._step = 0
        self._live: set[str] = set()
        self._totals: dict[str, float] = {}
        self._last: dict[str, Outcome] = {}
        self._texts: dict[str, str] = {}  # the last action of each client,
        self._parsed: dict[str, Any] = {}  # and the last valid one
        self._tags: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.instance.name}:{self.instance.number}"

    def told(self, key: str) -> str | None:
        """Return what tells a client the spaces of a slot, None if nothing does."""
        tell = getattr(self.simulation, "told", None)
        return None if tell is None else tell(key)

    def statistics(self) -> dict[str, int]:
        """Return counts: runs, steps, failures and abandoned runs, and missed ticks."""
        steps = self._counts["steps"] + self._step
        return {**self._counts, "steps": steps, "missed": self._pacer.missed}

    # ---- a rollout, from start to end ----

    def begin(self) -> None:
        """Begin a rollout: the session says that it has started."""
        self._counts["runs"] += 1
        # Another one for each rollout of each instance.
        instance = self.instance
        which = (zlib.crc32(instance.name.encode()), instance.number, self._counts["runs"])
        sequence = np.random.SeedSequence(self.seed, spawn_key=which)
        self._seed = int(sequence.generate_state(1)[0]) >> 1  # seeds often take 31 bits
        self._totals = dict.fromkeys(self._keys, 0.0)
        self._last = {}
        self._texts, self._parsed = {}, {}
        self._tags = {lease.key: lease.tag for lease in instance.lobby.leases.values()}
        logger.debug("%s: run %d begins, clients %s", self, self._counts["runs"], self._tags)
        if self._failures:
            pause = min(_FIRST_PAUSE * 2.0 ** (self._failures - 1), _LONGEST_PAUSE)
            self.timer.at(time.monotonic() + pause, self._call_reset)
        else:
            self._call_reset(time.monotonic())
            self.timer.send()

    def _call_reset(self, now: float) -> None:
        self._call(self._reset, self._has_begun, now)

    def _reset(self) -> Mapping[str, Outcome]:
        if self.simulation is None:
            assert self.make is not None
            self.simulation = self.make()
        return self.simulation.reset(self._seed)

    def _has_begun(self, outcomes: Mapping[str, Outcome], now: float) -> None:
        self._live = set(outcomes)
        self._publish(outcomes, now)
        self._pacer.restart(at=time.monotonic() + (1.0 + self.phase) / self.rate)
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        if self.instance.rollout is not None:
            abandoned = bool(self._live) and self._is_abandoned(now)
            if self._live and not abandoned:
                self.timer.at(self._pacer.due(), self._tick)
                return
            # Without live agents: clients of agents that the environment never had, or lost.
            if abandoned:
                self._counts["abandoned"] += 1
                logger.info("%s: no client has been heard for a long time, the run ends", self)
            self.instance.finish(now)
        self._failures = 0
        logger.info(
            "%s: run %d is over: %d steps, seed %d, %s",
            self,
            self._counts["runs"],
            self._step,
            self._seed,
            ", ".join(f"{key} ({tag}) {self._totals[key]:g}" for key, tag in self._tags.items()),
        )
        self._count_steps()

    def _is_abandoned(self, now: float) -> bool:
        rollout = self.instance.rollout
        # Asked once a second, not at each tick.
        if rollout is None or self._step % max(1, int(self.rate)):
            return False
        before = now - ABANDON
        return all(
            client.done or (rollout.started if client.heard is None else client.heard) < before
            for client in rollout.clients.values()
        )

    def _tick(self, now: float) -> None:
        if self._stopped:
            return
        missed = self._pacer.advance()
        if missed:
            self.timer.log.warning(
                "%s: %d ticks missed: steps take longer than a period, or the server is busy",
                self,
                missed,
            )
        actions = self._actions()
        self._call(lambda: self._advance(actions), self._has_stepped, now)

    def _advance(self, actions: dict[str, Any]) -> Mapping[str, Outcome]:
        simulation = self.simulation
        assert simulation is not None
        default = self.default_action
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

    def _has_stepped(self, outcomes: Mapping[str, Outcome], now: float) -> None:
        self._step += 1
        self._publish(outcomes, now)
        self._go_on(now)

    def _count_steps(self) -> None:
        self._counts["steps"] += self._step
        self._step = 0

    def _call(
        self,
        work: Callable[[], Mapping[str, Outcome]],
        then: Callable[[Mapping[str, Outcome], float], None],
        now: float,
    ) -> None:
        """Let the environment work, here or in another thread, and go on with the outcome."""
        if self._stopped:
            return
        if self.executor is None:
            self._then(work, then, now)
            return

        def done(busy: asyncio.Future[Mapping[str, Outcome]]) -> None:
            self._busy = None
            if not self._stopped:
                self._then(busy.result, then, time.monotonic())
                self.timer.send()

        self._busy = self.timer.loop.run_in_executor(self.executor, work)
        self._busy.add_done_callback(done)

    def _then(
        self,
        result: Callable[[], Mapping[str, Outcome]],
        then: Callable[[Mapping[str, Outcome], float], None],
        now: float,
    ) -> None:
        try:
            then(result(), now)
        except (Exception, SystemExit) as error:  # an environment's exit() is not ours
            self._fail(error)

    # ---- actions and steps ----

    def _actions(self) -> dict[str, Any]:
        """Return the last valid action of each client that has sent one."""
        simulation = self.simulation
        assert simulation is not None
        actions = {}
        for key, text in self.instance.actions().items():
            if text != self._texts.get(key):
                self._texts[key] = text
                try:
                    self._parsed[key] = simulation.parse(key, text)
                except Exception as error:
                    # Whatever a peer's text makes it raise, it is the text that is wrong, and the
                    # last valid action stays in force.
                    logger.debug("%s: action of %s: %r: %s", self, key, text[:80], error)
                    self.instance.reject_action()
            if key in self._parsed:
                actions[key] = self._parsed[key]
        return actions

    def _publish(self, outcomes: Mapping[str, Outcome], now: float) -> None:
        steps: dict[str, tuple[Any, float, bool, Mapping[str, Any]]] = {}
        for key, outcome in outcomes.items():
            observation, reward, terminated, truncated, info, _seen = outcome
            done = terminated or truncated
            self._totals[key] += reward
            steps[key] = observation, reward, done, self._extra(key, terminated, truncated, info)
            if done:
                self._live.discard(key)
            else:
                self._live.add(key)
        self._last.update(outcomes)
        self.instance.publish(steps, self._step, self._milliseconds(now), now)

    def _extra(
        self, key: str, terminated: bool, truncated: bool, info: Mapping[Any, Any]
    ) -> Mapping[str, Any]:
        extra: dict[str, Any] = {}
        if self.extra is not None:
            extra.update(self.extra(key, info) or {})
        elif info and not self.timer.says_infos:
            self.timer.says_infos = True
            logger.warning(
                "%s: the info (%s) is not sent, PERLERT has no field for it; put what clients need "
                "into EXTRA: extra=lambda key, info: rlwire.perlert.scalars(info)",
                self,
                ", ".join(map(str, info)),
            )
        # So that no reward is lost with a datagram; and ``done`` does not say what has ended it.
        extra["total"] = self._totals[key]
        if truncated:
            extra["truncated"] = True
            if terminated:
                extra["terminated"] = True
        return extra

    def _milliseconds(self, now: float) -> int:
        return int((self._epoch + now) * 1000)

    # ---- the end ----

    def _fail(self, error: BaseException) -> None:
        self._failures += 1
        self._counts["failures"] += 1
        logger.error(
            "%s: run %d ends at step %d, seed %d: the environment failed",
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
                extra = {"total": self._totals[key], "truncated": True, "error": True}
                steps[key] = ("" if last is None else last.observation, 0.0, True, extra)
            try:
                self.instance.publish(steps, self._step + 1, self._milliseconds(now), now)
            except RlwireError:  # it is the observation that cannot be sent
                self.instance.finish(now)
        self._count_steps()
        self._close()

    def _close(self) -> None:
        if self.make is None:
            return
        simulation, self.simulation = self.simulation, None
        if simulation is not None:
            try:
                simulation.close()
            except Exception:
                logger.exception("%s: the environment cannot be closed", self)

    async def stop(self, grace: float) -> None:
        """End the rollout for its clients, and close the environment, once its step is done."""
        self._stopped = True
        if self.instance.rollout is not None:
            now = time.monotonic()
            self.instance.finish(now, self._milliseconds(now))
            self._count_steps()
            self.timer.send()
        if self._busy is not None:
            done, _ = await asyncio.wait([self._busy], timeout=grace)
            if not done:
                logger.warning("%s: a step did not end within %.1f s", self, grace)
                return
        self._close()

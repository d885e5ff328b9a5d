"""Remotes that run an environment of Gymnasium's, over real sockets: a step for each commit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlwire.adapters.rewarder import RewarderServer
from rlwire.adapters.rfb import Display, RfbServer
from rlwire.adapters.universe import BlockingReset, Remote, UniverseEnv
from rlwire.adapters.universe.core import GymCoreAction, GymCoreSync, core_actions, core_meanings
from rlwire.adapters.universe.diagnostics import Marker, Marking
from rlwire.codecs.rfb.messages import KeyEvent
from rlwire.environments.loading import load_environment

GAME = "ale_py:ALE/Pong-v5"
MARKED = (slice(0, 2), slice(0, 6))  # where the remote writes its time


def make() -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = load_environment(f"gym:{GAME}")(repeat_action_probability=0.0)
    return env


class CoreRemote:
    """Plays as gym-core remotes do: keys by VNC, a step and a reward for each press of C, and the
    time in the picture that is drawn after it."""

    def __init__(self) -> None:
        self.env = make()
        self.down: set[int] = set()
        self.actions = {
            frozenset(event.keysym for event in action if event.down): number
            for number, action in reversed(list(enumerate(core_actions(core_meanings(GAME)))))
        }
        self.probed = 0.0
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.display = Display(160, 210, on_input=lambda viewer, event: self.jobs.put(event))
        self.rewarder = RewarderServer(
            "gym-core.Pong-v0", "127.0.0.1:0", on_reset=self.jobs.put
        ).start()
        self.pixels = RfbServer(self.display, "127.0.0.1:0").start()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            if not isinstance(job, KeyEvent):
                self.begin(job)
            elif job.keysym != ord("c"):
                if job.keysym > 0xFFFF:
                    self.probed = time.time()
                (self.down.add if job.down else self.down.discard)(job.keysym)
            elif job.down:
                seen, reward, terminated, truncated, _ = self.env.step(self.action())
                self.rewarder.reward(float(reward), terminated or truncated)
                self.show(seen)

    def action(self) -> int:
        """The action that the keys which are down stand for, as far as they stand for any."""
        known: frozenset[int] = frozenset().union(*self.actions)
        number: int = self.actions.get(known & self.down, 0)
        return number

    def begin(self, request: Any) -> None:
        seen, _ = self.env.reset(seed=request.seed)
        self.rewarder.begin_episode(request)
        self.show(seen)

    def show(self, seen: Any) -> None:
        picture = np.array(seen)
        time.sleep(0.001)  # a picture's time is of whole milliseconds: not before the reward's
        Marker.write(picture, Marking(int(1000 * time.time()) / 1000, self.probed))
        self.display.show(picture)

    def close(self) -> None:
        self.jobs.put(None)
        self.thread.join(20)
        self.pixels.stop()
        self.rewarder.stop()
        self.env.close()


@pytest.fixture
def remote() -> Iterator[CoreRemote]:
    remote = CoreRemote()
    yield remote
    remote.close()


def test_a_game_behind_pixels_is_as_deterministic_as_here(remote: CoreRemote) -> None:
    pixels, rewards = remote.pixels.address, remote.rewarder.address
    here = make()
    random = np.random.default_rng(7)
    with UniverseEnv(Remote(pixels, rewards), markings=True) as env:
        away = GymCoreAction(GymCoreSync(BlockingReset(env, 20), 20), GAME)
        (seen,) = away.reset(seed=11)
        expected, _ = here.reset(seed=11)
        total = 0.0
        for number in range(120):
            picture = seen["vision"].copy()
            picture[MARKED] = expected[MARKED]
            np.testing.assert_array_equal(picture, expected, err_msg=str(number))
            action = int(random.integers(6))
            (seen,), (reward,), (done,), _ = away.step([action])
            expected, wanted, terminated, truncated, _ = here.step(action)
            assert (reward, done) == (wanted, terminated or truncated)
            total += abs(reward)
        assert total > 0
    here.close()

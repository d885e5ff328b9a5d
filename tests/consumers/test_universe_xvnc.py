"""`UniverseEnv` on TigerVNC's Xvnc as it is installed, with something moving on it."""

from contextlib import ExitStack

import numpy as np
import pytest

from rlwire.codecs.rfb import Encoding
from rlwire.universe import BlockingReset, Remote, UniverseEnv, key
from rlwire.universe.rewarder import RewarderServer
from tests.reference import xvnc

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

SIZE = (320, 200)


def test_two_desktops_with_rewards():
    with ExitStack() as stack:
        desktops = [stack.enter_context(xvnc.Desktop(*SIZE)) for _ in range(2)]
        besides = [stack.enter_context(xvnc.viewer(each, [Encoding.RAW])) for each in desktops]
        rewarders = []
        for number in range(2):

            def begin(request, number=number):
                rewarders[number].begin_episode(request)

            server = RewarderServer("a.Game-v0", "127.0.0.1:0", auth="openai", on_reset=begin)
            rewarders.append(stack.enter_context(server))
        remotes = [
            Remote(f"unix:{desktop.path}", rewarder.address)
            for desktop, rewarder in zip(desktops, rewarders, strict=True)
        ]
        env = BlockingReset(stack.enter_context(UniverseEnv(remotes)), 60)
        assert [each["vision"].shape for each in env.reset(seed=1)] == [(200, 320, 3)] * 2
        painted = [0, 0]
        for number in range(12):
            expected = []
            for index, (desktop, beside) in enumerate(zip(desktops, besides, strict=True)):
                desktop.show(xvnc.game(200, 150, number + index), 8 * number, 4 * number)
                rewarders[index].reward(1.0 + index)
                expected.append(beside.update(incremental=False))
            rewards = [0.0, 0.0]
            seen = [None, None]
            while rewards != [1.0, 2.0] or not all(
                np.array_equal(one, other) for one, other in zip(seen, expected, strict=True)
            ):
                assert env.wait(60)
                observations, reward_n, done_n, info = env.step([[key("a", bool(number % 2))], []])
                seen = [each["vision"] for each in observations]
                for index in range(2):
                    rewards[index] += reward_n[index]
                    painted[index] += info["n"][index].get("stats.vnc.updates.pixels", 0)
                assert done_n == [False, False]
        assert all(12 * 320 * 200 > each > 0 for each in painted)

"""Environments on TigerVNC's Xvnc as it is installed, with something moving on it."""

from contextlib import ExitStack, closing

import numpy as np
import pytest

from rlwire.codecs.rfb import Encoding
from rlwire.universe import key
from rlwire.universe.environment import UniverseEndpoint
from rlwire.universe.options import UniverseEnvironmentOptions
from rlwire.universe.rewarder import RewarderServer
from tests.reference import xvnc
from tests.universe.resets import answer_resets

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

SIZE = (320, 200)


def test_environments_receive_frames_and_rewards_of_two_desktops():
    with ExitStack() as stack:
        desktops = [stack.enter_context(xvnc.Desktop(*SIZE)) for _ in range(2)]
        besides = [stack.enter_context(xvnc.viewer(each, [Encoding.RAW])) for each in desktops]
        rewarders, envs = [], []
        for number, desktop in enumerate(desktops):
            server = RewarderServer("a.Game-v0", "127.0.0.1:0", auth="openai")
            rewarders.append(answer_resets(stack.enter_context(server)))
            given = {"address": server.address, "auth": "openai"}
            options = UniverseEnvironmentOptions(server.address, rate=1000)
            pixels = {"address": f"unix:{desktop.path}"}
            endpoint = UniverseEndpoint(f"desktop {number}", given, pixels, options)
            envs.append(stack.enter_context(closing(endpoint)))
        for env in envs:
            env.begin_reset(1, None)
        assert [env.finish()[0].shape for env in envs] == [(200, 320, 3)] * 2
        for number in range(12):
            for index, (desktop, beside) in enumerate(zip(desktops, besides, strict=True)):
                desktop.show(xvnc.game(200, 150, number + index), 8 * number, 4 * number)
                rewarders[index].reward(1.0 + index)
                expected = beside.update(incremental=False)
                total, seen = 0.0, None
                while total != 1.0 + index or not np.array_equal(seen, expected):
                    seen, reward, *_ = envs[index].step([key("a", bool(number % 2))])
                    total += reward

"""`rlwire.make(url, render_mode="rgb_array")` over each protocol."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RenderCollection

import rlwire
from tests.raising import raised


class Painted(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 24}  # noqa: RUF012 - Gymnasium's
    observation_space = gymnasium.spaces.Box(0, 255, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, self.steps, np.float32), 1.0, False, False, {}

    def render(self):
        return np.full((16, 24, 3), self.steps, np.uint8)


class Plain(Painted):
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_client_fetches_frames_only_with_a_render_mode(workers):
    with rlwire.serve(Painted, "dm-env-rpc://127.0.0.1:0", workers=workers) as server:
        with rlwire.make(server.url, render_mode="rgb_array") as env:
            assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": 24.0}
            env.reset()
            for steps in range(1, 4):
                env.step(0)
                picture = env.render()
                assert picture.dtype == np.uint8
                assert np.array_equal(picture, np.full((16, 24, 3), steps))
        with rlwire.make(server.url) as env:
            assert env.render_mode is None
            assert env.render() is None


def painted(render_mode=None, size=3):
    return Painted(render_mode)


@pytest.mark.parametrize("where", ["dm-env-rpc://127.0.0.1:0", "universe://127.0.0.1:0+0"])
@pytest.mark.parametrize(
    "factory",
    [
        painted,
        functools.partial(painted, size=2),
        functools.partial(functools.partial(Painted)),
        functools.partial(gymnasium.make, "CartPole-v1"),
    ],
)
def test_factories_without_metadata_can_render(where, factory):
    with (
        rlwire.serve(factory, where) as server,
        rlwire.make(server.url, render_mode="rgb_array") as env,
    ):
        env.reset()
        env.step(0)
        assert env.render().shape[2] == 3


def test_gymnasiums_render_wrappers_work_remotely():
    with rlwire.serve(Painted, "dm-env-rpc://127.0.0.1:0") as server:
        made = gymnasium.make("rlwire/Remote-v0", url=server.url, render_mode="rgb_array")
        env = RenderCollection(made)
        env.reset()
        env.step(1)
        env.step(1)
        assert [frame[0, 0, 0] for frame in env.render()] == [0, 1, 2]
        env.close()


def test_vector_renders_each_environment():
    with rlwire.serve(Painted, "dm-env-rpc://127.0.0.1:0") as server:
        envs = rlwire.make_vec(server.url, num_envs=2, env_kwargs={"render_mode": "rgb_array"})
        envs.reset()
        envs.step(np.array([0, 1]))
        assert [frame[0, 0, 0] for frame in envs.render()] == [1, 1]
        envs.close()


def test_rendering_keeps_the_worlds_own_properties():
    from rlwire.dm_env_rpc import Client, Properties, PropertiesExtension

    class Both(Painted):
        def __init__(self, render_mode=None):
            super().__init__(render_mode)
            self.properties = Properties()
            self.properties.add("lives", dtype=np.int32, read=lambda: 3)

    with rlwire.serve(Both, "dm-env-rpc://127.0.0.1:0") as server, Client(server.address) as client:
        client.join_world()
        names = {each.spec.name for each in PropertiesExtension(client).list()}
        assert names == {"lives", "rlwire"}


@pytest.mark.parametrize("scheme", ["dm-env-rpc://127.0.0.1:0", "universe://127.0.0.1:+0"])
def test_render_mode_without_a_renderer_is_rejected(scheme):
    with rlwire.serve(Plain, scheme) as server:
        assert "rlwire" in str(raised(ValueError, rlwire.make, server.url, render_mode="rgb_array"))
        rlwire.make(server.url).close()  # the place is free again


def test_human_render_mode_suggests_gymnasiums_wrapper():
    caught = raised(ValueError, rlwire.make, "dm-env-rpc://127.0.0.1:9", render_mode="human")
    assert "HumanRendering" in str(caught)


def test_render_returns_the_observed_pixels():
    with (
        rlwire.serve(Painted, "universe://127.0.0.1:0+0", env_kwargs={}, rate=60.0) as server,
        rlwire.make(server.url, render_mode="rgb_array") as env,
    ):
        assert env.metadata["render_fps"] == 60.0
        observation, _ = env.reset()
        for _ in range(3):
            observation, *_ = env.step(0)
        assert env.render().shape == (16, 24, 3)
        assert np.array_equal(env.render(), observation)

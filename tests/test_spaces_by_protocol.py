"""Spaces and infos over each protocol that serves environments: whole at both ends, or refused.

Servers and clients are rlwire's own, on loopback. How others see our servers is in
the folders of the protocols.
"""

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import rlwire
from rlwire.dm_env_rpc import Client
from rlwire.dm_env_rpc.spaces import INFO, REQUEST_SPACES, spaces_in
from rlwire.environments.infos import InfoCodec
from rlwire.environments.pettingzoo import ParallelEnvironment
from rlwire.errors import DecodeError, EncodeError, RlwireError
from rlwire.limits import DEFAULT
from tests.raising import raised, raised_with
from tests.waiting import eventually

PROTOCOLS = {
    "dm_env_rpc": ("dm-env-rpc://127.0.0.1:0", {}),
    "rewarder": ("universe://127.0.0.1:+0", {"rate": 500}),
    "perlert": ("perlert://127.0.0.1:0", {"rate": 500}),
}

SPACES = {
    "Box": spaces.Box(-1, 1, (3,)),
    "Box of no dimension": spaces.Box(-2.5, 3.5, ()),
    "Box of an integer": spaces.Box(-5, 5, (), np.int32),
    "Box of one": spaces.Box(0, 1, (1,)),
    "Box of nothing": spaces.Box(0, 1, (0,)),
    "Box of 2 times nothing": spaces.Box(0, 1, (2, 0)),
    "Box without bounds": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "Box with some bounds": spaces.Box(np.float32([0, -np.inf, -1]), np.float32([np.inf, 1, 1])),
    "Box with a bound for each": spaces.Box(np.float32([[0, 1, 2], [3, 4, 5]]), np.float32(7)),
    "Box of bool": spaces.Box(0, 1, (3,), np.bool_),
    **{
        f"Box of {dtype.__name__}": spaces.Box(low, high, (2, 3), dtype)
        for dtype, low, high in (
            (np.float16, -1, 1), (np.float64, -1e300, 1e300), (np.uint8, 0, 255),
            (np.uint16, 0, 60_000), (np.uint32, 7, 2**32 - 1), (np.uint64, 0, 2**64 - 1),
            (np.int8, -128, 127), (np.int16, -300, 300), (np.int64, -(2**62), 2**62),
        )
    },
    "Discrete": spaces.Discrete(3),
    "Discrete with start": spaces.Discrete(3, start=-1),
    "Discrete of int32": spaces.Discrete(3, dtype=np.int32),
    "Discrete with a large start": spaces.Discrete(2**60, start=2**60),
    "MultiDiscrete": spaces.MultiDiscrete([3, 5]),
    "MultiDiscrete with start": spaces.MultiDiscrete([3, 5], start=[-1, 2]),
    "MultiDiscrete of 2 dimensions": spaces.MultiDiscrete(
        np.array([[3, 5], [2, 7]]), start=np.array([[1, 2], [3, 4]])
    ),
    "MultiDiscrete of uint8": spaces.MultiDiscrete([3, 5], dtype=np.uint8),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary of 2 dimensions": spaces.MultiBinary([2, 3]),
    "Text": spaces.Text(8),
    "Text with length and characters": spaces.Text(5, min_length=3, charset="xyz "),
    "Text that may be empty": spaces.Text(3, min_length=0, charset="ab"),
    "Text beyond ASCII": spaces.Text(4, charset="äß€😀\n\t"),
    "Dict": spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))),
    "Dict in an order": spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Text(3))]),
    "Dict of one": spaces.Dict(x=spaces.Box(0, 1, (2,))),
    "Dict of observation": spaces.Dict(observation=spaces.Discrete(3, start=1)),
    "Dict of action": spaces.Dict(action=spaces.Discrete(3, start=1)),
    "Dict of numbers": spaces.Dict({"0": spaces.Discrete(2), "1": spaces.Discrete(3)}),
    "Dict with a period": spaces.Dict({"a.b": spaces.Discrete(2)}),
    "Dict of nothing": spaces.Dict(),
    "Dict with nothing in it": spaces.Dict(a=spaces.Dict(), b=spaces.Discrete(2)),
    "Dict with an empty Box": spaces.Dict(
        a=spaces.Discrete(2), b=spaces.Box(0, 1, (0,)), c=spaces.Text(2, min_length=0)
    ),
    "Dict of many": spaces.Dict({f"part{n}": spaces.Box(-n - 1, n + 1, (2,)) for n in range(40)}),
    "Tuple": spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)]),
    "Tuple of one": spaces.Tuple([spaces.Discrete(3)]),
    "Tuple of nothing": spaces.Tuple([]),
    "Tuple of kinds": spaces.Tuple(
        [spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,)), spaces.Text(4)]
    ),
    "Tuple of numbers": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, ())]),
    "Tuple of rows": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,))]),
    "Tuple of lengths": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiBinary(3)]),
    "nested": spaces.Dict(
        a=spaces.Tuple([
            spaces.Discrete(2),
            spaces.Dict(t=spaces.Text(3), m=spaces.MultiDiscrete([2, 3], start=[1, 1])),
        ]),
        b=spaces.Dict(c=spaces.MultiBinary([2, 2]), d=spaces.Dict(e=spaces.Discrete(4, start=2))),
    ),
}  # fmt: skip


def equal(one, other):
    """Whether two values are the same, dtypes and types of containers included."""
    if isinstance(one, dict):
        return type(other) is dict and list(one) == list(other) and all(
            equal(one[key], other[key]) for key in one
        )  # fmt: skip
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, (np.ndarray, np.generic)):
        kinds = (np.ndarray, np.generic)
        return isinstance(other, kinds) and one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


class Mirror(gymnasium.Env[Any, Any]):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        observation_space.seed(5)
        self.shown = observation_space.sample()
        self.actions = []

    def reset(self, *, seed=None, options=None):
        return self.shown, {}

    def step(self, action):
        self.actions.append(action)
        return self.shown, 1.0, False, False, {}


@contextlib.contextmanager
def made(protocol, environment, **options):
    url, settings = PROTOCOLS[protocol]
    with (
        rlwire.serve(environment, url, **settings, **options) as server,
        contextlib.closing(rlwire.make(server.url)) as env,
    ):
        yield env


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_action_with_an_entry_that_the_space_lacks_is_rejected(protocol):
    inner = spaces.Dict(b=spaces.Discrete(2))
    with made(protocol, Mirror(inner, spaces.Dict(a=inner))) as env:
        env.reset()
        for action, entry in (({"a": {"b": 1}, "c": 2}, "c"), ({"a": {"b": 1, "d": 2}}, "d")):
            raised_with(EncodeError, f"the action.* entry '{entry}'", env.step, action)


@pytest.mark.parametrize("protocol", ["dm_env_rpc", "rewarder"])
def test_flag_of_a_served_environment_that_is_no_boolean_is_named(protocol):
    mirror = Mirror(spaces.Discrete(2), spaces.Discrete(2))
    mirror.step = lambda action: (0, 1.0, np.array([True, False]), False, {})
    with made(protocol, mirror) as env:
        env.reset()
        try:
            said = str(env.step(0)[4])
        except RlwireError as error:
            said = str(error)
    assert "terminated must be true or false, not array([ True, False])" in said


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.each("name", SPACES)
def test_space_and_values_are_equal_at_both_ends(protocol, name):
    space = SPACES[name]
    mirror = Mirror(space, space)
    with made(protocol, mirror) as env:
        assert env.observation_space == env.action_space == space
        observation, _ = env.reset()
        assert equal(mirror.shown, observation), observation
        for _ in range(3):
            action = env.action_space.sample()
            observation = env.step(action)[0]
            assert equal(mirror.shown, observation), observation
            eventually(lambda sent=action: any(equal(sent, one) for one in list(mirror.actions)))


class Mission(spaces.Space[str]):
    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "go to the red ball, then open a door"

    def contains(self, x):
        return x == self.sample()


REFUSED = {
    "Sequence": (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
    "OneOf": (spaces.OneOf([spaces.Discrete(2), spaces.Text(3)]), "OneOf"),
    "Graph": (spaces.Graph(spaces.Discrete(2), None), "Graph"),
    "Sequence in a Dict": (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "Sequence at a"),
    "Dict of no text": (spaces.Dict({0: spaces.Discrete(2)}), r"Dict\(0"),
}
TWO = spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(2))})
REFUSED_BY = {
    "perlert": {
        "a mission": (spaces.Dict(mission=Mission()), r"mission.*Text\("),
        "Text of separators": (spaces.Text(3, charset="a:;"), r"charset=:;a"),
        "Dict of separators": (spaces.Dict({"a,b": spaces.Discrete(2)}), r"Dict\('a,b'"),
        "two of a name": (TWO, r"Dict\('a'"),
        "a picture": (spaces.Box(0, 255, (84, 84, 4), np.uint8), "28224 values"),
    },
    "rewarder": {
        "bounds of many": (spaces.Box(np.arange(99_999.0), np.inf, dtype=np.float64), "Box")
    },
    "dm_env_rpc": {"two of a name": (TWO, r"'a\.b'")},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unsupported_space_is_rejected_before_the_port_opens(protocol):
    url, settings = PROTOCOLS[protocol]
    for name, (space, words) in {**REFUSED, **REFUSED_BY[protocol]}.items():
        for which in ("observation", "action"):
            other = spaces.Discrete(2)
            mirror = Mirror(other, other)
            setattr(mirror, f"{which}_space", space)
            caught = raised_with(EncodeError, words, rlwire.serve, mirror, url, **settings)
            assert which in str(caught), name


class Missions(spaces.Text):
    def __init__(self):
        super().__init__(40, charset="abcdefghijklmnopqrstuvwxyz ,")

    def sample(self, mask=None, probability=None):
        return "go to the red ball, then open a door"


@pytest.mark.parametrize("protocol", ["dm_env_rpc", "rewarder"])
@pytest.mark.parametrize("kind", [Mission, Missions])
def test_mission_space_is_sent_as_text(protocol, kind):
    space = spaces.Dict(image=spaces.Box(0, 255, (7, 7, 3), np.uint8), mission=kind())
    mirror = Mirror(space, spaces.Discrete(7))
    with made(protocol, mirror) as env:
        reported = env.observation_space
        assert type(reported["mission"]) is spaces.Text
        observation, _ = env.reset()
        assert equal(mirror.shown, observation)
        assert reported.contains(observation)


class Brief(Mirror):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, len(self.actions) == 3, False, {}


@pytest.mark.each("name", [name for name in SPACES if name != "Box of uint64"])
def test_rlx_caller_sends_its_spaces_to_the_listener(name, tmp_path):
    space = SPACES[name]
    mirror = Brief(space, space)
    url = f"rlx+unix://{tmp_path}/socket"

    def train():
        with contextlib.closing(rlwire.listen(url)) as env:
            assert env.observation_space == env.action_space == space
            assert equal(mirror.shown, env.reset()[0])
            for _ in range(3):
                action = env.action_space.sample()
                assert equal(mirror.shown, env.step(action)[0])
                assert equal(action, mirror.actions[-1])

    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(train)
        eventually((tmp_path / "socket").exists)
        assert rlwire.play(mirror, url) == [3.0]
        trained.result(30)


@pytest.mark.parametrize("name", ["Dict", "Tuple", "nested"])
def test_openpi_listener_rejects_nested_action_spaces(name, tmp_path):
    with pytest.raises(EncodeError, match=r"Dict\(|Tuple\("):
        rlwire.listen(f"openpi+unix://{tmp_path}/socket", action_space=SPACES[name])
    assert not list(tmp_path.iterdir())


BEGUN = {"begun": True, "map": np.arange(6, dtype=np.float32).reshape(2, 3), "seed": None}


class Informed(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0, dict(BEGUN)

    def step(self, action):
        self.steps += 1
        info = {
            "action_mask": np.array([1, self.steps], np.int8),
            "lives": self.steps,
            "deep": {"flags": np.array([[True], [False]]), "name": "x", "none": np.zeros((0, 2))},
            "words": ["a", "b"],
        }
        return self.steps, 1.0, self.steps == 4, False, info if self.steps % 2 else {}


@pytest.mark.parametrize("protocol", ["dm_env_rpc", "rewarder"])
def test_infos_are_sent_by_default_with_their_array_types(protocol):
    options = {"lockstep": True} if protocol == "rewarder" else {}
    with made(protocol, Informed, **options) as env:
        for _ in range(2):
            assert equal(BEGUN, env.reset()[1])
            for number in (1, 2, 3, 4):
                *_, terminated, _, info = env.step(0)
                if number % 2:
                    expected = Informed()
                    expected.steps = number - 1
                    assert equal(expected.step(0)[4], info), info
                else:
                    assert info == {}
            assert terminated


def test_generic_dm_env_rpc_clients_receive_no_info_observation(caplog):
    class Unsaid(Informed):
        pass

    with rlwire.serve(Unsaid, "dm-env-rpc://127.0.0.1:0") as server, caplog.at_level("WARNING"):
        for _ in range(2):
            with Client(server.url) as client:
                names = [spec.name for spec in client.join_world().observations.values()]
                assert names == ["observation", "reward", "discount"]
                for number in range(4):
                    assert client.step({"action": 0}).observations["observation"] == number
        output = [record for record in caplog.records if "begun" in record.getMessage()]
        assert [record.levelno for record in output] == [logging.WARNING]
        with contextlib.closing(rlwire.make(server.url)) as env:  # beside others, and after them
            assert equal(BEGUN, env.reset()[1])


def test_step_without_an_info_sends_no_info_observation():
    asked = ("observation", "reward", "discount")
    with (
        rlwire.serve(Informed, "dm-env-rpc://127.0.0.1:0") as server,
        Client(server.url, metadata=[REQUEST_SPACES]) as client,
    ):
        specs = client.join_world()
        reported = [each.name for each in specs.observations.values() if each.name not in asked]
        assert [name.startswith(INFO) for name in reported] == [True]
        seen = [tuple(client.step({"action": 0}, asked).observations) for _ in range(4)]
        assert seen == [(*asked, *reported), (*asked, *reported), asked, (*asked, *reported)]


def test_infos_option_disables_infos():
    with made("dm_env_rpc", Informed, infos=False) as env:
        assert env.observation_space == Informed.observation_space
        assert env.reset()[1] == {}
        assert env.step(0)[4] == {}


class Odd(Informed):
    def step(self, action):
        observation, *more, info = super().step(action)
        return observation, *more, {**info, "odd": object(), "deep": {"odd": {1, 2}, "even": 2}}


@pytest.mark.parametrize("protocol", ["dm_env_rpc", "rewarder"])
def test_info_that_cannot_be_sent_is_omitted_and_logged_once(protocol, caplog):
    options = {"lockstep": True} if protocol == "rewarder" else {}
    with caplog.at_level("WARNING"), made(protocol, Odd, **options) as env:
        env.reset()
        for _ in range(3):
            info = env.step(0)[4]
            assert "odd" not in info
            assert info.get("deep", {"even": 2}) == {"even": 2}
        assert equal(np.array([1, 3], np.int8), info["action_mask"])
    output = [record.getMessage() for record in caplog.records if "info" in record.getMessage()]
    assert 1 <= len(output) <= 2, output


class Meeting(ParallelEnv[str, Any, Any]):
    metadata: dict[str, Any] = {"name": "meeting"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.MultiDiscrete([3, 5]) if agent == "a" else spaces.Text(4)

    def action_space(self, agent):
        return spaces.Discrete(2, start=1)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        return self._seen(), {name: {"who": np.array([name == "a"])} for name in self.agents}

    def step(self, actions):
        each = dict.fromkeys(self.agents, False)
        infos = {"a": {"did": np.array([actions["a"]])}, "b": {}}
        return self._seen(), dict.fromkeys(each, 1.0), each, each, infos

    def _seen(self):
        return {"a": np.array([2, 4]), "b": "abcd"}


def test_agents_of_a_shared_world_receive_their_spaces_and_infos():
    with rlwire.serve(Meeting, "dm-env-rpc://127.0.0.1:0") as server:
        agents = {name: rlwire.make(server.url, agent=name) for name in ("a", "b")}
        env = ParallelEnvironment(agents)
        for name in agents:
            assert env.observation_space(name) == Meeting().observation_space(name)
            assert env.action_space(name) == spaces.Discrete(2, start=1)
        _, infos = env.reset()
        assert equal({"a": {"who": np.array([True])}, "b": {"who": np.array([False])}}, infos)
        infos = env.step({"a": 1, "b": 2})[4]
        assert equal({"a": {"did": np.array([1])}, "b": {}}, infos)
        env.close()
        with Client(server.url) as client:  # in a's place
            assert len(client.join_world("", {"agent": "a"}).observations) == 3


def test_perlert_warns_that_it_carries_no_info(caplog):
    with caplog.at_level("WARNING"), made("perlert", Informed) as env:
        for _ in range(2):
            assert not {"begun", "map", "action_mask"} & env.reset()[1].keys()
    output = [each for each in caplog.records if "begun" in each.getMessage()]
    assert [each.levelno for each in output] == [logging.WARNING]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"observation":{},"action":{}}'])
def test_invalid_space_description_in_an_observation_name_is_rejected(text):
    raised(DecodeError, spaces_in, INFO + text, DEFAULT)
    assert spaces_in(INFO + "null", DEFAULT) is None


@pytest.mark.parametrize("reported", [b"\xc1", b"\x01", b""])
def test_malformed_info_is_ignored(reported, monkeypatch, caplog):
    with made("dm_env_rpc", Informed) as env:
        with monkeypatch.context() as patch:
            patch.setattr(InfoCodec, "encode", lambda codec, info: reported)
            assert [env.reset()[1] for _ in range(2)] == [{}] * 2
        assert len([text for text in caplog.messages if "an info is left out" in text]) == 1
        assert equal(BEGUN, env.reset()[1])

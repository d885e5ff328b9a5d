"""The drop-in for LeRobot with the real package, its servers and clients over loopback.

Skipped where LeRobot or PyTorch is not installed; the lane `ray` installs both.
"""

import importlib
import io
import os
import pickle
import queue
import sys
import threading
import time
from collections import OrderedDict
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import trustme

import rlwire
from rlwire.codecs import msgpack
from rlwire.codecs.lerobot import MARK
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.programs import python
from tests.raising import raised, raised_with

pytest.importorskip("lerobot", reason="LeRobot is not installed")
torch = pytest.importorskip("torch")

from tests.consumers import lerobot_stand_ins  # noqa: E402

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.timeout(120),
    # LeRobot's loggers leave their files open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HERE = Path(__file__).parent
POLICY_TYPE = "act"
MODULES = """grpc lerobot.async_inference.configs lerobot.async_inference.helpers
lerobot.async_inference.policy_server lerobot.async_inference.robot_client lerobot.configs.types
lerobot.rl.actor lerobot.rl.learner lerobot.rl.learner_service lerobot.robots
lerobot.transport.services_pb2 lerobot.transport.services_pb2_grpc lerobot.transport.utils"""


@pytest.fixture(scope="module")
def lerobot(tmp_path_factory):
    """LeRobot's modules; importing them makes a folder for logs."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("lerobot"))
    lerobot_stand_ins.install()
    try:
        modules = {one.rpartition(".")[2]: importlib.import_module(one) for one in MODULES.split()}
        yield SimpleNamespace(**modules)
    finally:
        os.chdir(before)


@pytest.fixture
def installed(lerobot):
    rlwire.install("lerobot")
    yield lerobot
    rlwire.uninstall("lerobot")


def observation(lerobot):
    state = {f"joint{i}.pos": i + 0.1 for i in range(14)}
    frame = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
    raw = {**state, "front": frame, "task": "pick up the cup"}
    return lerobot.helpers.TimedObservation(
        timestamp=1.5, timestep=3, observation=raw, must_go=True
    )


def transition():
    state = {"observation.state": torch.rand(1, 14), "observation.image": torch.rand(1, 3, 8, 8)}
    return {
        "state": state,
        "action": torch.rand(1, 4),
        "reward": 0.5,
        "next_state": {name: tensor + 1 for name, tensor in state.items()},
        "done": False,
        "truncated": True,
        "complementary_info": {"discrete_penalty": torch.tensor(-0.1), "attempt": 3},
    }


def same(left, right):
    assert type(left) is type(right), (left, right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        [same(left[key], right[key]) for key in left]
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        [same(*pair) for pair in zip(left, right, strict=True)]
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert torch.equal(left.isnan(), right.isnan())
        assert torch.equal(left.nan_to_num(), right.nan_to_num())
    elif isinstance(left, (np.ndarray, np.generic)):
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)
    elif hasattr(left, "__dict__") and not isinstance(left, str):
        same(vars(left), vars(right))
    else:
        assert left == right


DTYPES = "float64 float32 float16 bfloat16 uint8 int8 int16 int32 int64 bool complex64 complex128"


@pytest.mark.parametrize("dtype", DTYPES.split())
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, 1, 4)], ids=str)
def test_decoded_tensors_are_equal_and_own_their_memory(installed, dtype, shape):
    sent = (torch.rand(shape) * 100).to(getattr(torch, dtype))
    utils = installed.utils
    turned = sent.movedim(0, -1) if shape else sent
    found = utils.bytes_to_python_object(utils.python_object_to_bytes([sent, turned]))
    same(found, [sent, turned])
    found[0].zero_()  # may be written, and is nobody else's
    assert found[0].untyped_storage().nbytes() == sent.numel() * sent.element_size()


def test_values_round_trip_as_with_pickle(installed):
    helpers, types = installed.helpers, installed.types
    features = {
        "observation.state": {"dtype": "float32", "shape": (14,), "names": ["a", "b"]},
        "action": types.PolicyFeature(type=types.FeatureType.ACTION, shape=(14,)),
    }
    config = helpers.RemotePolicyConfig("act", "user/model", features, 50, "cpu", {"a": "b"})
    actions = [helpers.TimedAction(i / 30, i, one) for i, one in enumerate(torch.rand(50, 14))]
    scalars = [np.float32(1.5), np.float64(2.5), np.int64(-3), np.bool_(True), np.uint8(4)]
    others = [None, True, 2**63, -(2**63), 1.5, float("inf"), "text \u00e9\0", b"bytes", (1, (2,))]
    for value in (observation(installed), config, actions, scalars, others, {1: "a", "b": {}}, []):
        wire = installed.utils.python_object_to_bytes(value)
        same(installed.utils.bytes_to_python_object(wire), pickle.loads(pickle.dumps(value)))
    for value in (observation(installed), config, actions, {"reward": 1.5, "step": 3}):
        assert len(installed.utils.python_object_to_bytes(value)) <= len(pickle.dumps(value))


def test_transitions_and_weights_round_trip_as_with_torch(installed):
    utils = installed.utils
    sent = [transition() for _ in range(10)]
    wire = utils.transitions_to_bytes(transitions=sent)
    same(utils.bytes_to_transitions(buffer=wire), sent)
    buffer = io.BytesIO()
    torch.save(sent, buffer)
    assert len(wire) < buffer.tell()
    weights = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).state_dict()
    assert isinstance(weights, OrderedDict)
    same(utils.bytes_to_state_dict(utils.state_to_bytes(weights)), dict(weights))


def test_tensor_is_sent_without_its_gradient(installed):
    sent = torch.nn.Parameter(torch.rand(3)) * 2
    found = installed.utils.bytes_to_python_object(installed.utils.python_object_to_bytes(sent))
    assert not found.requires_grad
    assert torch.equal(found, sent)


class Custom(dict):
    pass


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {2, 3}]}, "$['a'][1]"),
        ({"a": {"b": Custom()}}, "$['a']['b']"),
        ([print], "$[0]"),
        ({"a": {1.5: 1}}, "$['a']"),
        ([1, 2**64], "$[1]"),
        ([np.array([None])], "$[0]"),
        ({"x": (np.ma.masked_array([1]),)}, "$['x'][0]"),
        ([1 + 2j], "$[0]"),
        ([torch.rand(2).to_sparse()], "$[0]"),
        ([torch.rand(2).to(torch.float8_e4m3fn)], "$[0]"),
        (msgpack.ExtType(1, b""), ""),
    ],
    ids=lambda value: str(type(value)) if not isinstance(value, str) else None,
)
def test_encoder_rejects_other_types_with_their_path(installed, value, path):
    assert raised(EncodeError, installed.utils.python_object_to_bytes, value).path == (path or "$")


def test_encode_error_names_the_path_of_a_field(installed):
    sent = observation(installed)
    sent.observation["lock"] = object()
    encode = installed.utils.python_object_to_bytes
    assert raised(EncodeError, encode, [sent]).path == "$[0].observation['lock']"
    cycle = []
    cycle.append(cycle)
    assert raised(LimitExceeded, encode, cycle).limit == "depth"


@pytest.mark.parametrize(
    "part",
    [
        [b"__dir__"], [b"__eq__"], [b"TimedObservation"],
        [b"os.system", "true"], [b"", 1], [b"tensor"], [b"tensor", 1], [b"tensor", np.array("a")],
        [b"bfloat16", np.zeros(2)], b"bare", {1.5: 1}, {b"a": 1}, 1 + 2j,
        msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2), [b"TimedAction", 1.0, 2],
        [b"TimedAction", "1", 2, 3], [b"TimedObservation", 1.0, 2, [], True],
        [b"FeatureType", "NONE"], [b"FPSTracker", 1, 2, 3], [b"PolicyFeature", 1, [b"tuple"]],
    ],
    ids=str,
)  # fmt: skip
def test_decoder_rejects_hostile_messages(installed, part):
    raised(DecodeError, installed.utils.bytes_to_python_object, msgpack.encode([MARK, part]))


def test_encoder_and_decoder_enforce_limits(lerobot):
    rlwire.install("lerobot", limits=Limits(message=1000, items=100))
    try:
        utils = lerobot.utils
        raised(LimitExceeded, utils.python_object_to_bytes, np.zeros(1000))
        with pytest.raises(LimitExceeded):
            utils.bytes_to_python_object(msgpack.encode([MARK, list(range(200))]))
        chunk = SimpleNamespace(transfer_state=2, data=bytes(600))
        with pytest.raises(LimitExceeded) as long:
            utils.receive_bytes_in_chunks([chunk] * 2, None, threading.Event())
        assert (long.value.limit, long.value.size) == ("message", 1200)
    finally:
        rlwire.uninstall("lerobot")


def test_message_in_one_chunk_is_not_copied(installed):
    one = SimpleNamespace(transfer_state=3, data=b"x" * 100)
    assert installed.utils.receive_bytes_in_chunks([one], None, threading.Event()) is one.data


def test_large_tensors_of_a_chunked_message_are_views_of_it(installed):
    sent = {
        **{f"{n} before": n for n in range(7)},
        **{str(dtype): torch.rand(100, 41).to(dtype) for dtype in (torch.float64, torch.bfloat16)},
        "small": torch.rand(3),
    }
    wire = installed.utils.python_object_to_bytes(sent)
    chunks = [
        SimpleNamespace(transfer_state=2 + (start + 5000 >= len(wire)), data=wire[start:][:5000])
        for start in range(0, len(wire), 5000)
    ]
    joined = installed.utils.receive_bytes_in_chunks(chunks, None, threading.Event())
    assert joined == wire
    memory = np.frombuffer(joined, np.uint8)
    for message in (joined, pickle.loads(pickle.dumps(joined))):  # through a queue of processes
        found = installed.utils.bytes_to_python_object(message)
        same(found, sent)
    found = installed.utils.bytes_to_python_object(joined)
    start = memory.ctypes.data
    for name, tensor in found.items():
        if isinstance(tensor, torch.Tensor):
            assert (start <= tensor.data_ptr() < start + len(joined)) is (name != "small")
            assert tensor.data_ptr() % tensor.element_size() == 0
            tensor.zero_()
    del joined, memory, message
    assert not found["torch.float64"].any()


# --- a pickle from a peer


class Bomb:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def serve(lerobot, service, add, credentials=None):
    server = lerobot.grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add(service, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    return server, f"127.0.0.1:{port}"


def send_bombs(lerobot, bomb):
    """Send a pickle to each method of a policy server that loads one; return the errors."""
    pb2, pb2_grpc = lerobot.services_pb2, lerobot.services_pb2_grpc
    service = lerobot.policy_server.PolicyServer(lerobot.configs.PolicyServerConfig())
    server, address = serve(lerobot, service, pb2_grpc.add_AsyncInferenceServicer_to_server)
    errors = []
    with lerobot.grpc.insecure_channel(address) as channel:
        stub = pb2_grpc.AsyncInferenceStub(channel)
        stub.Ready(pb2.Empty())
        data = pickle.dumps(bomb)
        for call in (
            lambda: stub.SendPolicyInstructions(pb2.PolicySetup(data=data)),
            lambda: stub.SendObservations(iter([pb2.Observation(transfer_state=3, data=data)])),
        ):
            errors.append(raised(lerobot.grpc.RpcError, call).details())
        stub.Ready(pb2.Empty())  # the server goes on
    server.stop(0)
    return errors


def test_policy_server_with_the_drop_in_loads_no_pickle(installed, tmp_path):
    errors = send_bombs(installed, Bomb(tmp_path / "ran"))
    assert all('rlwire.install("lerobot")' in error for error in errors), errors
    assert not (tmp_path / "ran").exists()


def test_policy_server_without_the_drop_in_runs_a_pickle(lerobot, tmp_path):
    send_bombs(lerobot, Bomb(tmp_path / "ran"))
    assert (tmp_path / "ran").exists()


class FakeService:
    """A policy server of somebody else's, which answers with a pickle."""

    def __init__(self, pb2, data):
        self.Ready = self.SendPolicyInstructions = lambda request, context: pb2.Empty()
        self.GetActions = lambda request, context: pb2.Actions(data=data)
        self.SendObservations = None


def make_client(lerobot, address):
    config = lerobot.configs.RobotClientConfig(
        policy_type=POLICY_TYPE,
        pretrained_name_or_path="here",
        robot=robot_config(lerobot)(),
        actions_per_chunk=5,
        server_address=address,
        task="pick up the cup",
    )
    return lerobot.robot_client.RobotClient(config)


_made = {}


def robot_config(lerobot):
    """The configuration of a robot that is only in memory, made once."""
    if _made:
        return _made["config"]

    @lerobot.robots.RobotConfig.register_subclass("rlwires_arm")
    @dataclass
    class ArmConfig(lerobot.robots.RobotConfig):
        pass

    class Arm(lerobot.robots.Robot):
        config_class, name = ArmConfig, "rlwires_arm"
        observation_features = action_features = None
        is_connected = is_calibrated = True

        def __init__(self, config):
            self.config, self.sent = config, []
            self.action_features = {"a.pos": float, "b.pos": float}
            self.observation_features = {**self.action_features, "front": (8, 8, 3)}

        def connect(self, calibrate=True):
            pass

        calibrate = configure = disconnect = connect

        def get_observation(self):
            n = len(self.sent)
            return {"a.pos": 100.0 * n, "b.pos": -1.5, "front": np.full((8, 8, 3), n, np.uint8)}

        def send_action(self, action):
            self.sent.append(action)
            return action

    def make(config):
        return Arm(config)

    lerobot.robot_client.make_robot_from_config = make
    _made["config"] = ArmConfig
    return ArmConfig


@pytest.mark.parametrize("drop_in", [True, False], ids=["drop-in", "without"])
def test_robot_client_loads_a_pickle_only_without_the_drop_in(lerobot, tmp_path, drop_in):
    if drop_in:
        rlwire.install("lerobot")
    pb2, pb2_grpc = lerobot.services_pb2, lerobot.services_pb2_grpc
    service = FakeService(pb2, pickle.dumps(Bomb(tmp_path / "ran")))
    server, address = serve(lerobot, service, pb2_grpc.add_AsyncInferenceServicer_to_server)
    client = make_client(lerobot, address)
    try:
        assert client.start()
        client.start_barrier = SimpleNamespace(wait=lambda: None)
        raised(DecodeError if drop_in else TypeError, client.receive_actions)
    finally:
        client.stop()
        server.stop(0)
        rlwire.uninstall("lerobot")
    assert (tmp_path / "ran").exists() is not drop_in


# --- LeRobot's two ends


class SmallPolicy:
    """A policy of one matrix."""

    config = SimpleNamespace(
        image_features={"observation.images.front": SimpleNamespace(shape=(3, 4, 4))}
    )

    @classmethod
    def from_pretrained(cls, name):
        assert name == "here"
        return cls()

    def to(self, device):
        assert device == "cpu"

    def predict_action_chunk(self, batch):
        assert batch["observation.images.front"].shape == (1, 3, 4, 4)
        assert batch["task"] == "pick up the cup"
        state = batch["observation.state"]
        return torch.stack([state * (i + 1) for i in range(8)], dim=1)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_robot_and_policy_server_exchange_observations_and_actions(installed, monkeypatch, tls):
    module, grpc = installed.policy_server, installed.grpc
    monkeypatch.setattr(module, "get_policy_class", {POLICY_TYPE: SmallPolicy}.__getitem__)
    steps = (lambda batch: batch, lambda action: action)
    monkeypatch.setattr(module, "make_pre_post_processors", lambda *args, **options: steps)
    monkeypatch.setattr(pickle, "loads", None)  # no other code of theirs loads one
    config = installed.configs.PolicyServerConfig(inference_latency=0.0, obs_queue_timeout=0.2)
    service = module.PolicyServer(config)
    add = installed.services_pb2_grpc.add_AsyncInferenceServicer_to_server
    credentials = None
    if tls:
        authority = trustme.CA()
        pair = authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in pair.cert_chain_pems)
        credentials = grpc.ssl_server_credentials([(pair.private_key_pem.bytes(), chain)])
        trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        secure = grpc.secure_channel
        # LeRobot's client has no option for a channel's credentials.
        monkeypatch.setattr(
            grpc, "insecure_channel", lambda target, *options: secure(target, trusted, *options)
        )
    server, address = serve(installed, service, add, credentials)
    client = make_client(installed, address)
    assert client.start()
    threads = [
        threading.Thread(target=client.receive_actions, daemon=True),
        threading.Thread(target=client.control_loop, args=["pick up the cup"], daemon=True),
    ]
    [thread.start() for thread in threads]
    end = time.monotonic() + 30
    while len(client.robot.sent) < 12 and time.monotonic() < end:
        time.sleep(0.02)
    client.shutdown_event.set()
    [thread.join(10) for thread in threads]
    client.stop()
    server.stop(0)
    sent = client.robot.sent
    assert len(sent) >= 12, "two chunks of actions"
    assert [action["a.pos"] for action in sent[:2]] == [0.0, 0.0]
    assert [action["b.pos"] for action in sent[:2]] == pytest.approx([-1.5, -3])
    assert service.lerobot_features["observation.images.front"]["shape"] == (8, 8, 3)


def test_actor_and_learner_exchange_transitions_and_weights(installed):
    actor, learner = installed.actor, installed.learner
    parameters, transitions, interactions = queue.Queue(), queue.Queue(), queue.Queue()
    stop = threading.Event()
    service = installed.learner_service.LearnerService(
        stop, parameters, 0.01, transitions, interactions
    )
    add = installed.services_pb2_grpc.add_LearnerServiceServicer_to_server
    server, address = serve(installed, service, add)
    trained = SimpleNamespace(actor=torch.nn.Linear(600, 1000))  # more than one chunk
    policy = SimpleNamespace(actor=torch.nn.Linear(600, 1000))
    sent = [transition() for _ in range(3)]
    try:
        with installed.grpc.insecure_channel(address) as channel:
            stub = installed.services_pb2_grpc.LearnerServiceStub(channel)
            assert actor.establish_learner_connection(stub, stop, 1)
            outgoing, words, received = queue.Queue(), queue.Queue(), queue.Queue()
            actor.push_transitions_to_transport_queue(sent, outgoing)
            words.put(actor.python_object_to_bytes({"Interaction step": 3, "reward": 1.5}))
            learner.push_actor_policy_to_queue(parameters, trained)
            for method, stream, source, arrived in (
                (stub.SendTransitions, actor.transitions_stream, outgoing, transitions),
                (stub.SendInteractions, actor.interactions_stream, words, interactions),
            ):
                done = threading.Event()
                call = method.future(stream(done, source, 0.05))
                arrived.put(arrived.get(timeout=20))
                done.set()
                call.result(timeout=20)
            actor.receive_bytes_in_chunks(one_message(stub, installed), received, stop)
            actor.update_policy_parameters(policy, received, "cpu")
            # A pickle is refused where it arrives, so it never reaches the learner's loop.
            chunk = installed.services_pb2.Transition(transfer_state=3, data=pickle.dumps(1))
            with pytest.raises(installed.grpc.RpcError, match=r"rlwire\.install"):
                stub.SendTransitions(iter([chunk]))
    finally:
        stop.set()
        server.stop(0)
    assert torch.equal(policy.actor.weight, trained.actor.weight)
    stored = []
    buffer = SimpleNamespace(add=lambda **parts: stored.append(parts))
    learner.process_transitions(transitions, buffer, None, "cpu", None, threading.Event())
    same(stored, [learner.move_transition_to_device(part, "cpu") for part in sent])
    found = learner.process_interaction_message(interactions.get(), 10)
    assert found == {"Interaction step": 13, "reward": 1.5}


def one_message(stub, lerobot):
    for chunk in stub.StreamParameters(lerobot.services_pb2.Empty()):
        yield chunk
        if chunk.transfer_state == lerobot.utils.TransferState.TRANSFER_END:
            return


# --- install and uninstall


def test_uninstall_restores_every_function(lerobot):
    names = [name for name in dir(lerobot.utils) if name[0].islower()]
    before = [getattr(getattr(lerobot.utils, name), "__code__", None) for name in names]
    for _ in range(2):
        rlwire.install("lerobot")
        assert lerobot.policy_server.pickle is not pickle
        assert lerobot.actor.transitions_to_bytes([]).startswith(b"\x92")
        rlwire.uninstall("lerobot")
    assert [getattr(getattr(lerobot.utils, name), "__code__", None) for name in names] == before
    assert lerobot.policy_server.pickle is lerobot.robot_client.pickle is pickle
    assert not hasattr(lerobot.utils, "_rlwire")


def test_install_rejects_an_unknown_lerobot_version(lerobot, monkeypatch):
    before = list(sys.meta_path)
    with monkeypatch.context() as patch:
        patch.setattr(lerobot.utils, "state_to_bytes", lambda state_dict: b"")
        raised_with(RuntimeError, r"LeRobot \d.*lerobot.transport.utils", rlwire.install, "lerobot")
    with monkeypatch.context() as patch:
        patch.setattr(lerobot.robot_client, "pickle", SimpleNamespace())
        raised_with(RuntimeError, "robot_client", rlwire.install, "lerobot")
    assert lerobot.policy_server.pickle is pickle
    assert sys.meta_path == before


def test_modules_imported_after_install_have_no_pickle(tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import lerobot_stand_ins, pickle, rlwire; lerobot_stand_ins.install()\n"
        "rlwire.install('lerobot')\n"
        "assert 'lerobot.async_inference.policy_server' not in sys.modules\n"
        "from lerobot.async_inference import policy_server, robot_client\n"
        "assert pickle not in (policy_server.pickle, robot_client.pickle)\n"
        "import importlib; importlib.reload(policy_server)\n"
        "assert policy_server.pickle is not pickle\n"
        "rlwire.uninstall('lerobot')\n"
        "assert policy_server.pickle is robot_client.pickle is pickle\n"
    )
    done = python("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

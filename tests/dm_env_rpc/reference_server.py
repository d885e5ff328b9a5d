"""A dm_env_rpc server of the reference's own parts, for our clients; nothing of rlwire is in it."""

import threading

from dm_env import specs as dm_specs
from dm_env_rpc.v1 import (
    dm_env_flatten_utils,
    dm_env_rpc_pb2,
    dm_env_rpc_pb2_grpc,
    dm_env_utils,
    spec_manager,
    tensor_utils,
)
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2

from tests.dm_env_rpc.voyage import Voyage

State = dm_env_rpc_pb2.EnvironmentStateType


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.status = status_pb2.Status(code=code, message=message)
        # A detail, so that clients have one to hand on.
        self.status.details.add().Pack(dm_env_rpc_pb2.DestroyWorldRequest(world_name="detail"))


def protos_of(nested):
    """UIDs from 100 on, in no special order: clients must take what they are told."""
    flat = dm_env_flatten_utils.flatten_dict(nested, ".")
    protos = {}
    for place, (name, spec) in enumerate(flat.items()):
        proto = dm_env_utils.dm_env_spec_to_tensor_spec(spec)
        proto.name = name
        protos[100 + (place * 7) % 13] = proto
    return protos


class Shared:
    """What all connections of the server have in common."""

    def __init__(self):
        self.lock = threading.Lock()
        self.worlds = {}
        self.count = 0
        self.values = {"motto": "fluctuat", "depth.mean": 3.5}


class Connection:
    """One stream: at most one joined world, with an environment of this connection's own."""

    def __init__(self, shared):
        self.shared = shared
        self.environment = None
        self.running = False
        self.name = ""

    def answer(self, request):
        kind = request.WhichOneof("payload")
        if kind is None:
            raise Refused(code_pb2.INVALID_ARGUMENT, "no payload")
        return getattr(self, kind)(getattr(request, kind))

    def create_world(self, request):
        settings = {k: tensor_utils.unpack_tensor(v) for k, v in request.settings.items()}
        unknown = set(settings) - {"first"}
        if unknown:
            raise Refused(code_pb2.INVALID_ARGUMENT, f"unknown settings {sorted(unknown)}")
        with self.shared.lock:
            self.shared.count += 1
            name = f"sea {self.shared.count}"
            self.shared.worlds[name] = settings
        return dm_env_rpc_pb2.CreateWorldResponse(world_name=name)

    def join_world(self, request):
        if self.environment is not None:
            raise Refused(code_pb2.FAILED_PRECONDITION, "joined already")
        settings = self.world(request.world_name)
        self.environment = Voyage(**{k: int(v) for k, v in settings.items()})
        self.name = request.world_name
        self.running = False
        # The reward and discount of dm_env's first step have no value: say 0 and 1.
        observations = dict(self.environment.observation_spec())
        observations["reward"] = dm_specs.Array((), float)
        observations["discount"] = self.environment.discount_spec()
        self.actions = spec_manager.SpecManager(protos_of(self.environment.action_spec()))
        self.observations = spec_manager.SpecManager(protos_of(observations))
        return dm_env_rpc_pb2.JoinWorldResponse(specs=self.specs())

    def specs(self):
        return dm_env_rpc_pb2.ActionObservationSpecs(
            actions=self.actions.specs_by_uid, observations=self.observations.specs_by_uid
        )

    def step(self, request):
        environment = self.joined()
        unknown = set(request.requested_observations) - set(self.observations.uids())
        if unknown:
            raise Refused(code_pb2.INVALID_ARGUMENT, f"no observations {sorted(unknown)}")
        if self.running:
            try:
                given = self.actions.unpack(request.actions)
            except (ValueError, KeyError) as error:
                raise Refused(code_pb2.INVALID_ARGUMENT, str(error)) from None
            missing = set(self.actions.names()) - set(given)
            if missing:
                raise Refused(code_pb2.INVALID_ARGUMENT, f"missing actions {sorted(missing)}")
            step = environment.step(given)
        else:
            step = environment.reset()
        self.running = not step.last()
        state = State.RUNNING
        if step.last():
            state = State.INTERRUPTED if step.discount else State.TERMINATED
        values = dm_env_flatten_utils.flatten_dict(step.observation, ".")
        values["reward"] = 0.0 if step.reward is None else step.reward
        values["discount"] = 1.0 if step.discount is None else step.discount
        packed = self.observations.pack(values)
        # One element for all, where they are equal.
        place = self.observations.name_to_uid("place")
        packed[place] = tensor_utils.pack_tensor(values["place"], try_compress=True)
        return dm_env_rpc_pb2.StepResponse(
            state=state,
            observations={uid: packed[uid] for uid in set(request.requested_observations)},
        )

    def reset(self, request):
        self.joined()
        self.running = False
        return dm_env_rpc_pb2.ResetResponse(specs=self.specs())

    def reset_world(self, request):
        self.world(request.world_name)
        if request.world_name == self.name:
            self.running = False
        return dm_env_rpc_pb2.ResetWorldResponse()

    def leave_world(self, request):
        self.environment = None
        return dm_env_rpc_pb2.LeaveWorldResponse()

    def destroy_world(self, request):
        self.world(request.world_name)
        if self.environment is not None and self.name == request.world_name:
            raise Refused(code_pb2.FAILED_PRECONDITION, "leave it first")
        with self.shared.lock:
            del self.shared.worlds[request.world_name]
        return dm_env_rpc_pb2.DestroyWorldResponse()

    def extension(self, message):
        request = properties_pb2.PropertyRequest()
        if not message.Unpack(request):
            raise Refused(code_pb2.UNIMPLEMENTED, f"{message.type_url} is not known")
        response = properties_pb2.PropertyResponse()
        values = self.shared.values
        if request.HasField("list_property"):
            response.list_property.SetInParent()
            prefix = request.list_property.key + "." if request.list_property.key else ""
            for key, value in values.items():
                if not key.startswith(prefix):
                    continue
                rest = key[len(prefix) :]
                listed = response.list_property.values.add()
                if "." in rest:
                    listed.spec.name = prefix + rest.partition(".")[0]
                    listed.is_listable = True
                    continue
                tensor = tensor_utils.pack_tensor(value)
                listed.spec.name = key
                listed.spec.dtype = tensor_utils.np_type_to_data_type(
                    tensor_utils.get_tensor_type(tensor)
                )
                listed.spec.shape[:] = tensor.shape
                listed.is_readable = True
                listed.is_writable = key != "motto"
                listed.description = f"the {key}"
        elif request.HasField("read_property"):
            if request.read_property.key not in values:
                raise Refused(code_pb2.NOT_FOUND, "no such property")
            response.read_property.value.CopyFrom(
                tensor_utils.pack_tensor(values[request.read_property.key])
            )
        else:
            key = request.write_property.key
            if key not in values:
                raise Refused(code_pb2.NOT_FOUND, "no such property")
            if key == "motto":
                raise Refused(code_pb2.PERMISSION_DENIED, "it is carved in stone")
            value = tensor_utils.unpack_tensor(request.write_property.value)
            if not isinstance(value, float):
                raise Refused(code_pb2.INVALID_ARGUMENT, "a double is needed")
            values[key] = value
            response.write_property.SetInParent()
        answer = any_pb2.Any()
        answer.Pack(response)
        return answer

    def joined(self):
        if self.environment is None:
            raise Refused(code_pb2.FAILED_PRECONDITION, "join a world first")
        return self.environment

    def world(self, name):
        with self.shared.lock:
            if name not in self.shared.worlds:
                raise Refused(code_pb2.NOT_FOUND, f"there is no world {name!r}")
            return self.shared.worlds[name]


class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    def __init__(self):
        self._shared = Shared()

    def Process(self, request_iterator, context):
        connection = Connection(self._shared)
        for request in request_iterator:
            response = dm_env_rpc_pb2.EnvironmentResponse()
            try:
                answer = connection.answer(request)
            except Refused as refused:
                response.error.CopyFrom(refused.status)
            else:
                field = getattr(response, request.WhichOneof("payload"))
                field.SetInParent()
                field.CopyFrom(answer)
            yield response

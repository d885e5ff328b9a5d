"""dm_env_rpc's own protobuf messages from our values and back, with the reference's tensor code.

What our codec writes must parse to what `to_pb` gives; what protobuf writes must decode to what
`from_pb` gives.
"""

import math
import warnings

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf import any_pb2
from google.rpc import status_pb2

from rlwire.codecs import dm_env_rpc as ours

_WRAPPERS = (
    *(dm_env_rpc_pb2.EnvironmentRequest, dm_env_rpc_pb2.EnvironmentResponse),
    *(properties_pb2.PropertyRequest, properties_pb2.PropertyResponse),
)


def _members(wrapper):
    """Return our class of each payload, by the payload's name in a wrapper's class."""
    suffix = wrapper.DESCRIPTOR.name.removeprefix("Environment").removeprefix("Property")
    return {
        name: {"extension": ours.AnyMessage, "error": ours.Status}.get(name)
        or getattr(ours, name.title().replace("_", "") + suffix)
        for name in wrapper.DESCRIPTOR.fields_by_name
    }


def any_to_pb(value):
    return any_pb2.Any(type_url=value.type_url, value=value.value)


def tensor_to_pb(value):
    if isinstance(value, ours.AnyMessage):
        return tensor_utils.pack_tensor(any_to_pb(value))
    if isinstance(value, ours.ProtoArray):
        packed = dm_env_rpc_pb2.Tensor(shape=value.shape)
        packed.protos.SetInParent()
        packed.protos.array.extend([any_to_pb(item) for item in value.items])
        return packed
    packed = tensor_utils.pack_tensor(value)
    getattr(packed, _payload(value)).SetInParent()
    return packed


def _payload(value):
    return f"{ours.data_type(np.asarray(value).dtype).name.lower()}s"


def spec_to_pb(spec):
    packed = dm_env_rpc_pb2.TensorSpec(name=spec.name, shape=spec.shape, dtype=int(spec.dtype))
    for which in ("min", "max"):
        bound = getattr(spec, which)
        if bound is not None:
            array = np.asarray(bound)
            name = _payload(array)
            payload = getattr(getattr(packed, which), name)
            payload.SetInParent()
            if name in ("int8s", "uint8s"):
                payload.array = array.tobytes()
            else:
                payload.array.extend(array.ravel().tolist())
    return packed


def to_pb(message, *wrappers):
    """The EnvironmentRequest, EnvironmentResponse or property message around a payload."""
    for kind in wrappers or _WRAPPERS:
        for name, member in _members(kind).items():
            if type(message) is member:
                wrapper = kind()
                payload = getattr(wrapper, name)
                payload.SetInParent()
                _fill(payload, message)
                return wrapper
    raise TypeError(type(message))


def _fill(out, message):
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if name in ("settings", "observations", "actions"):
            for key, tensor in value.items():
                getattr(out, name)[key].CopyFrom(tensor_to_pb(tensor))
        elif name == "specs":
            out.specs.SetInParent()
            for group in ("actions", "observations"):
                for uid, spec in getattr(value, group).items():
                    getattr(out.specs, group)[uid].CopyFrom(spec_to_pb(spec))
        elif name == "details":
            out.details.extend([any_to_pb(detail) for detail in value])
        elif name == "requested_observations":
            out.requested_observations.extend(value)
        elif name == "values":
            for item in value:
                _fill(out.values.add(), item)
        elif name == "spec":
            out.spec.CopyFrom(spec_to_pb(value))
            out.spec.SetInParent()
        elif isinstance(out, any_pb2.Any | status_pb2.Status) or name != "value":
            setattr(out, name, value)
        elif value is not None:
            out.value.CopyFrom(tensor_to_pb(value))


def any_from_pb(message):
    return ours.AnyMessage(message.type_url, message.value)


def tensor_from_pb(tensor):
    shape = tuple(tensor.shape)
    with warnings.catch_warnings():
        # NumPy warns of a shape that the reference sets and ours never has.
        warnings.simplefilter("ignore", DeprecationWarning)
        if tensor.WhichOneof("payload") != "protos":
            return tensor_utils.unpack_tensor(tensor)
        items = tuple(any_from_pb(item) for item in tensor.protos.array)
        if not shape:
            (item,) = items
            return item
        meant = tensor_utils.reshape_array(np.arange(len(items)), shape).shape
        return ours.ProtoArray(items, meant)


def bound_from_pb(value, shape):
    if value.WhichOneof("payload") is None:
        return None
    flat = tensor_utils.unpack_proto(value)
    if flat.size == 1:
        return flat[0]
    if min(shape, default=0) >= 0 and math.prod(shape) == flat.size:
        return flat.reshape(shape)
    return flat


def spec_from_pb(spec):
    shape = tuple(spec.shape)
    return ours.TensorSpec(
        spec.name,
        shape,
        _member(ours.DataType, spec.dtype),
        bound_from_pb(spec.min, shape),
        bound_from_pb(spec.max, shape),
    )


def _member(kind, number):
    try:
        return kind(number)
    except ValueError:
        return number


def from_pb(wrapper):
    """Our payload of a wrapper, or None."""
    name = wrapper.WhichOneof("payload")
    if name is None:
        return None
    return _value(_members(wrapper)[name], getattr(wrapper, name))


def _value(kind, message):
    fields = {}
    for name in kind.__dataclass_fields__:
        value = getattr(message, name)
        if name in ("settings", "observations", "actions"):
            value = {key: tensor_from_pb(value[key]) for key in value}
        elif name == "specs":
            value = ours.ActionObservationSpecs(
                {uid: spec_from_pb(value.actions[uid]) for uid in value.actions},
                {uid: spec_from_pb(value.observations[uid]) for uid in value.observations},
            )
        elif name == "details":
            value = tuple(map(any_from_pb, value))
        elif name == "requested_observations":
            value = list(value)
        elif name == "values":
            value = tuple(_value(ours.PropertySpec, item) for item in value)
        elif name == "spec":
            value = spec_from_pb(value)
        elif name == "state":
            value = _member(ours.EnvironmentStateType, value)
        elif name == "value" and kind is not ours.AnyMessage:
            value = tensor_from_pb(value) if message.HasField("value") else None
        fields[name] = value
    return kind(**fields)


def same(one, other):
    """Whether two of our values are the same in type, dtype, shape and every bit.

    The order of a map's entries counts for nothing, because protobuf has none.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        if one.dtype.kind == "U":  # of any width
            return one.shape == other.shape and bool(np.all(one == other))
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if hasattr(type(one), "__dataclass_fields__"):
        return all(
            same(getattr(one, name), getattr(other, name))
            for name in type(one).__dataclass_fields__
        )
    return bool(one == other)


def bits(message):
    """A protobuf message in a form that is the same for equal ones, NaN or not."""
    return message.SerializeToString(deterministic=True)

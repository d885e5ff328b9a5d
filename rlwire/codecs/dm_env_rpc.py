"""dm_env_rpc: tensors, messages and steps to bytes and back, without protobuf.

Source: ``dm_env_rpc.proto`` (version 1) and its reference; docs/protocols/dm_env_rpc.md says where
we differ. The work is done in compiled modules: `dm_env_rpc_tensors` for arrays,
`dm_env_rpc_encoder` and `dm_env_rpc_decoder` for messages, `dm_env_rpc_steps` for steps by name.
Not here: who may send what when.
"""

from rlwire.codecs import dm_env_rpc_values
from rlwire.codecs.dm_env_rpc_bounds import (
    Bounds,
    bounds,
    check_bounds,
    make_spec,
)
from rlwire.codecs.dm_env_rpc_decoder import (
    decode_property_request,
    decode_property_response,
    decode_request,
    decode_response,
)
from rlwire.codecs.dm_env_rpc_encoder import (
    encode_property_request,
    encode_property_response,
    encode_request,
    encode_request_into,
    encode_request_parts,
    encode_response,
    encode_response_into,
    encode_response_parts,
)
from rlwire.codecs.dm_env_rpc_messages import (
    PROPERTY_REQUEST_URL,
    PROPERTY_RESPONSE_URL,
)
from rlwire.codecs.dm_env_rpc_nesting import (
    flatten,
    is_within,
    unflatten,
)
from rlwire.codecs.dm_env_rpc_specs import (
    SpecManager,
)
from rlwire.codecs.dm_env_rpc_steps import (
    decode_step_request,
    decode_step_response,
    encode_step_request,
    encode_step_response,
)
from rlwire.codecs.dm_env_rpc_tensors import (
    data_type,
    decode_payload,
    decode_tensor,
    encode_payload,
    encode_tensor,
    encode_tensor_into,
    encode_tensor_parts,
    numpy_dtype,
)
from rlwire.codecs.dm_env_rpc_values import *  # noqa: F403

__all__ = [
    "PROPERTY_REQUEST_URL",
    "PROPERTY_RESPONSE_URL",
    "Bounds",
    "SpecManager",
    "bounds",
    "check_bounds",
    "data_type",
    "decode_payload",
    "decode_property_request",
    "decode_property_response",
    "decode_request",
    "decode_response",
    "decode_step_request",
    "decode_step_response",
    "decode_tensor",
    "encode_payload",
    "encode_property_request",
    "encode_property_response",
    "encode_request",
    "encode_request_into",
    "encode_request_parts",
    "encode_response",
    "encode_response_into",
    "encode_response_parts",
    "encode_step_request",
    "encode_step_response",
    "encode_tensor",
    "encode_tensor_into",
    "encode_tensor_parts",
    "flatten",
    "is_within",
    "make_spec",
    "numpy_dtype",
    "unflatten",
]
__all__ += dm_env_rpc_values.__all__

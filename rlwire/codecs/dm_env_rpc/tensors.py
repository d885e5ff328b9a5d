"""dm_env_rpc's Tensor messages: arrays to bytes and back.

What is compiled is in `tensor_encoder`, `tensor_decoder` and
`dtypes`; this is their face, and dm_env_rpc_tensors.pxd that for compiled code.
"""

from __future__ import annotations

from rlwire.codecs.dm_env_rpc.dtypes import data_type, numpy_dtype
from rlwire.codecs.dm_env_rpc.tensor_decoder import decode_payload, decode_tensor
from rlwire.codecs.dm_env_rpc.tensor_encoder import (
    encode_payload,
    encode_tensor,
    encode_tensor_into,
    encode_tensor_parts,
)

__all__ = [
    "data_type",
    "decode_payload",
    "decode_tensor",
    "encode_payload",
    "encode_tensor",
    "encode_tensor_into",
    "encode_tensor_parts",
    "numpy_dtype",
]

"""dm_env_rpc: tensors, messages and steps to bytes and back, without protobuf.

Source: ``dm_env_rpc.proto`` (version 1) and its reference; docs/protocols/dm_env_rpc.md says where
we differ. The work is done in compiled modules: `dm_env_rpc_tensors` for arrays,
`dm_env_rpc_encoder` and `dm_env_rpc_decoder` for messages, `dm_env_rpc_steps` for steps by name.
Not here: who may send what when.
"""
# ruff: noqa: F403
# What each module offers, its __all__ says.

from rlwire.codecs import (
    dm_env_rpc_bounds,
    dm_env_rpc_decoder,
    dm_env_rpc_encoder,
    dm_env_rpc_messages,
    dm_env_rpc_nesting,
    dm_env_rpc_specs,
    dm_env_rpc_steps,
    dm_env_rpc_tensors,
    dm_env_rpc_values,
)
from rlwire.codecs.dm_env_rpc_bounds import *
from rlwire.codecs.dm_env_rpc_decoder import *
from rlwire.codecs.dm_env_rpc_encoder import *
from rlwire.codecs.dm_env_rpc_messages import *
from rlwire.codecs.dm_env_rpc_nesting import *
from rlwire.codecs.dm_env_rpc_specs import *
from rlwire.codecs.dm_env_rpc_steps import *
from rlwire.codecs.dm_env_rpc_tensors import *
from rlwire.codecs.dm_env_rpc_values import *

__all__: list[str] = []
__all__ += dm_env_rpc_bounds.__all__
__all__ += dm_env_rpc_decoder.__all__
__all__ += dm_env_rpc_encoder.__all__
__all__ += dm_env_rpc_messages.__all__
__all__ += dm_env_rpc_nesting.__all__
__all__ += dm_env_rpc_specs.__all__
__all__ += dm_env_rpc_steps.__all__
__all__ += dm_env_rpc_tensors.__all__
__all__ += dm_env_rpc_values.__all__

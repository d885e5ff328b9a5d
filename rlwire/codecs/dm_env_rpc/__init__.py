"""dm_env_rpc: tensors, messages and steps to bytes and back, without protobuf.

Source: ``dm_env_rpc.proto`` (version 1) and its reference; docs/protocols/dm_env_rpc.md says where
we differ. The work is done in compiled modules: `tensors` for arrays, `encoder` and `decoder` for
messages, `steps` for steps by name. Not here: who may send what when.
"""
# What each module offers, its __all__ says.

from rlwire.codecs.dm_env_rpc import (
    decoder,
    encoder,
    messages,
    nesting,
    ranges,
    specs,
    steps,
    tensors,
    values,
)
from rlwire.codecs.dm_env_rpc.decoder import *
from rlwire.codecs.dm_env_rpc.encoder import *
from rlwire.codecs.dm_env_rpc.messages import *
from rlwire.codecs.dm_env_rpc.nesting import *
from rlwire.codecs.dm_env_rpc.ranges import *
from rlwire.codecs.dm_env_rpc.specs import *
from rlwire.codecs.dm_env_rpc.steps import *
from rlwire.codecs.dm_env_rpc.tensors import *
from rlwire.codecs.dm_env_rpc.values import *

__all__: list[str] = []
__all__ += decoder.__all__
__all__ += encoder.__all__
__all__ += messages.__all__
__all__ += nesting.__all__
__all__ += ranges.__all__
__all__ += specs.__all__
__all__ += steps.__all__
__all__ += tensors.__all__
__all__ += values.__all__

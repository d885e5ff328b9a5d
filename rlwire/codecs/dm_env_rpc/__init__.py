"""dm_env_rpc: tensors, messages and steps to bytes and back, without protobuf.

Source: ``dm_env_rpc.proto`` (version 1) and its reference implementation.
docs/protocols/dm_env_rpc.md lists the differences.
"""

from rlwire.codecs.dm_env_rpc import messages, nesting, ranges, steps, tensors, values
from rlwire.codecs.dm_env_rpc.messages import *
from rlwire.codecs.dm_env_rpc.nesting import *
from rlwire.codecs.dm_env_rpc.ranges import *
from rlwire.codecs.dm_env_rpc.steps import *
from rlwire.codecs.dm_env_rpc.tensors import *
from rlwire.codecs.dm_env_rpc.values import *

__all__: list[str] = []
__all__ += messages.__all__
__all__ += nesting.__all__
__all__ += ranges.__all__
__all__ += steps.__all__
__all__ += tensors.__all__
__all__ += values.__all__

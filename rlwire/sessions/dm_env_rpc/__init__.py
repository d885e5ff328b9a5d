"""dm_env_rpc's sessions; `states` has the table of transitions."""

from rlwire.codecs.grpc import Code as Code
from rlwire.sessions.dm_env_rpc.session import DmEnvRpcClientSession as DmEnvRpcClientSession
from rlwire.sessions.dm_env_rpc.session import DmEnvRpcServerSession as DmEnvRpcServerSession
from rlwire.sessions.dm_env_rpc.session import EncodedStep as EncodedStep
from rlwire.sessions.dm_env_rpc.session import without_spec as without_spec
from rlwire.sessions.dm_env_rpc.states import REQUESTS as REQUESTS
from rlwire.sessions.dm_env_rpc.states import TOLERATED as TOLERATED
from rlwire.sessions.dm_env_rpc.states import TRANSITIONS as TRANSITIONS
from rlwire.sessions.dm_env_rpc.states import DmEnvRpcState as DmEnvRpcState

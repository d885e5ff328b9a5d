"""gRPC calls over HTTP/2: streams of whole messages in both directions.

Retries and compression are not supported; a compressed message ends its call as UNIMPLEMENTED.
"""

from rlwire.sessions.grpc.calls import OK as OK
from rlwire.sessions.grpc.calls import CallEnded as CallEnded
from rlwire.sessions.grpc.calls import CallStatus as CallStatus
from rlwire.sessions.grpc.client import ClientCall as ClientCall
from rlwire.sessions.grpc.client import GrpcClientSession as GrpcClientSession
from rlwire.sessions.grpc.server import GrpcServerSession as GrpcServerSession

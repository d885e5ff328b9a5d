"""gRPC calls over HTTP/2: streams of whole messages in both directions.

Retries and compression are not supported; a compressed message ends its call as UNIMPLEMENTED.
"""

from rlwire.codecs.grpc import Metadata
from rlwire.sessions.grpc.calls import OK, CallEnded, CallStatus, check_method
from rlwire.sessions.grpc.client import ClientCall, GrpcClientSession
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.sessions.raw import GrpcRawMessages

__all__ = [
    "OK",
    "CallEnded",
    "CallStatus",
    "ClientCall",
    "GrpcClientSession",
    "GrpcRawMessages",
    "GrpcServerSession",
    "Metadata",
    "check_method",
]

"""gRPC's calls over HTTP/2: streams of whole messages both ways.

Metadata stands before the first message and behind the last one, a status at the end, maybe a
deadline at the beginning. `client` is a client's side, `server` a server's, `calls` what they
share. Not spoken: compression (a message that is compressed all the same is refused in words),
retries.
"""

from rlwire.codecs.grpc import Metadata
from rlwire.sessions.grpc.calls import OK, CallEnded, CallStatus, GrpcRawMessages, check_method
from rlwire.sessions.grpc.client import ClientCall, GrpcClientSession
from rlwire.sessions.grpc.server import GrpcServerSession

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

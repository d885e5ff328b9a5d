from typing_extensions import Buffer

from rlwire.codecs.dm_env_rpc.values import (
    AnyMessage,
    PropertyRequest,
    PropertyResponse,
    Request,
    Response,
)
from rlwire.limits import Limits

__all__ = [
    "encode_property_request",
    "encode_property_response",
    "encode_request",
    "encode_request_into",
    "encode_request_parts",
    "encode_response",
    "encode_response_into",
    "encode_response_parts",
]

def encode_request(message: Request, *, limits: Limits | None = None) -> bytes: ...
def encode_request_into(
    message: Request, buffer: Buffer, offset: int = 0, *, limits: Limits | None = None
) -> int: ...
def encode_request_parts(
    message: Request, *, limits: Limits | None = None
) -> list[bytes | memoryview]: ...
def encode_response(message: Response, *, limits: Limits | None = None) -> bytes: ...
def encode_response_into(
    message: Response, buffer: Buffer, offset: int = 0, *, limits: Limits | None = None
) -> int: ...
def encode_response_parts(
    message: Response, *, limits: Limits | None = None
) -> list[bytes | memoryview]: ...
def encode_property_request(
    message: PropertyRequest, *, limits: Limits | None = None
) -> AnyMessage: ...
def encode_property_response(
    message: PropertyResponse, *, limits: Limits | None = None
) -> AnyMessage: ...

from collections.abc import Callable
from typing import Literal

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
    "decode_property_request",
    "decode_property_response",
    "decode_request",
    "decode_response",
    "request_kind",
]

def request_kind(buffer: Buffer, *, limits: Limits | None = None) -> str | None: ...
def decode_request(
    buffer: Buffer,
    *,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
    limits: Limits | None = None,
    accepts: Callable[[str], bool] | None = None,
) -> Request | None: ...
def decode_response(
    buffer: Buffer,
    *,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
    limits: Limits | None = None,
) -> Response | None: ...
def decode_property_request(
    extension: AnyMessage,
    *,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
    limits: Limits | None = None,
) -> PropertyRequest | None: ...
def decode_property_response(
    extension: AnyMessage,
    *,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
    limits: Limits | None = None,
) -> PropertyResponse | None: ...

from typing import Final

__all__ = ["PROPERTY_REQUEST_URL", "PROPERTY_RESPONSE_URL"]

PROPERTY_REQUEST_URL: Final[str]
PROPERTY_RESPONSE_URL: Final[str]

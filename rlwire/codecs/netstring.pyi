from typing_extensions import Buffer

__all__ = ["decode", "encode"]

def encode(body: Buffer) -> bytes: ...
def decode(
    buffer: Buffer, offset: int = 0, *, limit: int | None = None
) -> tuple[bytes | None, int]: ...

"""msgpack-numpy's functions and classes over rlwire's codec: change one import, or call `patch`.

::

    import rlwire.adapters.msgpack_numpy as msgpack_numpy

    packed = msgpack_numpy.packb({"image": frame})
    frame = msgpack_numpy.unpackb(packed)["image"]

The bytes are the same, and so are the signatures. All arrays that `unpackb` and `unpack` return are
read-only, as with the original, so that no copy need be made of them: large ones may be views of
the message, which then stays in memory as long as they do. All of an `Unpacker` are writable.
Neither msgpack-numpy nor msgpack need be installed; where the program has imported msgpack,
extensions and timestamps are its classes.

What differs: arrays of objects are refused in both directions, because they travel as a pickle; a
map that claims to be an array and is none raises DecodeError, a ValueError; arrays of
openpi-client's dialect are read too.

A program that imports msgpack-numpy in many places leaves them as they are and calls
``rlwire.install("msgpack_numpy")``.
"""

from __future__ import annotations

from rlwire.adapters.msgpack_numpy import functions
from rlwire.adapters.msgpack_numpy.functions import *
from rlwire.adapters.msgpack_numpy.packing import decode, encode

__all__ = ["decode", "encode"]
__all__ += functions.__all__

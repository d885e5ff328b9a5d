"""The same at C level, as http2.py is at Python's."""

from rlwire.codecs.http2.receiving cimport Http2Endpoint
from rlwire.codecs.http2.sending cimport Sender, Stream

"""The same at C level, as http2.py is at Python's."""

from rlwire.codecs.http2_receiving cimport Endpoint
from rlwire.codecs.http2_sending cimport Sender, Stream

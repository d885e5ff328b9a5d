"""HTTP/2: a core of streams and windows; over it a session with settings, pings and limits."""

from rlwire.sessions.http2.events import Fields as Fields
from rlwire.sessions.http2.session import Http2Session as Http2Session
from rlwire.sessions.http2.session import Http2Stream as Http2Stream

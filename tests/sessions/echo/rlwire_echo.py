"""A protocol of another package, as CONTRIBUTING describes it: a server sends each line back,
changed by a function. An entry point of the group ``rlwire.protocols`` names its record."""

from dataclasses import dataclass

from rlwire._options import StreamClientOptions, StreamServerOptions
from rlwire.errors import LimitExceeded
from rlwire.limits import DEFAULT
from rlwire.registry import Protocol
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions.layer import Layer
from rlwire.transports import tcp

PROTOCOL = Protocol("echo", 7007, "trainer", "rlwire_echo", "lines that come back")


class EchoLayer(Layer):
    """Both sides: an event is a line, without its end."""

    def __init__(self, limits=None):
        self._longest = (limits or DEFAULT).received

    def frame_size(self, buffer, start, end):
        size = bytes(buffer[start:end]).find(b"\n") + 1
        if (size or end - start) > self._longest:
            raise LimitExceeded("received", self._longest, size or end - start)
        return size

    def receive(self, message):
        return [bytes(message[:-1])]

    def send(self, event):
        return [event + b"\n"]


@dataclass(frozen=True, kw_only=True)
class EchoServerOptions(StreamServerOptions):
    """Options of a server."""


@dataclass(frozen=True, kw_only=True)
class EchoClientOptions(StreamClientOptions):
    """Options of a client."""


OPTIONS = {"server": EchoServerOptions, "client": EchoClientOptions}


class EchoService(Service):
    """A service is also the handler of its connections, since it keeps nothing of them."""

    def __init__(self, function, limits):
        self.answer, self._limits = function, limits

    def session(self):
        return EchoLayer(self._limits)

    def handler(self, connection):
        return self

    def failure(self, event, error):
        raise error

    def close(self):
        pass


class Server(StreamServer):
    scheme = "echo"


def server(target, url, **options):
    settings = EchoServerOptions(address=url, **options)
    return Server(EchoService(target, settings.limits), settings)


def client(url, **options):
    settings = EchoClientOptions(address=url, **options)
    return tcp.connect(url.address, EchoLayer(settings.limits), timeout=settings.timeout)

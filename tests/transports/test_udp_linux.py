from __future__ import annotations

import errno
import socket
import sys
from typing import Any

import pytest

from rlwire.transports import udp_linux
from rlwire.transports.udp_linux import AskedAddress

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="these calls are Linux's"
)


class Asked:
    """Stands in for a socket whose datagrams all come with an address that was asked."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.incoming: list[tuple[bytes, Any]] = []
        self.sent: list[Any] = []
        self.failure: OSError | None = None

    def setsockopt(self, *arguments: Any) -> None:
        pass

    def recvmsg(self, size: int, space: int) -> Any:
        address, peer = self.incoming.pop(0)
        info = (7).to_bytes(4, sys.byteorder) + address + b"\xff" * 4
        return b"x", [(0, 8, info)], 0, peer

    def sendto(self, data: bytes, peer: Any) -> int:
        self.sent.append((peer, None))
        return 1

    def sendmsg(self, parts: Any, ancillary: Any, flags: int, peer: Any) -> int:
        if self.failure is not None:
            raise self.failure
        ((level, kind, info),) = ancillary
        assert (level, kind, info[:4], info[8:]) == (0, 8, bytes(4), bytes(4))
        self.sent.append((peer, info[4:8]))
        return 1


@pytest.fixture
def fake() -> Asked:
    return Asked()


def test_what_is_remembered_is_bounded(fake: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_linux, "_MOST_PEERS", 50)
    monkeypatch.setattr(udp_linux, "_MOST_ADDRESSES", 5)
    asked = AskedAddress(fake)
    for number in range(1000):
        fake.incoming.append((number.to_bytes(4, "big"), number))
        asked.recvfrom(10)
    assert len(asked._sources) == 50
    assert len(asked._prepared) <= 5
    for number in (999, 950, 949):
        asked.sendto(b"x", number)
    assert fake.sent == [(999, b"\0\0\x03\xe7"), (950, b"\0\0\x03\xb6"), (949, None)]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_refused(family: socket.AddressFamily) -> None:
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.socket(family, socket.SOCK_DGRAM) as gone:
        gone.bind((host, 0))
        nobody = gone.getsockname()
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        sock.setblocking(False)
        udp_linux.report_refusals(sock)
        assert udp_linux.take_refusals(sock) == []
        sock.sendto(b"x", nobody)
        ((peer, error),) = udp_linux.take_refusals(sock)
        assert peer == nobody
        assert error.errno == errno.ECONNREFUSED
        assert udp_linux.dropped_by_kernel(sock) == 0

import errno
import os
import socket

import pytest

from rlwire.transports import sockets, tcp
from rlwire.transports.address import parse
from rlwire.transports.sockets import Backoff, Timeouts
from tests.raising import raised


@pytest.mark.each("value", [0, -1, 0.0])
@pytest.mark.each("name", ["connect", "read", "write", "idle", "spin"])
def test_timeouts_that_are_not_positive_are_rejected(name, value):
    assert f"timeout {name}" in str(raised(ValueError, Timeouts, **{name: value}))


def test_invalid_backoffs_are_rejected():
    for name, value in (("attempts", 0), ("first", 0), ("longest", -1), ("deadline", 0)):
        assert name in str(raised(ValueError, Backoff, **{name: value}))


def test_back_off_grows_with_jitter_up_to_its_maximum():
    runs = [list(Backoff(attempts=8, first=0.1, longest=1.0).delays()) for _ in range(50)]
    for delays in runs:
        assert len(delays) == 7
        for delay, full in zip(delays, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=True):
            assert full / 2 <= delay <= full
    assert len({delays[0] for delays in runs}) > 1


def test_listen_on_port_0_chooses_a_free_port():
    with sockets.listen("127.0.0.1:0") as sock:
        address = sockets.local_address(sock)
        assert address.host == "127.0.0.1"
        assert address.port > 0
        with pytest.raises(OSError, match=f"cannot listen on {address}") as caught:
            sockets.listen(address)
        assert caught.value.errno == errno.EADDRINUSE


def test_unknown_host_name_is_named_in_the_error():
    caught = raised(socket.gaierror, sockets.listen, "no-such-host.invalid:0")
    assert "no-such-host.invalid" in str(caught)


def test_unix_socket_replaces_an_abandoned_one(tmp_path):
    address = parse(f"unix:{tmp_path / 's'}")
    sockets.listen(address).close()
    assert os.path.exists(address.path)
    with sockets.listen(address) as sock:
        assert sockets.local_address(sock) == address
        raised(OSError, sockets.listen, address)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address.path)
            accepted, sockaddr = sock.accept()
            with accepted:
                assert sockets.peer_name(accepted, sockaddr).startswith(str(address))
        sockets.unlink(sock)
        assert not os.path.exists(address.path)


def test_listen_does_not_replace_a_regular_file(tmp_path):
    path = tmp_path / "s"
    path.write_text("precious")
    raised(OSError, sockets.listen, f"unix:{path}")
    assert path.read_text() == "precious"


def test_socket_connected_to_itself_is_rejected():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())  # TCP's simultaneous open, with itself
        raised(ConnectionRefusedError, tcp.check_not_self, sock)

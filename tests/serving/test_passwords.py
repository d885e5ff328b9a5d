"""Passwords tried at speed, at each server that has one: many at once, and the owner among them."""

import base64
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rlwire.codecs.rfb.handshake import respond
from rlwire.openpi.server import Server
from rlwire.sessions import passwords
from rlwire.universe.page import PageServer
from rlwire.universe.rewarder import RewarderServer
from rlwire.universe.rfb.server import Display, RfbServer

FREE, EACH = 10, 0.1
"""Wrong passwords of an address that wait for nothing, and seconds for each further one."""


class Guarded(NamedTuple):
    server: Any
    said: Callable[[socket.socket, str], bytes]
    """Returns what tries a password, once all before it has been said and heard."""
    right: Callable[[bytes], bool]
    """Tells from an answer whether the password was right."""


def http(path, scheme, upgrade):
    def said(sock, word):
        if scheme == "Basic":
            word = base64.b64encode(f"{word}:".encode()).decode()
        host = "{}:{}".format(*sock.getpeername())
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: {scheme} {word}"]
        if upgrade:
            lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
            lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        return "\r\n".join([*lines, "", ""]).encode()

    return said


def vnc(sock, word):
    sock.sendall(b"RFB 003.008\n\2")
    greeting = b""
    while len(greeting) < 12 + 2 + 16:
        greeting += sock.recv(100)
    return respond(greeting[14:30], word)


@pytest.fixture(params=["pixels", "page", "rewarder", "openpi", "openpi-threads"])
def guarded(request, monkeypatch):
    monkeypatch.setattr(passwords, "THROTTLE", passwords.PasswordThrottle())  # not other tests'
    where = "127.0.0.1:0"
    if request.param == "pixels":
        server = RfbServer(Display(8, 8), where, auth="secret")
        made = Guarded(server, vnc, lambda answer: answer == bytes(4))
    elif request.param == "page":
        server = PageServer(Display(8, 8), where, auth="secret")
        made = Guarded(server, http("/", "Basic", False), lambda answer: b" 200 " in answer[:20])
    elif request.param == "rewarder":
        server = RewarderServer("a.Game-v0", where, auth="secret")
        made = Guarded(server, http("/", "Basic", True), lambda answer: b"env.describe" in answer)
    else:
        workers = "threads" if "threads" in request.param else "asyncio"
        server = Server(lambda observation: {}, where, auth="secret", workers=workers)
        made = Guarded(server, http("/", "Api-Key", True), lambda answer: b" 101 " in answer[:20])
    with made.server:
        yield made


def opened(guarded):
    address = guarded.server.address
    sock = socket.create_connection((address.host, address.port))
    sock.settimeout(30.0)
    return sock


def let_in(guarded, sock):
    sock.sendall(guarded.said(sock, "secret"))
    answer = b""
    while not guarded.right(answer):
        part = sock.recv(65536)
        if not part:
            return False
        answer += part
    return True


def is_open(sock):
    sock.setblocking(False)
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return True
    return False


def test_concurrent_password_guesses_are_queued(guarded):
    count = 25
    with opened(guarded) as before:
        assert let_in(guarded, before)
        socks = [opened(guarded) for _ in range(count)]
        try:
            waiting = {sock: guarded.said(sock, "guess") for sock in socks}
            begun = time.monotonic()
            for sock, said in waiting.items():
                sock.sendall(said)
            # Many more than are free, and so at least some of them late.
            with opened(guarded) as owner:
                assert let_in(guarded, owner)
            times = time.monotonic() - begun
            answered = 0
            while waiting:
                here, _, _ = select.select(list(waiting), [], [], 30)
                assert here
                elapsed = time.monotonic() - begun
                for sock in here:
                    assert not guarded.right(sock.recv(65536))
                    del waiting[sock]
                    answered += 1
                assert answered <= FREE + elapsed / EACH + 1
            assert times < 30
            assert time.monotonic() - begun > (count - FREE - 2) * EACH
        finally:
            for sock in socks:
                sock.close()
        # Of the page, an answer ends its connection.
        assert is_open(before) or isinstance(guarded.server, PageServer)


def test_correct_password_is_not_throttled(guarded):
    for _ in range(5 * FREE):
        with opened(guarded) as sock:
            assert let_in(guarded, sock)
    assert passwords.THROTTLE.reserve("127.0.0.1") <= time.monotonic()

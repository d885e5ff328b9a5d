import hashlib
import hmac
import os
import random
import subprocess
import sys

import pytest

from rlwire.perlert.cipher import DatagramCipher, load_key, new_key
from tests.raising import raised

aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")

KEY = bytes(range(32))
NOW = 1_700_000_000.0
UNIT = 2**20


class Clock:
    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


def pair(clock=lambda: NOW, **sizes):
    kind = type("Sized", (DatagramCipher,), sizes)
    return kind(KEY, "client", clock=clock), kind(KEY, "server", clock=clock)


def by_hand(key, name, role, count, message):
    """A datagram from the module's text alone; HKDF (RFC 5869) of one block is two HMACs."""
    secret = hmac.new(name, key, hashlib.sha256).digest()
    info = f"rlwire datagram v1 {role}".encode()
    secret = hmac.new(secret, info + b"\x01", hashlib.sha256).digest()
    head = b"\x01" + name + count.to_bytes(8, "little")
    nonce = bytes(4) + count.to_bytes(8, "little")
    return head + bytes(aead.ChaCha20Poly1305(secret).encrypt(nonce, message, head))


VECTOR = (
    "01"
    "000102030405060708090a0b0c0d0e0f"
    "000000103f550600"  # version, sender id, counter
    "2da27d682660b32cef8a587e"
    "4d645f780f52911faab9a7a106a1a1f0"  # message, tag
)


def test_cipher_matches_the_documented_test_vector():
    name, count = bytes(range(16)), int(NOW * UNIT)
    assert by_hand(KEY, name, "client", count, b"city:7;lobby").hex() == VECTOR
    client, server = pair()
    assert server.open(bytes.fromhex(VECTOR)) == b"city:7;lobby"
    for cipher in (client, server):
        sealed = cipher.seal(b"city:7;action=walk")
        assert int.from_bytes(sealed[17:25], "little") == count
        assert sealed == by_hand(KEY, sealed[1:17], cipher.role, count, b"city:7;action=walk")
    assert DatagramCipher.overhead == 41


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytearray(32), "0" * 32, None])
def test_cipher_rejects_keys_that_are_not_32_bytes(key):
    assert "key must be 32 bytes" in str(raised(ValueError, DatagramCipher, key, "client"))


def test_datagram_sealed_with_another_key_is_dropped():
    client, _ = pair()
    stranger = DatagramCipher(new_key(), "server", clock=lambda: NOW)
    assert stranger.open(client.seal(b"x")) is None
    assert stranger.dropped == {"key": 1}


def test_reflected_datagram_is_dropped():
    client, server = pair()
    for cipher in (client, server):
        assert cipher.open(cipher.seal(b"x")) is None
        assert cipher.dropped == {"key": 1}
    _, second = pair()
    assert second.open(server.seal(b"x")) is None  # one server's datagram sent to another


@pytest.fixture(params=[False, True], ids=["first", "later"])
def known(request):
    return request.param


@pytest.fixture
def sealed_for(known):
    """A datagram, and its receiver, which may know the sender."""
    client, server = pair()
    if known:
        server.open(client.seal(b"first"))
    return client.seal(b"city:7;action=walk"), server


def test_datagram_cut_off_anywhere_is_dropped(sealed_for):
    sealed, server = sealed_for
    for size in range(len(sealed)):
        assert server.open(sealed[:size]) is None
    assert server.dropped["short"] == DatagramCipher.overhead
    assert server.dropped["key"] == len(sealed) - DatagramCipher.overhead
    assert server.open(sealed + b"x") is None
    assert server.open(sealed) == b"city:7;action=walk"


def test_datagram_with_a_changed_bit_is_dropped(sealed_for, known):
    sealed, server = sealed_for
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        assert server.open(bytes(changed)) is None, bit
    # A changed counter may look too old; nothing else can be told before it is deciphered.
    assert set(server.dropped) <= {"version", "key", "stale", "replay"}
    assert server.dropped["version"] == 8
    assert server.dropped["key"] >= (len(sealed) - 25) * 8
    assert len(server._known) == known  # nothing is remembered of forgeries
    assert server.open(sealed) == b"city:7;action=walk"


def test_replay_window_matches_a_reference_model():
    window = 8
    clock = Clock()
    client, server = pair(clock=clock, WINDOW=window)
    draw = random.Random(5)
    sealed = []
    taken = []
    for _ in range(5000):
        if not sealed or draw.random() < 0.4:
            clock.now += draw.choice([0.0, 1e-4, 1 / 30])
            sealed.append(client.seal(b"%d" % len(sealed)))
        number = draw.randrange(max(0, len(sealed) - 2 * window), len(sealed))
        newest = sorted(taken)[-window:]
        allowed = number not in taken and (len(newest) < window or number > newest[0])
        assert (server.open(sealed[number]) is not None) == allowed, (number, newest)
        if allowed:
            taken.append(number)
    assert server.dropped["replay"] > 1000


@pytest.mark.parametrize("off", [-1e9, -60.1, -59.9, -1, 0, 1, 59.9, 60.1, 1e9])
def test_datagram_outside_the_clock_skew_is_dropped(off):
    client = DatagramCipher(KEY, "client", clock=lambda: NOW + off)
    _, server = pair()
    fresh = abs(off) < 60
    assert server.open(client.seal(b"x")) == (b"x" if fresh else None)
    assert client.open(server.seal(b"y")) == (b"y" if fresh else None)
    assert server.dropped == client.dropped == ({} if fresh else {"stale": 1})


def test_restarted_receiver_accepts_the_sender():
    clock = Clock()
    client, server = pair(clock=clock)
    old = client.seal(b"old")
    assert server.open(old) == b"old"
    clock.now += 30
    _, second = pair(clock=clock)
    assert second.open(client.seal(b"goes on")) == b"goes on"
    # Within the skew one that was recorded before may come once more, as the text says.
    recorded = client.seal(b"recorded")
    _, third = pair(clock=clock)
    assert third.open(recorded) == b"recorded"
    assert third.open(recorded) is None
    clock.now += 31
    _, fourth = pair(clock=clock)
    assert fourth.open(old) is None
    assert fourth.dropped == {"stale": 1}
    assert fourth.open(client.seal(b"goes on")) == b"goes on"


def test_counter_increases_after_the_clock_is_set_back():
    clock = Clock()
    client = DatagramCipher(KEY, "client", clock=clock)
    _, server = pair()
    counts = []
    for step in (0.0, 0.001, -3600.0, 0.001, 0.0, 3600.0):
        clock.now += step
        sealed = client.seal(b"x")
        counts.append(int.from_bytes(sealed[17:25], "little"))
        assert server.open(sealed) == b"x"
    assert counts == sorted(set(counts))
    assert counts[2:5] == [counts[1] + 1, counts[1] + 2, counts[1] + 3]


def test_full_receiver_replaces_the_stalest_sender():
    clock = Clock()
    _, server = pair(clock=clock, SENDERS=3)
    clients = [DatagramCipher(KEY, "client", clock=clock) for _ in range(5)]
    recorded = [client.seal(b"recorded") for client in clients[:3]]
    for sealed in recorded:
        assert server.open(sealed) == b"recorded"
        clock.now += 1
    assert server.open(clients[3].seal(b"x")) is None
    assert server.dropped == {"full": 1}
    clock.now += 50
    assert server.open(clients[0].seal(b"still here")) == b"still here"
    clock.now += 10
    assert server.open(clients[3].seal(b"x")) == b"x"
    assert server.open(clients[4].seal(b"x")) == b"x"
    assert len(server._known) == 3
    # 1 and 2 are forgotten, and what they sent before is of no use.
    for sealed in recorded:
        assert server.open(sealed) is None
    assert server.dropped == {"full": 1, "replay": 1, "stale": 2}
    clock.now += 61
    assert server.open(clients[1].seal(b"back again")) == b"back again"
    # It is known anew, with nothing remembered of before.
    assert server.open(recorded[1]) is None


def test_unauthenticated_senders_use_no_slot():
    client, server = pair(SENDERS=1)
    for _ in range(100):
        fake = bytearray(client.seal(b"x"))
        fake[1:17] = os.urandom(16)
        assert server.open(bytes(fake)) is None
    assert server.open(client.seal(b"x")) == b"x"
    assert server.dropped == {"key": 100}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_process_seals_with_a_new_sender_id(tmp_path):
    # In a process without threads: forking one with threads is warned of.
    program = f"""
import os
from rlwire.perlert.cipher import DatagramCipher
cipher = DatagramCipher({KEY!r}, "client", clock=lambda: 5.0)
with cipher._lock:
    child = os.fork()
    if child == 0:
        open("child", "wb").write(cipher.seal(b"x"))
        os._exit(0)
    os.waitpid(child, 0)
open("parent", "wb").write(cipher.seal(b"x"))
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=30)
    child, parent = ((tmp_path / name).read_bytes() for name in ("child", "parent"))
    assert child[17:25] == parent[17:25]  # the same counter, and so it must be another key
    assert child[1:17] != parent[1:17]
    server = DatagramCipher(KEY, "server", clock=lambda: 5.0)
    assert server.open(child) == server.open(parent) == b"x"


@pytest.mark.parametrize("text", [KEY.hex(), f"{KEY.hex().upper()}\r\n"])
def test_key_file_is_read_as_hexadecimal(tmp_path, text):
    (tmp_path / "key").write_text(text)
    assert load_key(tmp_path / "key") == load_key(str(tmp_path / "key")) == KEY


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_key_file_readable_by_others_warns(tmp_path, caplog):
    (tmp_path / "key").write_text(KEY.hex())
    (tmp_path / "key").chmod(0o600)
    assert load_key(tmp_path / "key") == KEY
    assert not caplog.records
    (tmp_path / "key").chmod(0o640)
    assert load_key(tmp_path / "key") == KEY
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize(
    "data", [b"", KEY, bytes(31), b"0" * 63, b"0" * 66, b"g" * 64, b"\xff" * 64]
)
def test_key_file_with_invalid_content_is_rejected(tmp_path, data):
    (tmp_path / "key").write_bytes(data)
    (tmp_path / "key").chmod(0o600)
    assert "a key of 32 bytes" in str(raised(ValueError, load_key, tmp_path / "key"))

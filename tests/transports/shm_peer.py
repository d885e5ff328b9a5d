"""The other end of a connection over shared memory, restated from docs/protocols/shm.md. It may do
all that a peer can do wrong, and polls instead of sleeping on futexes."""

import array
import contextlib
import fcntl
import mmap
import os
import socket
import struct
import sys

from tests.waiting import eventually

MAGIC, VERSION, DATA, GONE = 0x4D53574C, 1, 4096, 1 << 31
SEALS = 0x0001 | 0x0002 | 0x0004  # SEAL, SHRINK, GROW
WRITER, READER = 0, 128
WORDS = struct.Struct("=5I12x")


def memory(size, *, seals=SEALS, missing=0):
    file = os.memfd_create("a ring of the tests", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, DATA + size - missing)
    if seals:
        fcntl.fcntl(file, 1033, seals)  # F_ADD_SEALS
    return file


class Peer:
    def __init__(self, sock, inward, outward, sizes):
        self.sock = sock
        self.inward = mmap.mmap(inward, DATA + sizes[0])
        self.outward = mmap.mmap(outward, DATA + sizes[1])
        self.sizes = sizes
        # struct would write zeros first, and the other end sees that.
        self.words = {ring: memoryview(ring).cast("I") for ring in (self.inward, self.outward)}
        self.got = self.gave = 0
        os.close(inward)
        os.close(outward)

    @classmethod
    def connect(cls, path, ring=4096):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(path)
        try:
            sock.sendall(WORDS.pack(MAGIC, VERSION, ring, ring, 0))
            data, files, _, _ = socket.recv_fds(sock, WORDS.size, 2)
            if not data:
                raise ConnectionResetError("closed instead of an answer")
            magic, version, to_server, to_client, error = WORDS.unpack(data)
            assert (magic, version) == (MAGIC, VERSION)
            if error:
                raise OSError(error, os.strerror(error))
        except BaseException:
            sock.close()
            raise
        return cls(sock, files[1], files[0], [to_client, to_server])

    @classmethod
    def accept(cls, listener):
        sock, _ = listener.accept()
        sock.settimeout(20)
        *_, to_server, to_client, _ = WORDS.unpack(sock.recv(WORDS.size, socket.MSG_WAITALL))
        files = [memory(to_server), memory(to_client)]
        reply(sock, to_server, to_client, files)
        return cls(sock, files[0], files[1], [to_server, to_client])

    def word(self, ring, at):
        return self.words[ring][at // 4]

    def put(self, ring, at, value):
        self.words[ring][at // 4] = value

    def write(self, data):
        ring, size = self.outward, self.sizes[1]
        while data:
            eventually(lambda: (self.gave - self.word(ring, READER)) % GONE < size)
            room = size - (self.gave - self.word(ring, READER)) % GONE
            at = self.gave % size
            part = data[: min(room, size - at)]
            ring[DATA + at : DATA + at + len(part)] = part
            data = data[len(part) :]
            self.gave = (self.gave + len(part)) % GONE
            self.put(ring, WRITER, self.gave)
            self.ring()

    def ring(self):
        """Wake the other up, however it waits: who sleeps wakes up by itself, soon."""
        with contextlib.suppress(OSError):
            self.sock.send(b"!")

    def read(self, count):
        ring, size, data = self.inward, self.sizes[0], b""
        while len(data) < count:
            eventually(lambda: self.word(ring, WRITER) % GONE != self.got)
            ready = (self.word(ring, WRITER) - self.got) % GONE
            at = self.got % size
            part = ring[DATA + at : DATA + at + min(ready, size - at, count - len(data))]
            data += part
            self.got = (self.got + len(part)) % GONE
            self.put(ring, READER, self.got)
            self.ring()
        return data

    def close(self):
        self.sock.close()
        for ring, words in self.words.items():
            words.release()
            ring.close()


def reply(sock, to_server, to_client, files):
    """Answer a client with two descriptors, or how many there are."""
    words = WORDS.pack(MAGIC, VERSION, to_server, to_client, 0)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    sock.sendmsg([words], rights)


def main(path, half):
    """Send part of a message, say so, and wait to be killed."""
    peer = Peer.connect(path)
    peer.write(bytes.fromhex(half))
    print("sent", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])

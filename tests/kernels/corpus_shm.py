"""What a peer says and does for the fuzz driver."""

import struct

READ, WRITE, THEY_READ, THEY_WRITE, SHARED_WORD, LOOK, WAIT, RING, LEAVE = range(9)

PLAYS = [
    [(WRITE, 0, 100), (THEY_READ, 0, 100), (THEY_WRITE, 0, 40), (READ, 1, 40)],
    # More than a ring has, both ways, and around its end.
    [(WRITE, 0, 5000), (THEY_READ, 0, 3000), (WRITE, 0, 2900), (THEY_READ, 0, 5999)] * 3,
    [(THEY_WRITE, 0, 5000), (READ, 0, 3000), (THEY_WRITE, 0, 2900), (READ, 1, 5999)] * 3,
    # Waiting and polling, and who wakes whom up.
    [(WAIT, 1, 10), (THEY_WRITE, 0, 10), (WAIT, 3, 10), (WRITE, 0, 5999), (WAIT, 0, 100)],
    [(LOOK, 0, 0), (SHARED_WORD, 5, 2), (SHARED_WORD, 4, 1), (WRITE, 0, 10), (RING, 0, 3)],
    [(LOOK, 1, 0), (LOOK, 2, 0), (LOOK, 3, 0), (RING, 0, 30), (LOOK, 0, 0), (WAIT, 1, 1)],
    # What was said before an end is still to be had.
    [(THEY_WRITE, 0, 30), (LEAVE, 0, 0), (READ, 0, 10), (READ, 1, 30), (READ, 0, 10)],
    [(WRITE, 0, 30), (LEAVE, 3, 0), (THEY_READ, 0, 30), (THEY_WRITE, 0, 9), (READ, 0, 9)],
]


def messages():
    for client in (0, 1):
        for number, play in enumerate(PLAYS):
            sizes = (4096, 4096 << number % 3)
            words = struct.pack("<4I4I", 0x4D53574C, 1, *sizes, 0, 0, 0, 0)
            steps = b"".join(struct.pack("<BBI", *step) for step in play)
            yield bytes([client]) + words + steps

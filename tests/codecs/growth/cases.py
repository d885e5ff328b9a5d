"""What the cases of this folder are made with; `run.py` runs them.

A case is a function of n that makes an input, among the worst that we know of, and returns what is
to be measured.
"""

from functools import partial

from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.streams import FrameReader
from tests.ends import frames_in

WIDE = Limits(datagram=65_507)

CASES = {}
"""By name: what makes one, and the smallest n."""


def case(n):
    """Add a case, whose smallest size is `n`."""

    def add(make):
        CASES[make.__name__] = (make, n)
        return make

    return add


def add_cases(prefix, n, values, **works):
    """Add each kind of work with each value."""
    for kind, work in works.items():
        for name, make in values.items():

            def case(n, make=make, work=work):
                return work(make(n))

            CASES[f"{prefix}_{kind}_{name}"] = (case, n)


def of_codec(encode, decode, spoiled):
    """Three kinds of work: encoding, decoding, and decoding what is spoiled at its end."""
    return {
        "encode": lambda value: partial(encode, value),
        "decode": lambda value: partial(decode, encode(value)),
        "wrong": lambda value: refused(partial(decode, spoiled(value))),
    }


def refused(work):
    """What is measured ends with an error that is ours."""

    def try_it():
        try:
            work()
        except RlwireError:
            return
        raise AssertionError("nothing was wrong")

    return try_it


def names(n):
    return [f"name{i}" for i in range(n)]


def nested(depth, leaf, wrap):
    value = leaf
    for _ in range(depth):
        value = wrap(value)
    return value


def fed(session, data, piece):
    """All frames of a stream that comes in pieces."""
    reader = FrameReader(session)

    def feed():
        for frame in frames_in(reader, data, piece):
            session.receive(frame)

    return feed

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from rlwire.errors import LimitExceeded
from rlwire.openpi import Server as PolicyServer
from rlwire.rlx import RLXPageServer
from rlwire.rlx import Server as RLXServer
from rlwire.serving.serving import StreamOptions, StreamServer
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
    capacity,
)
from rlwire.transports.server import BaseServer
from rlwire.universe.rewarder import RewarderServer
from tests.agents import Agent


def test_in_all_and_from_one_address() -> None:
    admission = Admission(4, 2)
    admission.enter("192.0.2.1")
    admission.enter("192.0.2.1")
    with pytest.raises(LimitExceeded, match=r"max_connections_per_address=2.*192\.0\.2\.1"):
        admission.enter("192.0.2.1")
    admission.enter("192.0.2.2")
    admission.enter("")
    with pytest.raises(LimitExceeded, match=r"5 is over the limit max_connections=4"):
        admission.enter("192.0.2.3")
    assert admission._count == 4
    admission.leave("192.0.2.1")
    admission.enter("192.0.2.1")
    for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2", ""):
        admission.leave(host)
    assert admission._count == 0
    assert not admission._open, "nothing is kept of those who left"


def test_unix_sockets_count_in_all_only() -> None:
    admission = Admission(5, 1)
    for _ in range(5):
        admission.enter("")
    with pytest.raises(LimitExceeded, match="max_connections=5"):
        admission.enter("")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%1", "fe80::2%2", True),
        ("odd:address", "odd:address", True),
        ("odd:address", "other:address", False),
    ],
)
def test_whose_addresses_are_one(one: str, other: str, same: bool) -> None:
    admission = Admission(5, 1)
    admission.enter(one)
    if same:
        with pytest.raises(LimitExceeded):
            admission.enter(other)
    else:
        admission.enter(other)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "5", None])
def test_arguments_that_make_no_sense(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_connections must be at least 1"):
        capacity(wrong, 1)
    with pytest.raises(ValueError, match="max_connections_per_address must be at least 1"):
        Admission(1, wrong)


def test_all_servers_have_the_same_defaults() -> None:
    from rlwire.dm_env_rpc import Server

    servers: list[Any] = [BaseServer, StreamServer]
    for server in servers:
        parameters = inspect.signature(server).parameters
        assert parameters["max_connections"].default == MAX_CONNECTIONS, server
        assert parameters["max_connections_per_address"].default == MAX_CONNECTIONS_PER_ADDRESS, (
            server
        )
    # Of calls: of connections there may be twice as many, so that a call can be refused.
    calls = Server(Agent, "127.0.0.1:0")._options
    assert calls["max_connections"] == 2 * MAX_CONNECTIONS
    assert calls["max_connections_per_address"] == 2 * MAX_CONNECTIONS_PER_ADDRESS


@pytest.mark.parametrize("server", [RLXServer, RLXPageServer, PolicyServer, RewarderServer])
def test_servers_of_streams_take_the_same_options(server: Any) -> None:
    """All that is in the table, and nothing else."""
    options = {"timeout": None, "idle_timeout": None, "tls": None, "loop_factory": None}
    maxima = {"max_connections": 2, "max_connections_per_address": 1}
    assert options.keys() | maxima.keys() == set(get_type_hints(StreamOptions))
    served = {PolicyServer: Agent().init, RewarderServer: "a"}.get(server, Agent)
    made = server(served, "127.0.0.1:0", **options, **maxima)
    assert made._options["timeout"].idle is None
    assert made._options.items() >= maxima.items()
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        server(served, "127.0.0.1:0", colour="red")

"""What is the same about all protocols' servers and clients has the same name everywhere."""

import contextlib
import inspect
import re
from pathlib import Path

import pytest

from rlwire import dm_env_rpc, openpi, perlert, rllink, rlx
from rlwire.transports import waits
from rlwire.universe import rewarder, rfb
from tests import agents

SERVERS = [
    dm_env_rpc.Server, openpi.Server, perlert.Server, rlx.Server, rfb.RfbServer, rllink.Server,
    rewarder.RewarderServer,
]  # fmt: skip
CLIENTS = [
    dm_env_rpc.Client, dm_env_rpc.AsyncClient, openpi.Client, openpi.AsyncClient, perlert.Client,
    perlert.AsyncClient, rlx.AgentProxy, rlx.AsyncAgentProxy, rewarder.RewarderClient,
    rewarder.AsyncRewarderClient, rfb.RfbClient, rllink.Client,
    rllink.AsyncClient,
]  # fmt: skip
STREAMS = {
    *("workers", "tls", "timeout", "limits", "idle_timeout", "max_connections"),
    *("max_connections_per_address", "loop_factory"),
}
# What a protocol does not have: PERLERT goes over UDP, the rewarder's and RFB's servers
# have one event loop, RLlink's a thread for each client.
LACKS = {
    perlert.Server: STREAMS - {"idle_timeout", "limits", "loop_factory"},
    rewarder.RewarderServer: {"workers"},
    rfb.RfbServer: {"workers"},
    rllink.Server: {"workers"},
}
DROP_INS = {rlx.AgentProxy, rlx.AsyncAgentProxy}  # with the original's names
NO_SECRET = {rlx.Server, rlx.AgentProxy, rlx.AsyncAgentProxy}


@pytest.mark.parametrize("kind", SERVERS)
def test_servers_share_their_options_and_methods(kind):
    names = {*inspect.signature(kind).parameters}
    expected = STREAMS | (set() if kind in NO_SECRET else {"auth"})
    assert expected - names == LACKS.get(kind, set())
    assert "address" in names
    for method in ("start", "drain", "stop", "wait", "serve_forever", "statistics", "check"):
        assert inspect.isfunction(getattr(kind, method)), method
    for attribute in ("address", "url"):
        assert isinstance(inspect.getattr_static(kind, attribute), property)


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_share_their_options_and_methods(kind):
    names = {*inspect.signature(kind).parameters}
    assert "limits" in names
    assert ("auth" in names) == (kind not in NO_SECRET)
    assert callable(kind.connect)
    assert issubclass(kind, waits.ClientBase)
    if kind not in DROP_INS:
        assert next(iter(inspect.signature(kind).parameters)) == "address"
        assert callable(kind.close)
    if kind not in (perlert.Client, perlert.AsyncClient):
        assert {"tls", "timeout", "backoff"} <= names


SCHEMES = {"dm_env_rpc": "dm-env-rpc", "rewarder": "universe", "rfb": "universe"}
EXAMPLES = {
    dm_env_rpc.Server: (lambda settings: None,), openpi.Server: (lambda observation: {},),
    perlert.Server: (None,), rlx.Server: (agents.Agent,), rfb.RfbServer: (rfb.Display(8, 8),),
    rewarder.RewarderServer: ("an-id",),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*SERVERS, *CLIENTS])
def test_constructors_accept_only_urls_of_their_protocol(kind):
    room = kind.__module__.split(".")[-2]
    scheme = SCHEMES.get(room, room)
    others = ("an-instance",) if kind in (perlert.Client, perlert.AsyncClient) else ()
    plus = "+" if scheme == "universe" and room != "rfb" else ""
    for url in (f"{scheme}://localhost:{plus}7", "localhost:7"):
        with contextlib.suppress(OSError):  # openpi's client connects at once, as the original
            made = kind(*EXAMPLES.get(kind, ()), url, *others)
            assert str(getattr(made, "address", "localhost:7")).endswith("localhost:7")
    wrong = "openpi://localhost:7" if scheme != "openpi" else "rlx://localhost:7"
    with pytest.raises(ValueError, match=f"expected {scheme}://"):
        kind(*EXAMPLES.get(kind, ()), wrong, *others)
    if scheme != "perlert" and kind in SERVERS:
        with pytest.raises(ValueError, match=r"\+tls needs a certificate"):
            kind(*EXAMPLES.get(kind, ()), f"{scheme}+tls://localhost:{plus}7", *others)


@pytest.mark.parametrize("kind", [*SERVERS, *CLIENTS])
def test_options_are_keyword_only(kind):
    for name, parameter in inspect.signature(kind).parameters.items():
        positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert not (positional and name in STREAMS | {"auth"}), name


# The field has a term for each: send, receive, report, slot, lease, describe, close, loan.
EVERYDAY = {
    "attend", "attention", "bring", "bye", "chaff", "comes", "deaf", "disown", "doubt", "doze",
    "epitaph", "epitaphs", "farewell", "fleeting", "fulfil", "goodbye", "hot", "hung", "hush",
    "keeper", "lends", "lent", "looked", "mute", "nobody", "parting", "promised", "somebody",
    "speak", "speaking", "speaks", "spoken", "steady", "stray", "sweep", "talking", "tells",
    "trouble", "understood", "untold", "whoever",
}  # fmt: skip
TEXT = re.compile(r'("""|\'\'\')[\s\S]*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*')


def test_identifiers_are_terms_of_the_field() -> None:
    root = Path(__file__).parents[1]
    found = []
    for file in (*root.glob("rlwire/**/*.py*"), *root.glob("tests/**/*.py")):
        if file.suffix in (".py", ".pyx", ".pxd", ".pyi"):
            for name in set(re.findall(r"[A-Za-z_]\w*", TEXT.sub("", file.read_text("utf-8")))):
                words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
                if EVERYDAY.intersection(map(str.lower, words)):
                    found.append(f"{file.relative_to(root)}: {name}")
    assert found == []

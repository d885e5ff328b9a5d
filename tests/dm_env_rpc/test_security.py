"""Who may speak to a dm_env_rpc server: TLS, certificates of both sides, tokens."""

import logging

import pytest
import trustme

from rlwire.dm_env_rpc import Client, ClientTLS, Server, ServerTLS, StatusError
from rlwire.dm_env_rpc.channel import authorization, refusal
from rlwire.errors import ConnectionClosed
from rlwire.transports.sockets import Timeouts
from tests.raising import raised, raised_with


def no_world(settings):
    raise ValueError("no world today")


def talk(client):
    with client, pytest.raises(StatusError, match="no world today"):
        client.create_world()


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """Return the path of a file by its name: two authorities, and certificates of theirs."""
    folder = tmp_path_factory.mktemp("tls")
    ours = trustme.CA()
    ours.cert_pem.write_to_path(folder / "ca")
    for owner, authority in (("server", ours), ("client", ours), ("stranger", trustme.CA())):
        certificate = authority.issue_cert("localhost").private_key_and_cert_chain_pem
        certificate.write_to_path(folder / owner)
    return folder.joinpath


def test_mutual_tls_requires_certificates_of_both_sides(workers, issued):
    tls = ServerTLS(issued("server"), client_ca=issued("ca"))
    with Server(no_world, "localhost:0", workers=workers, tls=tls) as server:
        port = server.address.port
        address, number = f"localhost:{port}", f"127.0.0.1:{port}"
        mutual = ClientTLS(issued("ca"), issued("client"))
        named = ClientTLS(issued("ca"), issued("client"), server_hostname="localhost")
        stranger = ClientTLS(issued("ca"), issued("stranger"))
        for where, wrong in ((address, stranger), (address, None), (number, mutual)):
            client = Client(where, tls=wrong, timeout=Timeouts(connect=3.0))
            assert where in str(raised(OSError, client.connect))
        talk(Client(address, tls=mutual))
        talk(Client(number, tls=named))


def test_token_is_required_and_checked(workers, caplog):
    with Server(no_world, "127.0.0.1:0", workers=workers, auth="sesame") as server:
        talk(Client(server.address, auth="sesame"))
        talk(Client(server.address, metadata=[("authorization", "Bearer sesame")]))
        for token, why in (("simsim", "the token is wrong"), (None, "a token is needed")):
            with Client(server.address, auth=token) as client:
                raised_with(ConnectionClosed, f"UNAUTHENTICATED: {why}", client.create_world)
                assert client.closed
            assert why in caplog.text
    assert "simsim" not in caplog.text


def test_invalid_tokens_are_rejected():
    expected = authorization("Ab.12-_~+/=")
    assert expected == ("authorization", "Bearer Ab.12-_~+/=")
    assert not refusal(expected, [("x", "y"), expected])
    for metadata in ([], [("authorization", "Ab.12-_~+/=")], [("x", expected[1])]):
        assert refusal(expected, metadata)
    assert refusal(expected, [("authorization", "Bearer \xe9")])
    for token in ("", "a b", "a\n", "\xe9"):
        raised(ValueError, authorization, token)
        raised(ValueError, Server, no_world, auth=token)


def test_token_without_tls_on_a_network_warns(issued, caplog):
    caplog.set_level(logging.WARNING, logger="rlwire")
    Server(no_world, "127.0.0.1:0", auth="word")
    Server(no_world, "0.0.0.0:0", tls=ServerTLS(issued("server")), auth="word")
    Client("192.0.2.1:7", tls=ClientTLS(issued("ca")), auth="word")
    assert caplog.text == ""
    Server(no_world, "0.0.0.0:0", auth="word")
    assert "0.0.0.0:0: the token is sent over the network without TLS" in caplog.text
    Client("192.0.2.1:7", auth="word")
    assert "192.0.2.1:7: the token is sent over the network without TLS" in caplog.text
    assert "word" not in caplog.text

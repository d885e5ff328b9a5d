"""Who may speak to a dm_env_rpc server: TLS, certificates of both sides, tokens."""

import logging
import ssl

import pytest
import trustme

from rlwire.dm_env_rpc import Client, ClientTLS, Server, ServerTLS, StatusError
from rlwire.dm_env_rpc.channel import authorization, authorized
from rlwire.errors import ConnectionClosed
from rlwire.transports.sockets import Timeouts
from tests.raising import raised


def no_world(settings):
    raise ValueError("no world today")


def talk(client):
    with client, pytest.raises(StatusError, match="no world today"):
        client.create_world()


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return request.param


class Files:
    def __init__(self, folder):
        authority, other = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca", folder / "other"
        authority.cert_pem.write_to_path(self.ca)
        other.cert_pem.write_to_path(self.other_ca)
        self.server, self.client, self.stranger = (folder / name for name in ("s", "c", "x"))
        for issuer, path in (
            (authority, self.server), (authority, self.client), (other, self.stranger)
        ):  # fmt: skip
            issuer.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


def test_tls(workers, files):
    with Server(no_world, "localhost:0", workers=workers, tls=ServerTLS(files.server)) as server:
        port = server.address.port
        talk(Client(f"localhost:{port}", tls=ClientTLS(files.ca)))
        named = ClientTLS(files.ca, server_hostname="localhost")
        talk(Client(f"127.0.0.1:{port}", tls=named))
        for address, ca in ((f"localhost:{port}", files.other_ca), (f"127.0.0.1:{port}", files.ca)):
            with pytest.raises(ssl.SSLCertVerificationError, match=address):
                Client(address, tls=ClientTLS(ca)).connect()
        with pytest.raises(OSError, match=f"localhost:{port}"):
            Client(f"localhost:{port}", timeout=Timeouts(connect=3.0)).connect()


def test_mutual_tls(workers, files):
    tls = ServerTLS(files.server, client_ca=files.ca)
    with Server(no_world, "localhost:0", workers=workers, tls=tls) as server:
        address = f"localhost:{server.address.port}"
        talk(Client(address, tls=ClientTLS(files.ca, files.client)))
        for own in (None, files.stranger):
            with pytest.raises(OSError, match=address):
                Client(address, tls=ClientTLS(files.ca, own)).connect()
        talk(Client(address, tls=ClientTLS(files.ca, files.client)))


def test_token_is_required_and_checked(workers, caplog):
    with Server(no_world, "127.0.0.1:0", workers=workers, auth="sesame") as server:
        talk(Client(server.address, auth="sesame"))
        talk(Client(server.address, metadata=[("authorization", "Bearer sesame")]))
        for token, why in (("simsim", "the token is wrong"), (None, "a token is needed")):
            with Client(server.address, auth=token) as client:
                with pytest.raises(ConnectionClosed, match=f"UNAUTHENTICATED: {why}"):
                    client.create_world()
                assert client.closed
            assert why in caplog.text
    assert "simsim" not in caplog.text


def test_invalid_tokens_are_rejected():
    expected = authorization("Ab.12-_~+/=")
    assert expected == ("authorization", "Bearer Ab.12-_~+/=")
    assert authorized(expected, [("x", "y"), expected])
    assert authorized(expected, [("authorization", expected[1].encode())])
    for metadata in ([], [("authorization", "Ab.12-_~+/=")], [("x", expected[1])]):
        assert not authorized(expected, metadata)
    assert not authorized(expected, [("authorization", "Bearer \xe9")])
    for token in ("", "a b", "a\n", "\xe9"):
        raised(ValueError, authorization, token)
        raised(ValueError, Server, no_world, auth=token)


def test_a_token_in_the_clear(files, caplog):
    caplog.set_level(logging.WARNING, logger="rlwire")
    Server(no_world, "127.0.0.1:0", auth="word")
    Server(no_world, "0.0.0.0:0", tls=ServerTLS(files.server), auth="word")
    Client("192.0.2.1:7", tls=ClientTLS(files.ca), auth="word")
    assert caplog.text == ""
    Server(no_world, "0.0.0.0:0", auth="word")
    assert "0.0.0.0:0: the token is sent over the network without TLS" in caplog.text
    Client("192.0.2.1:7", auth="word")
    assert "192.0.2.1:7: the token is sent over the network without TLS" in caplog.text
    assert "word" not in caplog.text

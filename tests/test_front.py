"""`rlwire.serve`, `rlwire.connect` and `rlwire.aio.connect`, over each protocol."""

import asyncio
import contextlib
import functools
import gc
import inspect
import itertools
import re
import socket
import time
import types
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from gymnasium.error import ClosedEnvironmentError

import rlwire
import rlwire.aio
from rlwire._options import options_of
from rlwire.errors import ConnectionClosed, RemoteProtocolError, RlwireError
from rlwire.registry import PROTOCOLS
from rlwire.rlx import AgentProxyException
from rlwire.transports import shm
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from rlwire.urls import parse_url
from tests import agents
from tests.raising import raised, raised_with
from tests.targets import Stuck

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("hpack")


class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        return state


def policy(observation):
    return {"actions": observation["state"]}


THINGS = {
    "rlx": Agent,
    "dm-env-rpc": "gym:CartPole-v1",
    "perlert": "gym:CartPole-v1",
    "universe": "gym:CartPole-v1",
    "openpi": policy,
}
SCHEMES = list(THINGS)
SOCKETS = hasattr(socket, "AF_UNIX")
STREAMS = [scheme for scheme in SCHEMES if scheme != "perlert"]


def anywhere(scheme, carriers=""):
    return f"{scheme}{carriers}://localhost:{'+' if PROTOCOLS[scheme].plus else ''}0"


def first_words(scheme, client):
    """What a client says first that has an answer; an asyncio client's is to be awaited."""
    if scheme == "rlx":
        return client.init()
    if scheme == "dm-env-rpc":
        return client.create_world()
    if scheme == "perlert":
        return client.lobby(10)
    return client.reset() if scheme == "universe" else client.infer({"state": 3})


def check(scheme, answer):
    if scheme == "rlx":
        assert answer == "ready"
    elif scheme == "perlert":
        assert [slot.key for slot in answer] == ["agent0"]
    elif scheme == "openpi":
        assert answer["actions"] == 3
    else:
        assert isinstance(answer, str)
        assert answer


def check_both(scheme, url):
    with rlwire.connect(url) as client:
        check(scheme, first_words(scheme, client))

    async def run():
        async with rlwire.aio.connect(url) as client:
            check(scheme, await first_words(scheme, client))

    asyncio.run(run())


@pytest.mark.parametrize("carrier", ["", "+unix", "+shm"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_client_connects_by_the_url_of_the_server(scheme, carrier, tmp_path):
    where = f"{scheme}{carrier}://{tmp_path}/a socket" if carrier else anywhere(scheme)
    if carrier and (scheme == "perlert" or not (SOCKETS if carrier == "+unix" else shm.AVAILABLE)):
        pytest.skip("there is no such carrier")
    with rlwire.serve(THINGS[scheme], where) as server:
        url = parse_url(server.url)
        if carrier:
            assert url.replace(options=()) == parse_url(where)
        else:
            assert (url.scheme, url.host, url.port) == (scheme, "localhost", server.address.port)
            assert url.port != 0
        check_both(scheme, server.url)
        client = rlwire.connect(url)
        check(scheme, first_words(scheme, client))
        client.__exit__(None, None, None)

        async def run():
            client = await rlwire.aio.connect(url)
            check(scheme, await first_words(scheme, client))
            await client.__aexit__(None, None, None)

        asyncio.run(run())
        if PROTOCOLS[scheme].caller == "trainer":
            with rlwire.make(server.url) as env:
                assert env.reset()[0] in env.observation_space
                assert env.step(1)[0] in env.observation_space


@pytest.mark.parametrize("scheme", SCHEMES)
def test_closed_client_and_environment_raise(scheme):
    closed = (ConnectionClosed, AgentProxyException)
    with rlwire.serve(THINGS[scheme], anywhere(scheme)) as server:
        with rlwire.connect(server.url) as client:
            check(scheme, first_words(scheme, client))
        raised(closed, first_words, scheme, client)

        async def run():
            async with rlwire.aio.connect(server.url) as client:
                check(scheme, await first_words(scheme, client))
            with pytest.raises(closed):
                await first_words(scheme, client)

        asyncio.run(run())
        if PROTOCOLS[scheme].caller != "trainer":
            return
        with rlwire.make(server.url) as env:
            env.reset()
            env.step(1)
        for call in (env.reset, functools.partial(env.step, 1), env.render):
            raised(ClosedEnvironmentError, call)
        env.close()
        if scheme == "perlert":  # the only slot is still the closed one's
            return
        with rlwire.make_vec(server.url, 1) as envs:
            envs.reset()
        for call in (envs.reset, functools.partial(envs.step, [1]), envs.render):
            raised(ClosedEnvironmentError, call)


@pytest.mark.parametrize("scheme", ["rlx", "openpi"])
def test_closed_environment_of_a_listener_raises(scheme):
    with rlwire.listen(anywhere(scheme), like="CartPole-v1") as env:
        url = env.callers.url
    for call in (env.reset, functools.partial(env.step, 1), env.render):
        raised(ClosedEnvironmentError, call)
    with rlwire.listen_vec(url, 2, like="CartPole-v1") as envs:  # the port is free
        pass
    for call in (envs.reset, functools.partial(envs.step, [1, 1]), envs.render):
        raised(ClosedEnvironmentError, call)


@pytest.mark.skipif(not shm.AVAILABLE, reason="this needs Linux")
@pytest.mark.parametrize(("host", "wildcard"), [("127.0.0.1", "0.0.0.0"), ("[::1]", "[::]")])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_client_reaches_a_local_server_by_a_wildcard_host(scheme, host, wildcard):
    with rlwire.serve(THINGS[scheme], anywhere(scheme).replace("localhost", host)) as server:
        check_both(scheme, server.url.replace(host, wildcard))


@pytest.mark.parametrize("carrier", ["unix", "shm"])
@pytest.mark.parametrize("scheme", ["rlx", "openpi"])
def test_caller_plays_over_a_unix_socket_and_shared_memory(scheme, carrier, tmp_path):
    url = f"{scheme}+{carrier}://{tmp_path}/s"
    env = rlwire.listen(url, like="CartPole-v1")
    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(rlwire.play, "gym:CartPole-v1", url, episodes=1)
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(1)
            total, over = total + reward, terminated or truncated
        env.close()
        assert 0 < total < 500
        assert len(played.result(20)) in (0, 1)


@pytest.mark.parametrize("scheme", STREAMS)
def test_client_connects_over_tls_with_files_in_the_query(scheme, tmp_path):
    authority = pytest.importorskip("trustme").CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "localhost.pem")
    where = anywhere(scheme, "+tls")
    raised_with(ValueError, r"\+tls needs a certificate", rlwire.serve, THINGS[scheme], where)
    with rlwire.serve(THINGS[scheme], f"{where}?tls.cert={tmp_path / 'localhost.pem'}") as server:
        assert server.url.startswith(f"{scheme}+tls://localhost:")
        more = "&" if "?" in server.url else "?"  # a password that the server made
        with rlwire.connect(f"{server.url}{more}tls.ca={tmp_path / 'ca.pem'}") as client:
            check(scheme, first_words(scheme, client))
        raised((RlwireError, OSError), rlwire.connect, server.url, timeout=Timeouts(connect=10.0))
    with (
        rlwire.serve(THINGS[scheme], where, tls=ServerTLS(tmp_path / "localhost.pem")) as server,
        rlwire.connect(server.url, tls=ClientTLS(tmp_path / "ca.pem")) as client,
    ):
        check(scheme, first_words(scheme, client))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("scheme", ["dm-env-rpc", "universe", "openpi"])
def test_client_authenticates_with_a_secret_in_a_file(scheme, encoding, tmp_path):
    (tmp_path / "secret").write_text("sesame\n", encoding)
    query = f"?auth_file={tmp_path / 'secret'}"
    with rlwire.serve(THINGS[scheme], anywhere(scheme) + query) as server:
        assert "secret" not in server.url
        with rlwire.connect(server.url + query) as client:
            check(scheme, first_words(scheme, client))
        for secret in ("sesame", b"sesame"):
            with rlwire.connect(server.url, auth=secret) as client:
                check(scheme, first_words(scheme, client))
        with (
            pytest.raises(RlwireError, match=r"password|API key|token"),
            rlwire.connect(server.url, auth="simsim") as client,
        ):
            first_words(scheme, client)


def test_perlert_client_authenticates_with_a_key_in_a_file(tmp_path):
    pytest.importorskip("cryptography")
    from rlwire.perlert import new_key

    key = new_key()
    (tmp_path / "key").write_text(key.hex())
    (tmp_path / "key").chmod(0o600)
    query = f"?auth_file={tmp_path / 'key'}"
    with rlwire.serve("gym:CartPole-v1", anywhere("perlert") + query, name="pole") as server:
        assert server.url.endswith("/pole:0")
        for client in (rlwire.connect(server.url + query), rlwire.connect(server.url, auth=key)):
            check("perlert", first_words("perlert", client))
            client.close()
        with pytest.raises(ValueError, match=r"perlert://.*/CartPole-v1:0"):
            rlwire.connect(server.url.removesuffix("/pole:0"))


def test_server_combines_options_of_the_query_and_of_python():
    url = anywhere("dm-env-rpc") + "?accepts=render_mode&max_worlds=1&reward=score"
    with (
        rlwire.serve("gym:CartPole-v1", url, max_worlds=2) as server,
        rlwire.connect(server.url) as client,
    ):
        names = [client.create_world({"render_mode": "rgb_array"}) for _ in range(2)]
        raised(RlwireError, client.create_world)
        client.join_world(names[0])
        assert {spec.name for spec in client.specs.observations.values()} >= {"score"}
        with rlwire.connect(f"{server.url}/{names[1]}") as other:
            assert other.world_name == names[1]
        caught = raised(RlwireError, rlwire.connect, f"{server.url}/no-such-world")
        assert "no-such-world" in str(caught)


def test_websocket_page_connects_to_an_rlx_server_by_its_url():
    from rlwire.websocket import connect

    with (
        rlwire.serve(Agent, anywhere("rlx")) as server,
        rlwire.serve(server.url, anywhere("rlx-ws")) as pages,
        connect(pages.url.removeprefix("rlx-")) as page,
    ):
        assert page.exchange('{"sid":0,"command":"init"}') == '{"sid":0,"response":"ready"}'
        raised(ValueError, rlwire.connect, pages.url)
    raised(ValueError, rlwire.serve, "openpi://localhost", anywhere("rlx-ws"))


@pytest.mark.parametrize("scheme", ["dm-env-rpc", "perlert", "universe"])
def test_served_environment_can_be_served_again_by_its_url(scheme, caplog):
    with (
        rlwire.serve("gym:CartPole-v1", anywhere("dm-env-rpc")) as behind,
        rlwire.serve(behind.url, anywhere(scheme)) as server,
        rlwire.make(server.url) as env,
    ):
        assert env.observation_space.shape == (4,)
        assert env.reset()[0].shape == (4,)
        observation, reward, *_ = env.step(env.action_space.sample())
        assert observation.shape == (4,)
        assert reward >= 0.0
    assert "Traceback" not in caplog.text


def test_async_server_and_client_exchange_messages():
    async def run():
        async with (
            rlwire.aio.serve(THINGS["openpi"], anywhere("openpi")) as server,
            rlwire.aio.connect(server.url) as client,
        ):
            answer = await first_words("openpi", client)
        assert server.wait(0)
        with pytest.raises(ValueError, match="'nothing'"):
            async with rlwire.aio.serve(THINGS["openpi"], "nothing://localhost:0"):
                pass
        return answer

    check("openpi", asyncio.run(run()))


@pytest.mark.parametrize("url", ["dm-env-rpc://localhost:0", "universe://localhost:+0", "perlert"])
def test_server_logs_the_traceback_of_an_environments_exception(url, caplog):
    caplog.set_level("DEBUG")
    with (
        rlwire.serve(Stuck, "perlert://localhost:0" if url == "perlert" else url) as server,
        rlwire.make(server.url) as env,
        contextlib.suppress(RlwireError),
    ):
        env.reset()
        for _ in range(1000):
            env.step(0)
    failed = [each for each in caplog.records if each.exc_info and each.levelname == "ERROR"]
    assert any("the arm is stuck" in (each.exc_text or "") for each in failed)
    assert not [each for each in caplog.records if each.name.startswith("hpack")]


SIDES = dict(environment="make", client="connect", server="serve", listener="listen", player="play")


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_help_describes_each_option(scheme):
    for side, kind in PROTOCOLS[scheme].options.items():
        options = [each for each in options_of(kind).values() if each.kind is None]
        described = re.findall(r"^    (\w+): \S.{5}", inspect.getdoc(kind) or "", re.M)
        assert {*described} >= {each.name for each in options}, side
        assert f'``"{side}"`` for `{SIDES[side]}`' in " ".join((rlwire.__doc__ or "").split())


class TestBadInput:
    def test_failed_handshake_closes_its_socket(self):
        def answer(listener):
            sock, _ = listener.accept()
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return sock  # which stays open

        async def call(port):
            with pytest.raises(RemoteProtocolError):
                await rlwire.aio.connect(f"dm-env-rpc://127.0.0.1:{port}")

        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            ThreadPoolExecutor() as pool,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            answered = pool.submit(answer, listener)
            asyncio.run(call(listener.getsockname()[1]))
            gc.collect()
            answered.result().close()
        assert not [each for each in caught if each.category is ResourceWarning]

    @pytest.mark.parametrize(("scheme", "other"), [("openpi", "rlx"), ("rlx", "openpi")])
    def test_player_of_another_protocol_names_the_url_and_the_protocol(self, scheme, other):
        with rlwire.serve(THINGS[scheme], anywhere(scheme)) as server:
            wrong = parse_url(server.url).replace(scheme=other)
            with pytest.raises(RemoteProtocolError, match=f"^{re.escape(str(wrong))}: .* {other}"):
                rlwire.play("gym:CartPole-v1", wrong)

    @pytest.mark.parametrize("actions", [1, [], "left", [[1], [1, 2]]], ids=str)
    def test_policy_with_invalid_actions_is_a_remote_error(self, actions):
        policy = types.SimpleNamespace(infer=lambda _: {"actions": actions})
        with (
            rlwire.serve(policy, anywhere("openpi")) as server,
            pytest.raises(RemoteProtocolError, match="action"),
        ):
            rlwire.play("gym:CartPole-v1", server.url)

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_failing_constructor_is_reported_before_the_port_opens(self, scheme, caplog):
        class Broken:
            def __init__(self, *_):
                raise RuntimeError("no camera")

            init = update = reset = step = infer = lambda self: None
            action_space = observation_space = gymnasium.spaces.Discrete(2)

        caplog.set_level("INFO")
        raised(RuntimeError, rlwire.serve, Broken, anywhere(scheme))
        assert "serving" not in caplog.text

    def test_unknown_options_are_rejected_with_a_suggestion(self):
        url = anywhere("rlx")
        caught = raised_with(
            ValueError, "server of rlx://", rlwire.serve, Agent, f"{url}?colour=red"
        )
        assert "'colour'" in str(caught)
        raised_with(TypeError, "server of .*'limts'.*'limits'", rlwire.serve, Agent, url, limts=5)
        for connect in (rlwire.connect, rlwire.aio.connect):
            assert "'arrays'" in str(raised(TypeError, connect, "openpi://localhost:1", array=""))
        raised_with(TypeError, "'join_settings'", rlwire.make, "dm-env-rpc://h", join_setting={})
        raised_with(TypeError, "player of rlx://.*'episode'", rlwire.play, Agent, url, episode=3)
        raised_with(TypeError, r"'backoff'.* client", rlwire.listen, url, backoff=None)

    @pytest.mark.parametrize("call", [rlwire.connect, rlwire.aio.connect, rlwire.make])
    def test_invalid_urls_are_rejected_with_an_example(self, call):
        for url in ("localhost:7001", "http://localhost", "", None):
            raised_with(ValueError, r"expected .*rlx://localhost:7001", call, url)


@pytest.mark.parametrize("scheme", STREAMS)
def test_client_connections_are_logged_at_a_limited_rate(scheme, caplog):
    caplog.set_level("INFO")
    begin = time.monotonic()
    with rlwire.serve(THINGS[scheme], anywhere(scheme)) as server:
        for _ in range(30):
            with rlwire.connect(server.url) as client:
                first_words(scheme, client)
    output = Counter(record.msg for record in caplog.records if record.name.startswith("rlwire."))
    assert sum(output.values()) >= 2  # that it serves, and that it has stopped
    most = 20 * (1 + (time.monotonic() - begin) // 10)
    assert all(lines <= most for lines in output.values()), output


@pytest.mark.parametrize(("scheme", "other"), [*itertools.permutations(STREAMS, 2)])
def test_server_keeps_serving_after_a_client_of_another_protocol(scheme, other):
    with rlwire.serve(THINGS[scheme], anywhere(scheme)) as server:
        wrong = parse_url(server.url).replace(scheme=other, options=())

        def blocking():
            with rlwire.connect(wrong, timeout=20) as client:
                first_words(other, client)

        async def looped():
            async with rlwire.aio.connect(wrong, timeout=20) as client:
                await first_words(other, client)

        for call in (blocking, lambda: asyncio.run(looped())):
            error = raised(RlwireError, call)
            if isinstance(error, RemoteProtocolError):
                assert re.search(f"^{re.escape(str(wrong))}: .* {other}", str(error))
        with rlwire.connect(server.url) as client:
            check(scheme, first_words(scheme, client))

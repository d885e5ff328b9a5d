"""Client and server for an event loop, against each other and against the blocking ones."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import grpc
import pytest
import trustme

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.limits import Limits
from rlwire.transports import grpc_asyncio, grpc_client
from rlwire.transports.grpc_asyncio import AsyncGrpcConnection
from rlwire.transports.grpc_asyncio_server import AsyncGrpcServer
from rlwire.transports.grpc_options import ClientTLS, ServerTLS
from rlwire.transports.grpc_server import GrpcServer
from rlwire.transports.sockets import Backoff, Timeouts


def load_echo() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "grpc_echo", Path(__file__).with_name("grpc_echo.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


echo = load_echo()
METHOD = echo.METHOD
QUICK = Timeouts(connect=5, read=5, write=5, idle=10)
Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run a coroutine on a loop of its own, on which nothing may be left."""
    echo.Responder.reset()

    async def guarded(main: Coroutine[Any, Any, Any]) -> Any:
        troubles: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: troubles.append(context))
        try:
            return await asyncio.wait_for(main, 60)
        finally:
            await asyncio.sleep(0.02)
            gc.collect()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            assert tasks == set()
            assert troubles == []

    yield lambda main: asyncio.run(guarded(main))
    echo.Responder.go_on.set()
    assert echo.Responder.all_closed()


@asynccontextmanager
async def serving(address: Any = "127.0.0.1:0", **options: Any) -> AsyncIterator[AsyncGrpcServer]:
    options = {"timeouts": QUICK} | options
    session = options.pop("session", echo.Session)
    responder = options.pop("responder", echo.Responder)
    async with AsyncGrpcServer(address, METHOD, session, responder, **options) as server:
        yield server


async def dial(server: Any, **options: Any) -> AsyncGrpcConnection:
    options = {"timeouts": QUICK} | options
    return await grpc_asyncio.connect(
        getattr(server, "address", server), METHOD, echo.Session(), **options
    )


async def eventually(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until, "it did not happen within 10 s"
        await asyncio.sleep(0.005)


def test_there_and_back(run: Run, log: Any) -> None:
    async def main() -> None:
        async with serving() as server:
            async with await dial(server) as connection:
                for body in (b"small", echo.noise(5_000), echo.noise(2_000_000), b"", b"again"):
                    await connection.send([body[:3], memoryview(body)[3:]])
                    assert connection.pending == 1
                    assert await connection.receive() == body
                    assert connection.pending == 0
                    assert await connection.exchange(body) == body
                assert server.connections == 1
                assert connection.status is None
            assert connection.closed
            assert connection.status is not None
            assert connection.status.code == "OK"
            await connection.close()
            for step in (connection.send(b"x"), connection.receive()):
                with pytest.raises(ConnectionClosed, match="closed on this side"):
                    await step
            await eventually(lambda: server.connections == 0)

    run(main())
    assert [record for record in log.records if record.levelname not in ("DEBUG", "INFO")] == []


@pytest.mark.parametrize("engine", ["direct", "public"])
def test_with_the_blocking_ones(run: Run, engine: Any) -> None:
    async def main() -> None:
        def talk() -> None:
            with grpc_client.connect(
                server.address, METHOD, echo.Session(), timeouts=QUICK, engine=engine
            ) as connection:
                for number in range(200):
                    connection.send(b"%d" % number * 100)
                for number in range(200):
                    assert connection.receive() == b"%d" % number * 100

        async with serving() as server:
            await asyncio.gather(*(asyncio.to_thread(talk) for _ in range(4)))
        with GrpcServer(
            "127.0.0.1:0", METHOD, echo.Session, echo.Responder, engine=engine
        ) as blocking:
            async with await dial(blocking) as connection:
                assert await connection.exchange(b"x") == b"x"

    run(main())


def test_grpcio_without_what_is_private(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def public(call: Any) -> Any:
        return call.write, call.read, (grpc.RpcError, asyncio.InvalidStateError)

    monkeypatch.setattr(grpc_asyncio, "_operations", public)

    async def main() -> None:
        async with serving(max_connections=1) as server, await dial(server) as connection:
            for number in range(100):
                await connection.send(b"%d" % number * 1000)
            for number in range(100):
                assert await connection.receive() == b"%d" % number * 1000
            assert await connection.exchange(b"x") == b"x"
            with pytest.raises(ConnectionClosed):
                await (await dial(server)).exchange(b"x")
            with pytest.raises(ConnectionClosed, match="INTERNAL"):
                await connection.exchange(b"boom")

    run(main())


def test_many_requests_before_the_first_reply(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server) as connection:
            for number in range(2000):
                await connection.send(b"%d" % number)
            assert connection.pending == 2000
            for number in range(2000):
                assert await connection.receive() == b"%d" % number
            assert connection.pending == 0

    run(main())


def test_large_requests_with_large_replies_do_not_jam(run: Run) -> None:
    body = echo.noise(400_000)

    async def main() -> None:
        async with serving() as server, await dial(server) as connection:
            for number in range(100):
                await connection.send(b"%03d" % number + body)
            for number in range(100):
                assert await connection.receive() == b"%03d" % number + body

            # And with a task for each direction.
            async def receive() -> None:
                for number in range(100):
                    assert await connection.receive() == b"%03d" % number + body

            receiving = asyncio.create_task(receive())
            for number in range(100):
                await connection.send(b"%03d" % number + body)
            await receiving

    run(main())


def test_too_much_to_receive(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server, backlog=1_000_000) as connection:
            sent = 0

            async def send_on() -> None:
                nonlocal sent
                while sent < 1000:
                    await connection.send(b"x" * 100_000)
                    sent += 1

            with pytest.raises(LimitExceeded, match="over the limit backlog=1000000"):
                await send_on()
            assert sent >= 5
            for _ in range(sent):
                assert len(await connection.receive()) == 100_000
            assert await connection.exchange(b"again") == b"again"

    run(main())


def test_session_errors(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server) as connection:
            with pytest.raises(EncodeError):
                await connection.send(b"cannot")
            with pytest.raises(LocalProtocolError):
                await connection.exchange(None)
            assert await connection.exchange(b"turn") == b"refused: not now"
            assert await connection.exchange(b"cannot be") == b"failure: cannot be encoded"
            await connection.send(b"twice")
            assert [await connection.receive(), await connection.receive()] == [b"one", b"two"]
            right = connection.session.receive

            def not_now(_: bytes) -> Any:
                raise RemoteProtocolError("not now")

            connection.session.receive = not_now  # type: ignore[method-assign]
            with pytest.raises(RemoteProtocolError):
                await connection.exchange(b"x")
            connection.session.receive = right  # type: ignore[method-assign]
            assert await connection.exchange(b"x") == b"x"

            def wrong(_: bytes) -> Any:
                raise DecodeError("wrong")

            connection.session.receive = wrong  # type: ignore[method-assign]
            with pytest.raises(DecodeError) as caught:
                await connection.exchange(b"x")
            if sys.version_info >= (3, 11):
                assert "127.0.0.1" in caught.value.__notes__[0]
            assert connection.closed
            other = await dial(server)
            assert (await other.exchange(b"\xff")).startswith(b"refused")
            with pytest.raises(ConnectionClosed, match="INVALID_ARGUMENT"):
                await other.receive()
            last = await dial(server)
            last.session.receive = lambda message: [message]  # type: ignore[method-assign]
            assert await last.exchange(b"end") == b"end"
            with pytest.raises(ConnectionClosed, match="closed by the peer"):
                await last.receive()

    run(main())


def test_a_responder_that_raises(run: Run, log: Any) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server) as other:
            assert await other.exchange(b"x") == b"x"
            with pytest.raises(ConnectionClosed, match="INTERNAL: the server failed to answer"):
                await (await dial(server)).exchange(b"boom")
            for word in (b"future fails", b"future cancelled", b"lost "):
                with pytest.raises(ConnectionClosed, match="INTERNAL"):
                    await (await dial(server)).exchange(word)
            assert await other.exchange(b"x") == b"x"

    run(main())
    assert "ValueError: boom" in log.text
    assert "the future failed" in log.text
    assert log.text.count("its responder failed") == 4


def test_answers_may_be_futures(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server) as slow, await dial(server) as quick:
            await slow.send(b"future 0.1")
            assert await slow.receive() == b"later"
            await slow.send(b"future never")
            await eventually(lambda: any(r.future and not r.future.done() for r in responders()))
            assert await quick.exchange(b"x") == b"x"
            assert await quick.exchange(b"future now") == b"now"
            waiting = [r for r in responders() if r.future and not r.future.done()]
            await slow.close()
            await eventually(lambda: waiting[0].future.cancelled())

    def responders() -> list[Any]:
        return list(echo.Responder.all)

    run(main())


def test_tokens_and_numbers(run: Run, log: Any) -> None:
    async def main() -> None:
        async with serving(token="secret-word", max_connections=2) as server:
            async with await dial(server, token="secret-word") as first:
                assert await first.exchange(b"x") == b"x"
                for token in ("wrong", None):
                    with pytest.raises(ConnectionClosed, match="UNAUTHENTICATED"):
                        await (await dial(server, token=token)).exchange(b"x")
                async with await dial(
                    server, token="secret-word", metadata=[("agent", "seven")]
                ) as second:
                    await second.exchange(b"x")
                    assert ("agent", "seven") in echo.Responder.all[-1].caller.metadata
                    third = await dial(server, token="secret-word")
                    with pytest.raises(
                        ConnectionClosed, match=r"RESOURCE_EXHAUSTED.*connections=2"
                    ):
                        await third.exchange(b"x")
                await eventually(lambda: server.connections == 1)
            other = await grpc_asyncio.connect(server.address, "/other/Method", echo.Session())
            with pytest.raises(ConnectionClosed, match="UNIMPLEMENTED"):
                await other.exchange(b"x")

    run(main())
    assert "secret" not in log.text


def test_limits(run: Run, log: Any) -> None:
    small = Limits(received=1000)

    async def main() -> None:
        async with serving(limits=small, max_sent=2000) as server:
            connection = await dial(server)
            assert len(await connection.exchange(b"x" * 1000)) == 1000
            with pytest.raises(LimitExceeded, match=r"1001 is over .*received=1000 "):
                await connection.exchange(b"x" * 1001)
            assert connection.closed
            connection = await dial(server)
            with pytest.raises(LimitExceeded, match=r"2001 is over .*max_sent=2000 .*server"):
                await connection.exchange(b"large 2001")
            connection = await dial(server, limits=small)
            with pytest.raises(LimitExceeded, match="1001 is over the limit received=1000"):
                await connection.exchange(b"large 1001")
            connection = await dial(server, max_sent=100)
            with pytest.raises(LimitExceeded, match="101 is over the limit max_sent=100"):
                await connection.exchange(b"x" * 101)
            assert connection.closed
            await eventually(lambda: server.connections == 0)

    run(main())
    assert "over the limit received=1000" in log.text
    assert "the answer is too long: 2001 is over the limit max_sent=2000" in log.text


def test_no_reply_in_time(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            connection = await dial(server, timeouts=Timeouts(idle=0.3))
            for _ in range(3):
                assert await connection.exchange(b"future 0.15") == b"later"
            begun = time.monotonic()
            with pytest.raises(DeadlineExceeded, match=r"no message came within idle=0\.3 s"):
                await connection.exchange(b"future never")
            assert time.monotonic() - begun > 0.28
            assert connection.closed

    run(main())


def test_no_time_limits(run: Run) -> None:
    never = Timeouts(connect=None, read=None, write=None, idle=None)

    async def main() -> None:
        async with serving(timeouts=never) as server, await dial(server, timeouts=never) as one:
            assert await one.exchange(b"x") == b"x"

    run(main())


def test_the_server_waits_not_for_ever(run: Run, log: Any) -> None:
    async def main() -> None:
        async with serving(timeouts=Timeouts(idle=0.2, write=0.3)) as server:
            connection = await dial(server)
            assert await connection.exchange(b"x") == b"x"
            await eventually(lambda: server.connections == 0)
            with pytest.raises(ConnectionClosed, match=r"DEADLINE_EXCEEDED: .*idle=0"):
                await connection.receive()
            # A client that does not read.
            async with grpc.aio.insecure_channel(str(server.address)) as channel:
                call = channel.stream_stream(METHOD)()
                for _ in range(3):
                    await call.write(b"large 30000000")
                await eventually(lambda: "did not take a message within write=0.3 s" in log.text)
                call.cancel()
            await eventually(lambda: server.connections == 0)

    run(main())
    assert "closed, too slow" in log.text


def test_a_server_that_does_not_read(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
    with GrpcServer(address, METHOD, echo.Session, echo.Responder, timeouts=QUICK) as server:

        async def main() -> None:
            connection = await dial(server, timeouts=Timeouts(write=0.3, idle=10))
            await connection.send(b"stuck")
            begun = time.monotonic()
            with pytest.raises(DeadlineExceeded, match=r"did not take a message within write=0\.3"):
                await send_many(connection)
            assert time.monotonic() - begun < 3
            assert connection.closed

        run(main())
        echo.Responder.go_on.set()


async def send_many(connection: AsyncGrpcConnection) -> None:
    for _ in range(300):
        await connection.send(b"x" * 1_000_000)


def test_cancelling(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            connection = await dial(server)
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, connection.cancel)
            with pytest.raises(ConnectionClosed, match="closed on this side"):
                await connection.exchange(b"future never")
            # A task that is cancelled takes its stream with it, and stays cancelled.
            connection = await dial(server)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(connection.exchange(b"future never"), 0.1)
            assert connection.closed
            with pytest.raises(ConnectionClosed):
                await connection.send(b"x")
            connection = await dial(server)
            task = asyncio.create_task(connection.exchange(b"future never"))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()
            # Closing while another task waits.
            connection = await dial(server)
            task = asyncio.create_task(connection.exchange(b"future never"))
            await asyncio.sleep(0.1)
            await connection.close()
            with pytest.raises(ConnectionClosed, match="closed on this side"):
                await task
            await eventually(lambda: server.connections == 0)

    run(main())


def test_one_task_each_way(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await dial(server) as connection:
            first = asyncio.create_task(connection.receive())
            await asyncio.sleep(0)
            with pytest.raises(LocalProtocolError, match="another task is receiving"):
                await connection.receive()
            await connection.send(b"x")
            assert await first == b"x"

    run(main())


def test_connecting(run: Run, log: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError, match=rf"cannot connect to .*:{port} \(1 "):
            await dial(f"127.0.0.1:{port}")
        with pytest.raises(ConnectionRefusedError, match=r"\(3 attempts in"):
            await dial(f"127.0.0.1:{port}", backoff=Backoff(attempts=3, first=0.01))
        silent = socket.create_server(("127.0.0.1", 0))
        with silent, pytest.raises(DeadlineExceeded, match="timed out"):
            await dial(silent.getsockname(), timeouts=Timeouts(connect=0.3))
        loop = asyncio.get_running_loop()
        started: list[Any] = []
        server = AsyncGrpcServer(f"127.0.0.1:{port}", METHOD, echo.Session, echo.Responder)
        loop.call_later(0.3, lambda: started.append(asyncio.ensure_future(server.start())))
        backoff = Backoff(attempts=50, first=0.05, longest=0.1)
        async with await dial(f"127.0.0.1:{port}", backoff=backoff) as connection:
            assert await connection.exchange(b"x") == b"x"
        with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1:.*in use"):
            await AsyncGrpcServer(server.address, METHOD, echo.Session, echo.Responder).start()
        await server.stop()

    run(main())
    assert "attempt 1 of 50 failed" in log.text


def test_a_unix_socket(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def main() -> None:
        async with serving(f"unix:{path}") as server, await dial(server) as connection:
            assert await connection.exchange(b"x") == b"x"

    run(main())
    assert not path.exists()


def test_a_server_that_is_lost(run: Run) -> None:
    import subprocess

    program = (
        "import asyncio, importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('e', {str(Path(echo.__file__))!r})\n"
        "e = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(e)\n"
        "from rlwire.transports.grpc_asyncio_server import AsyncGrpcServer\n"
        "async def main():\n"
        "    server = AsyncGrpcServer('127.0.0.1:0', e.METHOD, e.Session, e.Responder)\n"
        "    print((await server.start()).address, flush=True)\n"
        "    await server.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()

        async def main() -> None:
            connection, idle = await dial(address), await dial(address)
            await connection.exchange(b"x")
            await idle.exchange(b"x")
            asyncio.get_running_loop().call_later(0.2, process.kill)
            begun = time.monotonic()
            with pytest.raises(ConnectionClosed, match=f"{address} is lost: UNAVAILABLE"):
                await connection.exchange(b"future never")
            assert time.monotonic() - begun < 2
            with pytest.raises(ConnectionClosed, match="is lost: UNAVAILABLE"):
                await idle.exchange(b"x")
            with pytest.raises(ConnectionClosed, match="is lost: UNAVAILABLE"):
                await idle.receive()

        run(main())


def test_stopping(run: Run, log: Any) -> None:
    async def main() -> None:
        server = await AsyncGrpcServer("127.0.0.1:0", METHOD, echo.Session, echo.Responder).start()
        with pytest.raises(RuntimeError, match="starts once"):
            await server.start()
        idle, busy = await dial(server), await dial(server)
        await idle.exchange(b"x")
        await busy.exchange(b"x")
        await busy.send(b"future never")
        await eventually(lambda: any(made.future for made in echo.Responder.all))
        stopping = asyncio.create_task(server.stop(grace=60))
        with pytest.raises(ConnectionClosed, match="UNAVAILABLE: the server is stopping"):
            await idle.receive()
        assert not stopping.done()
        next(made.future for made in echo.Responder.all if made.future).set_result(b"later")
        assert await busy.receive() == b"later"
        with pytest.raises(ConnectionClosed):
            await busy.receive()
        await stopping
        await server.stop()
        await server.wait()
        assert server.connections == 0
        # One that has an answer under way for ever.
        async with serving() as server:
            connection = await dial(server)
            await connection.send(b"future never")
            await eventually(
                lambda: any(r.future and not r.future.done() for r in echo.Responder.all)
            )
            begun = time.monotonic()
            await server.stop(grace=0.6)
            assert 0.25 < time.monotonic() - begun < 10
            with pytest.raises(ConnectionClosed):
                await connection.receive()
        # One that never started.
        await AsyncGrpcServer("127.0.0.1:0", METHOD, echo.Session, echo.Responder).stop()

    run(main())
    assert "left behind" not in log.text


def test_a_session_that_cannot_be_made(run: Run, log: Any) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no session today")

    async def main() -> None:
        for parts in ({"session": fail}, {"responder": fail}):
            async with serving(**parts) as server:
                with pytest.raises(ConnectionClosed, match="INTERNAL: the server failed"):
                    await (await dial(server)).exchange(b"x")
                assert server.connections == 0

    run(main())
    assert "no session today" in log.text


def test_tls(run: Run, tmp_path: Path) -> None:
    ca = trustme.CA()
    names = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "client", "other")}
    ca.cert_pem.write_to_path(names["ca"])
    trustme.CA().cert_pem.write_to_path(names["other"])
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(names["server"])
    ca.issue_cert("a@b.c").private_key_and_cert_chain_pem.write_to_path(names["client"])

    async def main() -> None:
        async with serving(tls=ServerTLS(names["server"], client_ca=names["ca"])) as server:
            tls = ClientTLS(names["ca"], names["client"])
            async with await dial(server, tls=tls) as connection:
                body = echo.noise(1_000_000)
                assert await connection.exchange(body) == body
            with pytest.raises(ssl.SSLCertVerificationError, match="cannot connect to 127"):
                await dial(server, tls=ClientTLS(names["other"], names["client"]))

    run(main())


def test_many_clients(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:

            async def talk(number: int) -> None:
                async with await dial(server) as connection:
                    for turn in range(20):
                        body = b"%d %d" % (number, turn) * (1 + turn * 37)
                        assert await connection.exchange(body) == body

            await asyncio.gather(*(talk(number) for number in range(30)))
            await eventually(lambda: server.connections == 0)

    run(main())


def test_an_unclosed_one_says_so(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            connection = await dial(server)
            stream = connection._stream
            with pytest.warns(ResourceWarning, match="unclosed <AsyncGrpcConnection to 127"):
                connection.__del__()
            await stream.close()
            connection._closed = True

    run(main())


def test_the_loop_is_not_held_up(run: Run) -> None:
    # A responder on the loop may take a lock that a thread holds: it answers then with a future.

    async def main() -> None:
        async with serving() as server:
            connections = [await dial(server) for _ in range(10)]
            begun = time.monotonic()
            replies = await asyncio.gather(*(c.exchange(b"future 0.3") for c in connections))
            assert replies == [b"later"] * 10
            assert time.monotonic() - begun < 2.9  # one after the other takes 3
            for connection in connections:
                await connection.close()

    run(main())

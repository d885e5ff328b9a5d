"""`RLXPageServer`: agents for environments written in JavaScript, as JSON over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rlwire.errors import EncodeError, LimitExceeded, RlwireError, for_peer
from rlwire.limits import DEFAULT, Limits
from rlwire.registry import URL, client_tls, parse_url
from rlwire.rlx.client import AgentProxy
from rlwire.rlx.hosting import AgentHandler, resolve_agent
from rlwire.rlx.metrics import LoggingMetrics, Metrics
from rlwire.rlx.options import PAGE_OPTIONS as OPTIONS
from rlwire.rlx.server import _AgentService
from rlwire.serving.fronts import SERVED, check_no_environment
from rlwire.serving.serving import StreamOptions, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.rlx import PageRules
from rlwire.sessions.rlx.page import Arrays, PageCommand, PageReply, PageSession, Sid, arrays_of
from rlwire.transports.address import AddressLike
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientSide

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["OPTIONS", "RLXPageServer", "server"]

logger = logging.getLogger(__name__)

_TEXT = 1000  # characters of an error's text that a page is told
_MESSAGE = 4 * 2**20  # bytes of a text, unless limits are given
_WAITING = 16  # times max_message: bytes of one page's commands that wait for their replies


class RLXPageServer(StreamServer):
    """A WebSocket server of agents for pages; `rlwire.web` has a client for these.

    ::

        with RLXPageServer(MyAgent, "localhost:9000", origins=["http://localhost:8000"]):
            ...
        RLXPageServer("rlx://localhost:7001").serve_forever()     # until SIGINT or SIGTERM

    Each environment of a page, named by its ``sid``, gets an agent of its own.

    Args:
        agent: as of `Server`; or the URL of an RLX server, whose agents then play. That server
            need not run before a page asks for an agent.
        address: as of `Server`, and so are `parameter_server` and `metrics`.
        workers: ``"threads"``, a thread for each agent; or ``"asyncio"``, all of them on the event
            loop, for agents that answer at once.
        limits: maxima for texts.
        origins: the pages that may connect, such as ``"http://localhost:8000"``; ``"*"`` for
            all; ``"null"`` for pages from files, which keeps out as little as ``"*"``, because any
            site can give a page that origin by a sandboxed frame. By default no browser's page
            may, because any page could reach a server on its reader's own machine. Programs other
            than browsers need not be named.
        check: called with each handshake's request, for permissions; see
            `rlwire.sessions.websocket.basic_authorization`.
        arrays: what the lists of numbers in a state become: ``"lists"``, as with RELAAX's proxy,
            or arrays of ``"float32"`` or ``"float64"``, which agents handle much faster.
        max_sids: environments of one WebSocket; further ones are answered with an error.
        max_pending: commands of one environment that may wait for their replies; the server does
            not read from a page with more.
        max_message: bytes of one text from a page; by default `limits.received`, or 4 MiB without
            `limits`: an Atari stack needs a quarter of one. As Python objects a text can take 20
            times as much.
        ping_interval: seconds of silence after which the server sends a ping, which browsers
            answer by themselves. None for never.
        ping_timeout: seconds to wait for the pong.
        rlx_timeout: of connections to the RLX server that `agent` names.
        rlx_tls: an SSL context for that server.
        options: `rlwire.serving.serving.StreamOptions`.

    Raises:
        ValueError: an argument is invalid.
    """

    scheme = "rlx-ws"
    guards: ClassVar[str] = "TLS or a check"
    handlers: ClassVar[str] = "a page's handler"

    def __init__(
        self,
        agent: Any,
        address: AddressLike = "localhost:9000",
        *,
        workers: Literal["threads", "asyncio"] = "threads",
        limits: Limits | None = None,
        parameter_server: Any = None,
        metrics: Metrics | None = None,
        origins: Collection[str] = (),
        check: websocket.Check | None = None,
        arrays: Arrays = "lists",
        max_sids: int = 256,
        max_pending: int = 16,
        max_message: int | None = None,
        ping_interval: float | None = 30.0,
        ping_timeout: float | None = 30.0,
        rlx_timeout: Timeouts | None = None,
        rlx_tls: ClientSide = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        for name, chosen, known in (
            ("arrays", arrays, ("lists", "float32", "float64")),
            ("workers", workers, ("threads", "asyncio")),
        ):
            if chosen not in known:
                raise ValueError(f"{name} must be one of {known}, not {chosen!r}")
        for name, value in (("max_sids", max_sids), ("max_pending", max_pending)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        if max_message is None:
            max_message = _MESSAGE if limits is None else limits.received
        self._remote_url = ""
        if isinstance(agent, URL) or (isinstance(agent, str) and "://" in agent):
            url = parse_url(agent)
            self._remote_url = f", agents of {url}"
            workers = "threads"
            agent = _remote_agents(url, client_tls(url, rlx_tls), rlx_timeout, limits or DEFAULT)
        resolve_agent(agent)
        self._pages = _PageService(
            agent,
            parameter_server,
            LoggingMetrics() if metrics is None else metrics,
            {
                "kind": "text",
                "origins": origins,
                "check": check,
                "limits": dataclasses.replace(limits or DEFAULT, received=max_message),
                "ping_interval": ping_interval,
                "ping_timeout": ping_timeout,
            },
            arrays=arrays,
            threads=workers == "threads",
            max_sids=max_sids,
            max_pending=max_pending,
            max_waiting=_WAITING * max_message,
        )
        self._pages.session()  # raises here, not in a log
        PageSession()  # or if msgspec is not installed
        super().__init__(address, self._pages, **options)
        self._guarded = self._guarded or check is not None

    def check(self) -> None:
        """Make an agent, which is the first environment's; of an RLX server, none."""
        if not self._remote_url:
            self._pages.prepare()

    def _details(self) -> str:
        return f"for pages{self._remote_url}"


@dataclass
class _PageService(_AgentService):
    """Makes the session and the handler of each page."""

    arrays: Arrays = "lists"
    threads: bool = True
    max_sids: int = 0
    max_pending: int = 0
    max_waiting: int = 0

    def session(self) -> websocket.WebSocketServerSession:  # type: ignore[override]
        texts = self.session_options["limits"]
        return websocket.WebSocketServerSession(
            lambda request: PageSession(texts), **self.session_options
        )

    async def converse(self, connection: AsyncConnection) -> None:
        await _PageHandler(connection, self).serve()


class _PageHandler:
    """One WebSocket and the agents of its environments."""

    def __init__(self, connection: AsyncConnection, service: _PageService) -> None:
        self.connection = connection
        self.service = service
        self.waiting = 0  # bytes of the commands that have no reply yet
        self._agents: dict[Sid, _PageAgent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._replied = asyncio.Event()

    async def serve(self) -> None:
        """Accept commands until the page is gone, then end all its agents."""
        connection, stopping = self.connection, False
        logger.debug("%s: a page has connected", connection.peer)
        try:
            while True:
                await self._accept(await connection.receive())
        except RlwireError as error:
            # If this side stops, the commands under way are still answered.
            stopping = not (connection.closed or connection.core.broken)
            logger.debug("%s: the page is gone: %s", connection.peer, error)
        finally:
            for agent in list(self._agents.values()):
                agent.finish() if stopping else agent.disconnect()
            await asyncio.gather(*self._tasks, return_exceptions=True)  # a cancellation's too

    async def _accept(self, command: PageCommand) -> None:
        sid, message, size = command
        service, agent, name = self.service, self._agents.get(sid), message.get("command")
        # The second form is what RELAAX's client sends for a sid that it does not know.
        if name == "disconnect" or (not name and message.get("message") == "disconnect"):
            if agent is not None:
                agent.disconnect()
            return
        if agent is None:
            try:
                PageRules().check(dict(message))
                if len(self._tasks) >= service.max_sids:
                    raise LimitExceeded("max_sids", service.max_sids, len(self._tasks) + 1)
            except RlwireError as error:
                await self.send(sid, _error(error))
                return
            agent = self._agents[sid] = _PageAgent(self, sid)
            task = asyncio.get_running_loop().create_task(agent.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        agent.put(command)
        self.waiting += size
        while not agent.over and (
            agent.commands.qsize() > service.max_pending or self.waiting > service.max_waiting
        ):
            self._replied.clear()
            await self._replied.wait()

    def release(self, size: int) -> None:
        """Note that commands of so many bytes wait no more."""
        self.waiting -= size
        self._replied.set()

    def forget(self, agent: _PageAgent) -> None:
        """Let the sid be used for another agent."""
        if self._agents.get(agent.sid) is agent:
            del self._agents[agent.sid]

    async def send(
        self, sid: Sid, message: dict[str, Any], agent: _PageAgent | None = None
    ) -> None:
        """Send a reply, or an error if JSON cannot express it; nothing if the agent is over."""
        async with self._sending:
            if agent is not None and agent.over:
                return
            try:
                await self.connection.send(PageReply(sid, message))
            except (EncodeError, LimitExceeded) as error:
                reply = _error(error, "the reply cannot be sent: ")
                await self.connection.send(PageReply(sid, reply))


class _PageAgent:
    """One environment of a page: its commands, which are answered in order, and its agent."""

    def __init__(self, page: _PageHandler, sid: Sid) -> None:
        service = page.service
        self.sid = sid
        self.commands: asyncio.Queue[PageCommand | None] = asyncio.Queue()
        self._page = page
        self._size = 0  # bytes of its commands that wait
        self.over = self._failed = False
        self._loop = asyncio.get_running_loop()
        self._rules = PageRules()
        assert service.factory is not None
        name = f"{page.connection.peer}, sid {sid!r}"
        self._host = AgentHandler(service.factory, name, self._fail)
        self._thread = _AgentThread(name) if service.threads else None
        self._answer: asyncio.Future[Any] | None = None

    def put(self, command: PageCommand) -> None:
        """Add a command."""
        self._size += command.size
        self.commands.put_nowait(command)

    def finish(self) -> None:
        """End after the commands that wait."""
        self.commands.put_nowait(None)

    def disconnect(self) -> None:
        """End without another reply; the sid can be used again at once."""
        self.over = True
        self._page.forget(self)
        self.finish()
        if self._answer is not None:
            self._answer.cancel()

    async def run(self) -> None:
        """Answer commands until the end."""
        try:
            while not self.over and (command := await self.commands.get()) is not None:
                reply = await self._reply_to(command.message)
                if reply is not None:
                    await self._page.send(self.sid, reply, self)
                self._size -= command.size
                self._page.release(command.size)
                if self._failed and self.commands.empty():
                    return
        except RlwireError as error:
            logger.debug("%s: sid %r: no reply: %s", self._page.connection.peer, self.sid, error)
        finally:
            self.over = True
            self._page.forget(self)
            self._page.release(self._size)
            closed = self._call(self._host.close)
            if self._thread is not None:
                self._thread.close()
        await closed  # not when cancelled: the agent may be stuck

    async def _reply_to(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the reply to a command; None if the environment has ended meanwhile."""
        arrays = self._page.service.arrays
        try:
            self._rules.check(message)
            if arrays != "lists" and "state" in message:
                message["state"] = arrays_of(message["state"], arrays)
        except RlwireError as error:
            return _error(error)
        self._failed = False
        self._answer = self._call(self._host.answer, message)
        try:
            reply: dict[str, Any] = await self._answer
        except asyncio.CancelledError:
            if self.over:
                return None  # disconnected
            raise
        finally:
            self._answer = None
        self._rules.replied(reply)
        return reply

    def _call(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._thread is not None:
            self._thread.call(future, function, *arguments)
            return future
        result = function(*arguments)
        if isinstance(result, DeferredReply):
            result.add_done_callback(lambda late: _resolve(future, late.result()))
        else:
            future.set_result(result)
        return future

    def _fail(self) -> None:
        """Note that the agent could not be made: the sid is free after the reply."""
        self._failed = True


class _AgentThread:
    """A thread that calls one agent; it dies with the program, however long the agent takes."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"rlwire {name}", daemon=True).start()

    def call(self, future: asyncio.Future[Any], function: Callable[..., Any], *args: Any) -> None:
        """Have the thread call a function, and set the future on its loop."""
        loop = future.get_loop()

        def call() -> None:
            result = function(*args)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, future, result)

        self._calls.put(call)

    def close(self) -> None:
        """End the thread after its calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


class _RemoteAgent(AgentProxy):
    """An agent of an RLX server, as an agent of this one."""

    def init(self, exploit: bool = False) -> Any:
        if self._connection is None:  # lost
            self.connect(retry=1)
        return super().init(exploit)

    def close(self) -> None:
        self.disconnect()


def _remote_agents(
    url: URL, tls: ClientSide, timeout: Timeouts | float | None, limits: Limits
) -> Callable[[Any], _RemoteAgent]:
    if url.scheme != "rlx":
        raise ValueError(f"pages reach an RLX server, by its URL rlx://host:port, not {url}")

    def make(parameter_server: Any) -> _RemoteAgent:
        agent = _RemoteAgent(url.address, tls=tls, timeout=timeout, limits=limits)
        agent.connect(retry=1)
        return agent

    return make


def _error(error: RlwireError, prefix: str = "") -> dict[str, Any]:
    text = (prefix + for_peer(error, "the server"))[:_TEXT]
    return {"response": "error", "message": text.encode("utf-8", "backslashreplace").decode()}


def server(agent: Any, url: URL, **options: Any) -> RLXPageServer:
    """Return a server for pages, not started; what the front door calls."""
    name = agent if isinstance(agent, str) else ""
    if "://" not in name:
        if name.partition(":")[0] in SERVED:
            raise ValueError(f"serve {name} at rlx://host:port, and that URL at {url}")
        check_no_environment(agent, url)
    return RLXPageServer(agent, url.address, **options)

"""`RLXPageServer`: serves agents to JavaScript environments, as JSON over WebSocket."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from rlwire._options import with_options
from rlwire.errors import EncodeError, LimitExceeded, RlwireError, for_peer
from rlwire.limits import DEFAULT
from rlwire.registry import LEARNERS
from rlwire.rlx.client import AgentProxy
from rlwire.rlx.hosting import AgentHandler, resolve_agent
from rlwire.rlx.metrics import sink_of
from rlwire.rlx.options import PAGE_OPTIONS as OPTIONS
from rlwire.rlx.options import RLXPageOptions
from rlwire.rlx.server import _AgentService
from rlwire.serving.fronts import check_no_environment
from rlwire.serving.serving import AnyConnection, StreamServer
from rlwire.serving.threads import run_in_thread, run_on_loop
from rlwire.sessions import websocket
from rlwire.sessions.rlx import RLXServerSession
from rlwire.sessions.rlx.session import Arrays, PageCommand, PageSession, Sid, arrays_of
from rlwire.sessions.stack import Stack
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.deferred import DeferredReply
from rlwire.urls import URL, client_tls, is_url, parse_url

__all__ = ["OPTIONS", "RLXPageServer", "server"]

logger = logging.getLogger(__name__)

dissector = "rlwire.rlx.dissector:RLXPageDissector"

_ERROR_TEXT = 1000  # characters of an error reply
_LIMITS = dataclasses.replace(DEFAULT, received=4 * 2**20)  # an 84x84x4 state is a quarter of that
_PENDING = 64 * 2**20  # bytes of a page's unanswered commands; beyond, reading pauses
_COMMAND = 4096  # bytes added to the size of each pending command
_PINGS = {"ping_interval": 30.0, "ping_timeout": 30.0}  # browsers reply without a script


class RLXPageServer(StreamServer):
    """Serves agents to web pages over WebSocket; `rlwire.web` has a JavaScript client.

    Each environment of a page, identified by its ``sid``, has its own agent and thread.

    The agent is one as for `Server`, or the URL of an RLX server to forward to, which need not be
    running yet. By default no page may connect (`origins`). ``"null"``, the origin of pages from
    files, does not protect: any site can have it. Clients other than browsers send no origin and
    are accepted.
    """

    scheme = "rlx-ws"
    guards = "TLS or a check"

    @with_options(RLXPageOptions)
    def __init__(self, agent: Any, options: RLXPageOptions) -> None:
        limits = options.limits or _LIMITS
        self._remote = ""
        if is_url(agent):
            url = parse_url(agent)
            if url.scheme != "rlx":
                raise ValueError(
                    f"expected the URL of an RLX server, rlx://host:port, not {url.shown}"
                )
            self._remote = f", agents of {url}"
            proxy = {"tls": client_tls(url, options.rlx_tls), "limits": limits}
            agent = partial(_RemoteAgent, url, proxy)
        resolve_agent(agent)
        socket = {"kind": "text", "origins": options.origins, "check": options.check, **_PINGS}
        self._pages = _PageService(
            agent,
            options.parameter_server,
            sink_of(options.metrics),
            {"limits": limits, **socket},
            arrays=options.arrays,
            max_sids=options.max_sids,
        )
        self._pages.session()  # raises for invalid options, which would only be logged later
        super().__init__(self._pages, options)
        self._guarded = self._guarded or options.check is not None

    def check(self) -> None:
        if not self._remote:
            self._pages.check()

    def _details(self) -> str:
        return f"for pages{self._remote}"


@dataclass
class _PageService(_AgentService):
    arrays: Arrays = "lists"
    max_sids: int = 256

    def session(self) -> Stack:
        outer = websocket.WebSocketServerSession(**self.session_options)
        return Stack(outer, PageSession(self.session_options["limits"]))

    async def converse(self, connection: AnyConnection) -> None:
        assert isinstance(connection, AsyncConnection)  # a page has many agents: it needs a loop
        await _PageHandler(connection, self).serve()


class _PageHandler:
    """Answers one page on the event loop, with an agent for each sid."""

    def __init__(self, connection: AsyncConnection, service: _PageService) -> None:
        self.connection = connection
        self.service = service
        self.loop = asyncio.get_running_loop()
        self._agents: dict[Sid, _PageAgent] = {}
        self._threads = 0
        self._pending = 0  # bytes of commands without a reply
        self._changed = asyncio.Event()  # set when `_threads` or `_pending` decreases
        self._sending = asyncio.Lock()

    async def serve(self) -> None:
        connection, stopping = self.connection, False
        logger.debug("%s: page connected", connection.peer)
        try:
            while True:
                await self._accept(await connection.receive())
        except RlwireError as error:
            # If the server stops, it still answers pending commands.
            stopping = not (connection.closed or connection.core.broken)
            logger.debug("%s: page disconnected: %s", connection.peer, error)
        finally:
            for agent in self._agents.values():
                agent.finish(not stopping)
        while self._threads:
            await self._change()

    async def _accept(self, command: PageCommand) -> None:
        sid, message, size = command
        agent = self._agents.get(sid)
        # RELAAX's client sends the second form for a sid that it does not know.
        if message.get("command", message.get("message")) == "disconnect":
            if agent is not None:
                del self._agents[sid]
                agent.finish(True)
            return
        if agent is None:
            if self._threads >= self.service.max_sids:
                error = LimitExceeded("max_sids", self.service.max_sids, self._threads + 1)
                await self._send(sid, _error(error))
                return
            agent = self._agents[sid] = _PageAgent(self, sid)
            self._threads += 1
        agent.commands.put(command)
        self._pending += size + _COMMAND
        while self._pending > _PENDING:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def reply(self, agent: _PageAgent, command: PageCommand, reply: dict[str, Any]) -> None:
        """Send the reply to a command, unless its agent is disconnected."""
        try:
            await self._send(agent.sid, reply, agent)
        except RlwireError as error:  # the connection is closed
            logger.debug("%s: no reply: %s", agent.name, error)
        finally:
            self._pending -= command.size + _COMMAND
            self._changed.set()

    async def _send(self, sid: Sid, reply: dict[str, Any], agent: _PageAgent | None = None) -> None:
        async with self._sending:
            if agent is not None and agent.over:
                return
            try:
                await self.connection.send({"sid": sid, **reply})
            except (EncodeError, LimitExceeded) as error:
                reply = _error(error, "the reply cannot be sent: ")
                await self.connection.send({"sid": sid, **reply})

    def ended(self) -> None:
        self._threads -= 1
        self._changed.set()


class _PageAgent:
    """One environment's agent, with a thread that answers its commands in order."""

    def __init__(self, page: _PageHandler, sid: Sid) -> None:
        self.sid = sid
        self.name = f"{page.connection.peer}, sid {sid!r}"
        self.commands: SimpleQueue[PageCommand | None] = SimpleQueue()
        self.over = False  # disconnected: no further command is answered
        self._page = page
        assert page.service.factory is not None
        self._handler = AgentHandler(page.service.factory, self.name)
        self._rules = RLXServerSession()  # of which the codec is not used
        run_in_thread(f"rlwire {self.name}", self._run)

    def finish(self, over: bool) -> None:
        """End the thread after the queued commands, or after the current one if `over`."""
        self.over = over
        self.commands.put(None)

    def _run(self) -> None:
        page = self._page
        try:
            while (command := self.commands.get()) is not None:
                reply = {} if self.over else self._answer(command.message)
                run_on_loop(page.reply(self, command, reply), page.loop)
        except (RuntimeError, concurrent.futures.CancelledError):
            logger.debug("%s: the server has stopped", self.name)
        finally:
            self._handler.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                page.loop.call_soon_threadsafe(page.ended)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        arrays = self._page.service.arrays
        try:
            if arrays != "lists" and "state" in message:
                message["state"] = arrays_of(message["state"], arrays)
            self._rules.check(message)  # last: a command that it accepts needs a reply
        except RlwireError as error:
            return _error(error)
        reply = self._handler.answer(message)
        if isinstance(reply, DeferredReply):
            reply.wait()
            reply = reply.result()
        self._rules.replied(reply["response"])
        return reply


class _RemoteAgent(AgentProxy):
    def __init__(self, url: URL, options: dict[str, Any], parameter_server: Any) -> None:
        super().__init__(url, **options)
        self.connect(retry=1)

    def init(self, exploit: bool = False) -> Any:
        if self._connection is None:  # lost
            self.connect(retry=1)
        return super().init(exploit)

    def close(self) -> None:
        self.disconnect()


def _error(error: RlwireError, prefix: str = "") -> dict[str, Any]:
    text = (prefix + for_peer(error, "the server"))[:_ERROR_TEXT]
    return {"response": "error", "message": text.encode("utf-8", "backslashreplace").decode()}


def server(agent: Any, url: URL, **options: Any) -> RLXPageServer:
    name = agent if isinstance(agent, str) else ""
    if "://" not in name:
        if name.partition(":")[0] in LEARNERS:
            raise ValueError(f"serve {name} at rlx://host:port, then serve that URL at {url}")
        check_no_environment(agent, url)
    return RLXPageServer(agent, url, **options)

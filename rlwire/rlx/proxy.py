"""`RLXProxy`: lets environments written in JavaScript reach an RLX server.

A page speaks JSON over a WebSocket, for any number of environments at once; each environment, told
by its ``sid``, gets an RLX connection of its own. Not here: the texts
(`rlwire.rlx.proxy_json`), what may be said when (`rlwire.sessions.rlx` and
`rlwire.sessions.websocket`), sockets (`rlwire.transports`).

RELAAX's own proxy says nothing when the RLX server is not there or hangs up, and takes what a page
sends without a limit. Here each command is answered, and what waits is bounded.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.rlx.proxy_json import (
    Arrays,
    Conversation,
    Reply,
    Request,
    Sid,
    arrays_of,
    floats_of_large,
)
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions import rlx, websocket
from rlwire.sessions.rlx import TRANSITIONS, State
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp_asyncio import AsyncConnection, connect

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

_TEXT = 1000  # characters of an error's text that a page is told
_MESSAGE = 4 * 2**20  # bytes of a text, unless limits are given
_WAITING = 16  # times max_message: what one page's commands may take while they wait


@dataclass
class ProxyStatistics:
    """What an `RLXProxy` has done since it was made.

    Attributes:
        pages: WebSockets that are open now.
        environments: sids that are connected now, or about to be.
        commands: that pages have sent, ``disconnect`` not counted.
        replies: that pages have been sent, errors included.
        errors: of these, the proxy's own: it could not reach the server, or refused a command.
    """

    pages: int = 0
    environments: int = 0
    commands: int = 0
    replies: int = 0
    errors: int = 0


class RLXProxy(StreamServer):
    """A WebSocket server in front of an RLX server, rlwire's or RELAAX's own.

    ::

        with RLXProxy("localhost:7001", "localhost:9000", origins=["http://localhost:8000"]):
            ...
        RLXProxy("localhost:7001").serve_forever()                # until SIGINT or SIGTERM

    `rlwire.web` has a client for pages.

    Args:
        rlx_address: of the RLX server. It need not be there before a page asks for an agent.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        limits: maxima for RLX messages and for texts.
        origins: the pages that may connect, such as ``"http://localhost:8000"``; ``"*"`` for
            all; ``"null"`` for pages from files, which keeps out as little as ``"*"``, because any
            site can give a page that origin by a sandboxed frame. By default no browser's page
            may, since any page could reach a server on its reader's own machine. Programs that are
            no browsers need not be named.
        check: called with each handshake's request, for permissions; see
            `rlwire.sessions.websocket.basic_authorization`.
        arrays: what the lists of numbers in a state become: ``"lists"``, as with RELAAX's own
            proxy, or arrays of ``"float32"`` or ``"float64"``, which agents take in much faster.
        max_sids: environments of one WebSocket; further ones are answered with an error.
        max_pending: commands of one environment that wait for their answers; with a further one
            the environment ends, and each of them is answered with an error.
        max_message: bytes of one text from a page; by default what `limits` says is received, or
            4 MiB where there are none: an Atari stack takes a quarter of one. As Python objects a
            text can take 20 times as much.
        ping_interval: seconds of silence after which a page is asked whether it is still there;
            browsers answer by themselves. None for never.
        ping_timeout: seconds that it has to answer.
        rlx_timeouts: of RLX connections; its `idle` is how long an agent may take to answer, and
            at most twice that long.
        rlx_tls: an SSL context for an RLX server with TLS.
        options: `rlwire.serving.serving.StreamOptions`, of WebSockets.

    Raises:
        ValueError: an argument makes no sense.
    """

    scheme = "rlx-ws"
    guards: ClassVar[str] = "TLS or a check"
    handlers: ClassVar[str] = "a page's conversation"

    def __init__(
        self,
        rlx_address: AddressLike,
        address: AddressLike = "localhost:9000",
        *,
        limits: Limits | None = None,
        origins: Collection[str] = (),
        check: websocket.Check | None = None,
        arrays: Arrays = "lists",
        max_sids: int = 256,
        max_pending: int = 16,
        max_message: int | None = None,
        ping_interval: float | None = 30.0,
        ping_timeout: float | None = 30.0,
        rlx_timeouts: Timeouts | None = None,
        rlx_tls: ssl.SSLContext | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        if arrays not in get_args(Arrays):
            raise ValueError(f"arrays must be one of {get_args(Arrays)}, not {arrays!r}")
        for name, value in (("max_sids", max_sids), ("max_pending", max_pending)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        if max_message is None:
            max_message = _MESSAGE if limits is None else limits.received
        limits = limits or DEFAULT
        self._proxy = _Service(
            session_options={
                "kind": "text",
                "origins": origins,
                "check": check,
                "limits": dataclasses.replace(limits, received=max_message),
                "ping_interval": ping_interval,
                "ping_timeout": ping_timeout,
            },
            rlx_address=parse(rlx_address),
            rlx_timeouts=rlx_timeouts or Timeouts(),
            rlx_tls=rlx_tls,
            limits=limits,
            arrays=arrays,
            max_sids=max_sids,
            max_pending=max_pending,
            max_waiting=_WAITING * max_message,
        )
        self._proxy.session()  # raises here, not in a log, what makes no sense
        Conversation()  # or what is not installed
        super().__init__(address, self._proxy, **options)
        self._guarded = self._guarded or check is not None

    def statistics(self) -> ProxyStatistics:
        """What it has done so far; from any thread."""
        return dataclasses.replace(self._proxy.counts)

    def _details(self) -> str:
        return f"in front of {self._proxy.rlx_address}"

    def _after_stop(self) -> None:
        super()._after_stop()
        counts = self._proxy.counts
        logger.info(
            "%d commands, %d replies, %d errors", counts.commands, counts.replies, counts.errors
        )


@dataclass
class _Service(Service):
    """What all pages of a proxy share."""

    session_options: dict[str, Any]
    rlx_address: Address
    rlx_timeouts: Timeouts
    rlx_tls: ssl.SSLContext | None
    limits: Limits
    arrays: Arrays
    max_sids: int
    max_pending: int
    max_waiting: int
    counts: ProxyStatistics = field(default_factory=ProxyStatistics)
    log: SeldomLog = field(default_factory=lambda: SeldomLog(logger))

    def session(self) -> websocket.WebSocketServerSession:
        texts = self.session_options["limits"]
        return websocket.WebSocketServerSession(
            lambda request: Conversation(texts), **self.session_options
        )

    async def converse(self, connection: AsyncConnection) -> None:
        await _Page(connection, self).serve()

    async def connect(self) -> AsyncConnection:
        return await connect(
            self.rlx_address,
            rlx.RLXClientSession(limits=self.limits),
            timeouts=self.rlx_timeouts,
            tls=self.rlx_tls,
        )

    def command(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return what the RLX server is told.

        Raises:
            EncodeError: a number does not fit into the arrays that are asked for.
        """
        name = message.get("command")
        if name == "update":
            # RELAAX's server wants all three; JSON.stringify leaves out what is undefined.
            message.setdefault("reward", None)
            message.setdefault("terminal", False)
            state = message.setdefault("state", None)
            if self.arrays != "lists":
                message["state"] = arrays_of(state, self.arrays)
        elif name == "init":
            message.setdefault("exploit", False)
        return message


class _Page:
    """One WebSocket and the environments that speak over it."""

    def __init__(self, connection: AsyncConnection, service: _Service) -> None:
        self.connection = connection
        self.service = service
        self.waiting = 0  # bytes of the commands that have no answer yet
        self._all_answered: asyncio.Future[None] | None = None  # while `serve` waits for it
        self._environments: dict[Sid, _Environment] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._speaking = asyncio.Lock()  # for whoever cannot send at once

    async def serve(self) -> None:
        """Take commands until the page is gone, then end all its environments."""
        connection, counts = self.connection, self.service.counts
        counts.pages += 1
        self.service.log.info("%s: a page has connected", connection.peer)
        try:
            while True:
                await self._take(await connection.receive())
        except ConnectionClosed as error:
            if not (connection.closed or connection.broken):
                # This side stops: what is under way may still be answered.
                self._all_answered = asyncio.get_running_loop().create_future()
                self.weigh(0)
                await self._all_answered
            self.service.log.info("%s: the page is gone: %s", connection.peer, error)
        finally:
            for environment in list(self._environments.values()):
                environment.disconnect()
            while self._tasks:
                await asyncio.wait(self._tasks)
            counts.pages -= 1

    async def _take(self, request: Request) -> None:
        sid, message, size = request
        environment = self._environments.get(sid)
        if environment is not None and environment.failed:
            # Its errors come before whatever is said in a new conversation.
            await environment.gone.wait()
            environment = None
        command = message.get("command")
        # The second form is what RELAAX's client sends for a sid that it does not know.
        if command == "disconnect" or (not command and message.get("message") == "disconnect"):
            if environment is not None:
                environment.disconnect()
            return
        self.service.counts.commands += 1
        if environment is None:
            if not (isinstance(command, str) and (State.NEW, command) in TRANSITIONS):
                await self._refuse(
                    sid, f"the first command of a sid is 'init', not {quoted(command)}"
                )
                return
            if len(self._tasks) >= self.service.max_sids:
                error = LimitExceeded("max_sids", self.service.max_sids, len(self._tasks) + 1)
                await self._refuse(sid, for_peer(error, "the proxy"))
                return
            environment = self._begin(sid)
        refused = environment.take(message, size)
        if refused is not None:
            await environment.say(refused)

    def _begin(self, sid: Sid) -> _Environment:
        environment = self._environments[sid] = _Environment(self, sid)
        task = asyncio.get_running_loop().create_task(environment.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return environment

    def weigh(self, size: int) -> None:
        """Note that a command of so many bytes waits, or, below 0, that it does no more."""
        self.waiting += size
        answered = self._all_answered
        if answered is not None and not self.waiting and not answered.done():
            answered.set_result(None)

    def forget(self, environment: _Environment) -> None:
        """Let the sid be used for something new."""
        if self._environments.get(environment.sid) is environment:
            del self._environments[environment.sid]

    async def say(self, environment: _Environment, message: dict[str, Any]) -> None:
        """Answer an environment's oldest command, unless the page does not want it any more."""
        if self._speaking.locked():
            await self._say_in_turn(environment, message)
            return
        if environment.over:
            return
        try:
            self.connection.post(Reply(environment.sid, message), backlog=0)
        except RlwireError:
            # The page does not read fast enough, or is gone, or this cannot be said.
            await self._say_in_turn(environment, message)
        else:
            environment.answered()
            self.service.counts.replies += 1

    async def _say_in_turn(self, environment: _Environment, message: dict[str, Any]) -> None:
        async with self._speaking:
            if not environment.over:
                await self._send(environment.sid, message)
            # Not before: as long as a command waits, the page's task asks nothing itself.
            if not environment.over:
                environment.answered()

    async def say_failed(self, environment: _Environment, text: str) -> None:
        """Answer all commands of an environment with an error."""
        async with self._speaking:
            while environment.commands and not environment.over:
                environment.answered()
                await self._send_error(environment.sid, text)

    async def _refuse(self, sid: Sid, text: str) -> None:
        self.service.log.debug("%s: sid %r: refused, %s", self.connection.peer, sid, text)
        async with self._speaking:
            await self._send_error(sid, text)

    async def _send(self, sid: Sid, message: dict[str, Any]) -> None:
        try:
            await self.connection.send(Reply(sid, message))
        except (EncodeError, LimitExceeded) as error:
            await self._send_error(
                sid, f"the server's answer cannot be passed on: {for_peer(error, 'the proxy')}"
            )
        except RlwireError as error:
            # The page is gone or going, which `serve` finds out.
            logger.debug("%s: sid %r: not answered: %s", self.connection.peer, sid, error)
        else:
            self.service.counts.replies += 1

    async def _send_error(self, sid: Sid, text: str) -> None:
        self.service.counts.errors += 1
        await self._send(sid, _error(text))


class _Environment:
    """One sid of a page: its RLX connection, and the commands that wait for an answer.

    The RLX server has been asked the oldest of `commands`. Its own task listens to the server all
    the time, and the page's task asks if nothing else waits: what comes on one connection is
    written to the other at once, and no task is woken up for it.

    It ends in one of two ways. `disconnect` is the page's wish, or the page is gone: nothing more
    is said. `fail` is all else: each command that waits, and none later, is answered with an error.
    """

    def __init__(self, page: _Page, sid: Sid) -> None:
        self.sid = sid
        self.commands: deque[tuple[dict[str, Any], int]] = deque()
        self.over = False
        self.gone = asyncio.Event()
        self._page = page
        self._service = page.service
        self._failure = ""
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[AsyncConnection] | None = None
        self._rlx: AsyncConnection | None = None
        self._asked_at = 0.0
        self._wanted: asyncio.Future[None] | None = None  # after the server has hung up

    @property
    def failed(self) -> bool:
        """Whether it is about to end because something went wrong."""
        return bool(self._failure)

    def take(self, message: dict[str, Any], size: int) -> dict[str, Any] | None:
        """Take a command of the page's; returns an answer if there is one already."""
        page, service, commands = self._page, self._service, self.commands
        commands.append((message, size))
        page.waiting += size
        if len(commands) > service.max_pending:
            error = LimitExceeded("max_pending", service.max_pending, len(commands))
            self.fail(for_peer(error, "the proxy"))
        elif page.waiting > service.max_waiting:
            self.fail(f"the commands that wait take {page.waiting} bytes, too many")
        elif len(commands) == 1 and self._rlx is not None:
            return self._ask(self._rlx)
        return None

    async def say(self, reply: dict[str, Any]) -> None:
        """Answer the oldest command, and go on with the next one."""
        await self._page.say(self, reply)
        while self.commands and self._rlx is not None:
            refused = self._ask(self._rlx)
            if refused is None:
                return
            await self._page.say(self, refused)

    def answered(self) -> None:
        """Note that the oldest command has its answer."""
        _, size = self.commands.popleft()
        self._page.weigh(-size)

    def disconnect(self) -> None:
        """End without another word."""
        self.over = True
        while self.commands:
            self.answered()
        self._page.forget(self)
        self._interrupt()

    def fail(self, text: str) -> None:
        """End, and tell the page why."""
        if not self._failure:
            self._failure = text
            self._service.log.warning(
                "%s: sid %r ends: %s", self._page.connection.peer, self.sid, text
            )
        self._interrupt()

    def _interrupt(self) -> None:
        if self._rlx is not None:
            self._rlx.close()
        if self._connecting is not None:
            self._connecting.cancel()
        self._want()

    def _want(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def run(self) -> None:
        """Serve it until its end."""
        counts = self._service.counts
        counts.environments += 1
        try:
            await self._connect()
            if self._rlx is not None:
                await self._listen(self._rlx)
        except Exception:
            self._service.log.exception("%s: sid %r failed", self._page.connection.peer, self.sid)
            self._failure = self._failure or "the proxy failed"
        try:
            await self._page.say_failed(self, self._failure)
        finally:
            self.disconnect()
            counts.environments -= 1
            self.gone.set()
            if self._rlx is not None:
                await self._rlx.wait_closed()

    async def _connect(self) -> None:
        self._connecting = self._loop.create_task(self._service.connect())
        try:
            self._rlx = await self._connecting
        except (RlwireError, OSError) as error:
            self.fail(f"the RLX server cannot be reached: {error}")
        except asyncio.CancelledError:
            if not (self.over or self._failure):
                raise
        finally:
            self._connecting = None
        if self.over or self._failure:
            self._interrupt()

    def _ask(self, connection: AsyncConnection) -> dict[str, Any] | None:
        """Send the oldest command; returns its answer if it cannot be sent."""
        try:
            command = self._service.command(self.commands[0][0])
            try:
                connection.post(command)
            except EncodeError:
                connection.post(floats_of_large(command))
        except ConnectionClosed:
            self._want()  # `_listen` knows why
        except (EncodeError, LimitExceeded, LocalProtocolError, RecursionError) as error:
            # Nothing was sent, all else is as before.
            self._service.counts.errors += 1
            return _error(for_peer(error, "the proxy"))
        self._asked_at = self._loop.time()
        return None

    async def _listen(self, connection: AsyncConnection) -> None:
        """Pass the server's replies on until one side ends."""
        session = cast(rlx.RLXClientSession, connection.session)
        if self.commands:
            refused = self._ask(connection)
            if refused is not None:
                await self.say(refused)
        while not (self.over or self._failure):
            try:
                reply = await connection.receive()
            except (RlwireError, OSError) as error:
                if not isinstance(error, RemoteProtocolError) or session.closed:
                    await self._not_answered(connection, error)
                    continue
                self._service.counts.errors += 1
                reply = _error(str(error))
            if self.over or self._failure:
                return
            await self.say(reply)
            if reply["response"] == "error" and session.state is State.NEW and not self.commands:
                # No agent was made, and rlwire's server hangs up: the next init begins anew.
                self.disconnect()

    async def _not_answered(self, connection: AsyncConnection, error: Exception) -> None:
        """Wait on if the server has not been asked for so long; or fail, if anybody minds."""
        if isinstance(error, DeadlineExceeded) and not connection.closed:
            patience = self._service.rlx_timeouts.idle or 0.0
            if not self.commands or self._loop.time() - self._asked_at < patience:
                return
        if not (self.over or self._failure or self.commands):
            connection.close()
            self._wanted = self._loop.create_future()
            await self._wanted
        if not (self.over or self._failure):
            self.fail(f"the connection to the RLX server is lost: {error}")


def _error(text: str) -> dict[str, Any]:
    shown = text[:_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")
    return {"response": "error", "message": shown}

"""The worlds of a dm_env_rpc server, who is joined to them, and the answers they give.

A server has one `Worlds`; each connection has a `Host`, which answers its requests. What a world
is, is the user's: a `World` and its `AgentEnvironment`. Nothing here touches a socket or knows
whether threads or an event loop carry the connections: an answer is a value, or a `Future` when
other connections must act before it is there.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from rlwire.codecs.dm_env_rpc.values import (
    AnyMessage,
    CreateWorldRequest,
    CreateWorldResponse,
    DestroyWorldRequest,
    DestroyWorldResponse,
    JoinWorldRequest,
    JoinWorldResponse,
    LeaveWorldRequest,
    LeaveWorldResponse,
    Request,
    ResetRequest,
    ResetResponse,
    ResetWorldRequest,
    Settings,
    Status,
    Step,
)
from rlwire.dm_env_rpc.protocols import (
    Extension,
    Refusal,
    World,
    WorldFactory,
    report,
)
from rlwire.dm_env_rpc.rooms import Answer, Member, Room
from rlwire.errors import on_error, quoted
from rlwire.sessions.dm_env_rpc.states import Code
from rlwire.transports.seldom_log import SeldomLog

logger = logging.getLogger(__name__)


class Worlds:
    """The worlds of one server; connections on any threads share it.

    Args:
        factory: makes worlds. None for a server with none but those that were added to it. If no
            world was added under the name ``""``, joining it gives a connection a world of its own,
            made without settings and gone when the connection leaves.
        max_worlds: how many worlds may exist at a time. Clients that end without destroying what
            they have created leave worlds behind, so that others may use them.
        keep_abandoned: False destroys a world once the connection that created it has ended and
            nobody is joined to it.
    """

    def __init__(
        self,
        factory: WorldFactory | None = None,
        *,
        max_worlds: int = 1000,
        keep_abandoned: bool = True,
    ) -> None:
        if max_worlds < 1:
            raise ValueError(f"max_worlds must be at least 1, not {max_worlds}")
        self.log = SeldomLog(logger)
        self._factory = factory
        self._max_worlds = max_worlds
        self._keep_abandoned = keep_abandoned
        self._lock = threading.Lock()
        self._rooms: dict[str, Room] = {}
        self._unnamed: dict[Room, None] = {}
        self._making = 0
        self._number = 0
        # A client that comes back after a restart must not find another's world by its old name.
        self._mark = secrets.token_hex(4)
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._rooms) + len(self._unnamed)

    @property
    def names(self) -> list[str]:
        """The names under which worlds can be joined."""
        with self._lock:
            return list(self._rooms)

    def add(self, world: World, name: str = "") -> None:
        """Let connections join `world`; it stays until it is destroyed.

        Raises:
            ValueError: a world has this name.
        """
        with self._lock:
            if name in self._rooms:
                raise ValueError(f"there is a world {name!r} already")
            self._rooms[name] = Room(name, world, fleeting=False, log=self.log)

    def create(self, settings: Settings) -> str:
        """Make a world and return its name, which no other has had.

        Raises:
            Refusal: there are too many, or the factory says so.
        """
        return self._create(settings, named=True).name

    def destroy(self, name: str) -> None:
        """Destroy a world that nobody is joined to.

        Raises:
            Refusal: there is none of this name, or agents are joined.
        """
        room = self._find(name)
        inside = room.shut(only_if_empty=True)
        if inside:
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f"{inside} {'agent is' if inside == 1 else 'agents are'} joined to {room}; "
                "they must leave it first",
            )
        self._remove(room)

    def close(self) -> None:
        """Destroy all worlds, with whoever is joined; what waits is answered, UNAVAILABLE."""
        with self._lock:
            self._closed = True
            rooms = [*self._rooms.values(), *self._unnamed]
        for room in rooms:
            try:
                room.shut(only_if_empty=False)
            except Refusal:  # another thread has been faster
                continue
            self._remove(room)

    def abandon(self, name: str) -> None:
        """Note that the connection that created this world has ended."""
        if self._keep_abandoned:
            return
        with self._lock:
            room = self._rooms.get(name)
        if room is not None:
            room.fleeting = True
            self._sweep(room)

    def _join(self, name: str, settings: Settings, peer: object) -> Member:
        with self._lock:
            room = self._rooms.get(name)
        if room is None:
            room = self._find(name) if name else self._create({}, named=False)
        with on_error(lambda: self._sweep(room)):
            return room.join(settings, peer)

    def _leave(self, member: Member) -> None:
        member.room.leave(member)
        self._sweep(member.room)

    def _find(self, name: str) -> Room:
        with self._lock:
            room = self._rooms.get(name)
        if room is None:
            raise Refusal(
                Code.NOT_FOUND,
                f"there is no world {quoted(name)}; create_world returns the name of a new one",
            )
        return room

    def _create(self, settings: Settings, named: bool) -> Room:
        if self._factory is None:
            raise Refusal(Code.UNIMPLEMENTED, "this server creates no worlds; join one it has")
        with self._lock:
            self._check_open()
            exist = len(self._rooms) + len(self._unnamed) + self._making
            if exist >= self._max_worlds:
                raise Refusal(
                    Code.RESOURCE_EXHAUSTED,
                    f"there are {exist} worlds, as many as this server allows; destroy one",
                )
            self._making += 1
        try:
            world = self._factory(settings)
        except BaseException:
            with self._lock:
                self._making -= 1
            raise
        with self._lock:
            self._making -= 1
            closed = self._closed
            room = Room(self._next_name() if named else "", world, fleeting=not named, log=self.log)
            if not closed and named:
                self._rooms[room.name] = room
            elif not closed:
                self._unnamed[room] = None
        if closed:
            room.close_world()
            self._check_open()
        return room

    def _next_name(self) -> str:
        while True:
            self._number += 1
            name = f"world-{self._mark}-{self._number}"
            if name not in self._rooms:
                return name

    def _check_open(self) -> None:
        if self._closed:
            raise Refusal(Code.UNAVAILABLE, "the server is closing")

    def _sweep(self, room: Room) -> None:
        """Destroy a world that is to vanish when nobody is joined, if nobody is."""
        if not room.fleeting:
            return
        try:
            inside = room.shut(only_if_empty=True)
        except Refusal:
            return
        if not inside:
            self._remove(room)

    def _remove(self, room: Room) -> None:
        with self._lock:
            self._unnamed.pop(room, None)
            if self._rooms.get(room.name) is room:
                del self._rooms[room.name]
        room.close_world()
        self.log.info("%s is destroyed", room)


class Host:
    """One connection's requests and the answers to them: the responder for a transport.

    `answer` is called for one request after the other, each when the answer before it is there.
    """

    __slots__ = (
        "_closed",
        "_created",
        "_extensions",
        "_handlers",
        "_member",
        "_name",
        "_peer",
        "_whole",
        "_worlds",
    )

    def __init__(
        self,
        worlds: Worlds,
        peer: object = "",
        extensions: Mapping[str, Extension] | None = None,
        whole: bool = False,
    ) -> None:
        self._worlds = worlds
        self._peer = peer
        self._whole = whole
        self._extensions = {
            url.rpartition("/")[2]: extension for url, extension in (extensions or {}).items()
        }
        self._handlers: dict[type, Callable[[Any], Answer]] = {
            CreateWorldRequest: self._create,
            JoinWorldRequest: self._join,
            ResetRequest: self._reset,
            ResetWorldRequest: self._reset_world,
            LeaveWorldRequest: self._leave,
            DestroyWorldRequest: self._destroy,
            AnyMessage: self._extend,
        }
        self._member: Member | None = None
        self._name: str | None = None
        self._created: list[str] = []
        self._closed = False

    @property
    def world(self) -> World | None:
        """The world that is joined."""
        return None if self._member is None else self._member.room.world

    def answer(self, event: Request | Step) -> Answer:
        """Carry out one request, as the session hands it over.

        Whatever a world raises, `SystemExit` and `KeyboardInterrupt` included, becomes a `Status`:
        a world must not be able to end the server or another's connection.
        """
        try:
            if type(event) is Step:
                member = self._member
                if member is None:
                    raise Refusal(Code.FAILED_PRECONDITION, "no world is joined; join_world first")
                return member.room.step(member, event)
            handler = self._handlers.get(type(event))
            if handler is None:
                raise Refusal(Code.UNIMPLEMENTED, "worlds do not know this request")
            return handler(event)
        except BaseException as error:
            return report(self._worlds.log, self._peer, _called(event), error)

    def failure(self, event: Request | Step, error: BaseException) -> Status:
        """Return what the peer is told instead of an answer that could not be sent.

        The peer's state is then as before the request: it has not joined, and has not begun a
        sequence. A step cannot be taken back; if it has ended the sequence, the next one says so.
        """
        member = self._member
        if member is not None and isinstance(event, (Step, ResetRequest)):
            member.room.undo(member)
        elif member is not None and isinstance(event, JoinWorldRequest):
            self._depart()
        return report(self._worlds.log, self._peer, _called(event), error)

    def close(self) -> None:
        """The connection has ended: leave the world."""
        self._closed = True
        self._depart()
        created, self._created = self._created, []
        for name in created:
            self._worlds.abandon(name)

    def _create(self, request: CreateWorldRequest) -> CreateWorldResponse:
        name = self._worlds.create(request.settings)
        self._worlds.log.info("%s: created world %r", self._peer, name)
        self._created.append(name)
        if self._closed:  # while the world was made
            self.close()
        return CreateWorldResponse(name)

    def _join(self, request: JoinWorldRequest) -> JoinWorldResponse:
        if self._member is not None:
            raise Refusal(
                Code.FAILED_PRECONDITION, f"already joined to {self._member.room}; leave it first"
            )
        member = self._worlds._join(request.world_name, request.settings, self._peer)
        if self._whole:
            with on_error(lambda: self._worlds._leave(member)):
                member.whole()
        self._worlds.log.info("%s: joined %s", self._peer, member.room)
        self._member, self._name = member, request.world_name
        if self._closed:
            self._depart()
        return JoinWorldResponse(member.specs)

    def _reset(self, request: ResetRequest) -> ResetResponse:
        member = self._member
        if member is None:
            raise Refusal(Code.FAILED_PRECONDITION, "no world is joined; join_world first")
        member.room.reset(member, request.settings)
        return ResetResponse(member.specs)

    def _reset_world(self, request: ResetWorldRequest) -> Answer:
        member = self._member
        if member is not None and request.world_name == self._name:
            room = member.room
        else:
            room = self._worlds._find(request.world_name)
        caller = member if member is not None and member.room is room else None
        answer = room.reset_world(request.settings, caller, self._peer)
        waits = " waits for its agents" if isinstance(answer, Future) else ""
        self._worlds.log.info("%s: reset of %s%s", self._peer, room, waits)
        return answer

    def _leave(self, request: LeaveWorldRequest) -> LeaveWorldResponse:
        self._depart()
        return LeaveWorldResponse()

    def _destroy(self, request: DestroyWorldRequest) -> DestroyWorldResponse:
        member = self._member
        if member is not None and request.world_name in (self._name, member.room.name):
            raise Refusal(
                Code.FAILED_PRECONDITION, f"this connection is joined to {member.room}; leave it"
            )
        self._worlds.destroy(request.world_name)
        self._worlds.log.info("%s: destroyed world %r", self._peer, request.world_name)
        return DestroyWorldResponse()

    def _extend(self, request: AnyMessage) -> AnyMessage:
        extension = self._extensions.get(request.type_url.rpartition("/")[2])
        if extension is None:
            known = ", ".join(sorted(self._extensions)) or "none"
            raise Refusal(
                Code.UNIMPLEMENTED, f"{quoted(request.type_url)} is not known here; known: {known}"
            )
        member = self._member
        if member is None:
            return extension(request, None)
        with member.room.turn:
            return extension(request, member.room.world)

    def _depart(self) -> None:
        member, self._member, self._name = self._member, None, None
        if member is not None:
            self._worlds._leave(member)
            self._worlds.log.info("%s: left %s", self._peer, member.room)


_NAMES: dict[type, str] = {
    Step: "step",
    CreateWorldRequest: "create_world",
    JoinWorldRequest: "join_world",
    ResetRequest: "reset",
    ResetWorldRequest: "reset_world",
    LeaveWorldRequest: "leave_world",
    DestroyWorldRequest: "destroy_world",
    AnyMessage: "extension",
}


def _called(event: object) -> str:
    return _NAMES.get(type(event), type(event).__name__)

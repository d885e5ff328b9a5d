"""A server's worlds by name, and what a connection's handler answers apart from shared steps."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlwire.codecs.dm_env_rpc import (
    AnyMessage,
    CreateWorldRequest,
    CreateWorldResponse,
    DestroyWorldRequest,
    DestroyWorldResponse,
    JoinWorldRequest,
    JoinWorldResponse,
    LeaveWorldRequest,
    LeaveWorldResponse,
    ResetWorldRequest,
    ResetWorldResponse,
    Status,
)
from rlwire.dm_env_rpc import StatusError
from rlwire.dm_env_rpc.options import DmEnvRpcServerOptions
from rlwire.dm_env_rpc.server import DmEnvRpcHandler as Handler
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.sessions.dm_env_rpc import Code
from tests.dm_env_rpc.worlds import World
from tests.raising import raised


class Maze(World):
    """Rejects the setting `colour`, and an agent's `full`; what is `sticky` fails to close."""

    def on_call(self, what, given):
        if what == "create" and "colour" in given:
            raise StatusError(Code.INVALID_ARGUMENT, "unknown settings: colour")
        if what == "join" and "full" in given:
            raise StatusError(Code.RESOURCE_EXHAUSTED, "two agents are all it takes")
        if what.endswith("close") and "sticky" in self.settings:
            raise RuntimeError(f"{what} sticks")


class Made(list[Maze]):
    def __call__(self, settings):
        self.append(Maze(settings))
        return self[-1]


def world_of(handler):
    return None if handler._agent is None else handler._agent.served.world


@pytest.fixture
def made():
    return Made()


@pytest.fixture
def worlds(made):
    return WorldRegistry(made)


@pytest.fixture
def handler(worlds):
    return Handler(worlds, "10.1.2.3:99")


def limited(make, **options):
    return WorldRegistry(make, options=DmEnvRpcServerOptions(**options))


def code_of(answer):
    assert isinstance(answer, Status), answer
    assert answer.message
    return Code(answer.code)


def create(handler, **settings):
    answer = handler.answer(CreateWorldRequest(settings))
    assert isinstance(answer, CreateWorldResponse), answer
    return answer.world_name


def test_each_connection_may_have_a_world_of_its_own(worlds, made):
    handlers = [Handler(worlds), Handler(worlds)]
    for handler in handlers:
        assert isinstance(handler.answer(JoinWorldRequest()), JoinWorldResponse)
    assert world_of(handlers[0]) is not world_of(handlers[1])
    assert len(worlds) == 2
    assert worlds.names == []
    assert handlers[0].answer(ResetWorldRequest("")) == ResetWorldResponse()
    assert made[0].log == ["reset", "A.reset"]
    assert made[1].log == []
    assert code_of(handlers[0].answer(DestroyWorldRequest(""))) is Code.FAILED_PRECONDITION
    handlers[0].answer(LeaveWorldRequest())
    assert made[0].log == ["reset", "A.reset", "A.close", "close"]
    handlers[1].close()
    assert made[1].log == ["A.close", "close"]
    assert len(worlds) == 0


def test_unknown_worlds(handler):
    for request in (
        JoinWorldRequest("nowhere"),
        ResetWorldRequest("nowhere"),
        DestroyWorldRequest("nowhere"),
        DestroyWorldRequest(""),
        ResetWorldRequest(""),
    ):
        answer = handler.answer(request)
        assert code_of(answer) is Code.NOT_FOUND
        assert repr(request.world_name) in answer.message
        assert "create_world" in answer.message
    assert len(handler.answer(JoinWorldRequest("x" * 10000)).message) < 300
    without = Handler(WorldRegistry())
    for request in (JoinWorldRequest(""), CreateWorldRequest()):
        assert code_of(without.answer(request)) is Code.UNIMPLEMENTED


def test_destroying_a_world_that_is_joined(worlds, made):
    one, two, three = Handler(worlds), Handler(worlds), Handler(worlds)
    name = create(three)
    one.answer(JoinWorldRequest(name))
    answer = one.answer(DestroyWorldRequest(name))
    assert code_of(answer) is Code.FAILED_PRECONDITION
    assert "this connection" in answer.message
    assert "1 agent is joined" in three.answer(DestroyWorldRequest(name)).message
    two.answer(JoinWorldRequest(name))
    assert "2 agents are joined" in three.answer(DestroyWorldRequest(name)).message
    one.close()
    two.answer(LeaveWorldRequest())
    assert three.answer(DestroyWorldRequest(name)) == DestroyWorldResponse()
    assert made[0].log[-1] == "close"
    assert code_of(one.answer(JoinWorldRequest(name))) is Code.NOT_FOUND


def test_refused_settings_leave_nothing_behind(handler, worlds, made):
    answer = handler.answer(CreateWorldRequest({"colour": 1}))
    assert answer == Status(Code.INVALID_ARGUMENT, "create_world: unknown settings: colour")
    assert len(worlds) == 0
    assert code_of(handler.answer(JoinWorldRequest("", {"full": 1}))) is Code.RESOURCE_EXHAUSTED
    assert len(worlds) == 0
    assert made[-1].log == ["close"]
    name = create(handler)
    assert code_of(handler.answer(JoinWorldRequest(name, {"full": 1}))) is Code.RESOURCE_EXHAUSTED
    assert worlds.names == [name]
    assert isinstance(handler.answer(JoinWorldRequest(name)), JoinWorldResponse)


def test_a_factory_that_fails(caplog):
    def factory(settings):
        raise SystemExit("no licence")

    handler = Handler(limited(factory, max_worlds=1), "10.1.2.3:99")
    for _ in range(3):  # no slot is lost
        answer = handler.answer(CreateWorldRequest())
        assert answer == Status(Code.INTERNAL, "create_world: SystemExit: no licence")
    assert caplog.messages == ["10.1.2.3:99: create_world: SystemExit: no licence"] * 3


def test_as_many_worlds_as_allowed(made):
    worlds = limited(made, max_worlds=2)
    one, two = Handler(worlds), Handler(worlds)
    name = create(one)
    two.answer(JoinWorldRequest(""))
    for request in (CreateWorldRequest(), JoinWorldRequest("")):
        answer = one.answer(request)
        assert code_of(answer) is Code.RESOURCE_EXHAUSTED
        assert "2 worlds" in answer.message
    one.answer(DestroyWorldRequest(name))
    create(one)
    assert "max_worlds" in str(raised(ValueError, DmEnvRpcServerOptions, max_worlds=0))


def test_worlds_that_are_being_made_count(made):
    begun, go_on = threading.Event(), threading.Event()

    def slow(settings):
        begun.set()
        assert go_on.wait(10)
        return made(settings)

    worlds = limited(slow, max_worlds=1)
    with ThreadPoolExecutor(1) as pool:
        name = pool.submit(worlds.create, {})
        assert begun.wait(10)
        assert raised(StatusError, worlds.create, {}).code == Code.RESOURCE_EXHAUSTED
        go_on.set()
        assert [name.result(10)] == worlds.names


def test_a_server_that_closes_while_a_world_is_made(made):
    def factory(settings):
        worlds.close()
        worlds.open()  # the server is started again
        return made(settings)

    worlds = WorldRegistry(factory)
    assert code_of(Handler(worlds).answer(CreateWorldRequest())) is Code.UNAVAILABLE
    assert made[0].log == ["close"]
    assert len(worlds) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_abandoned_worlds_are_kept_or_not(made, keep):
    worlds = limited(made, keep_abandoned=keep)
    creator, agent = Handler(worlds), Handler(worlds)
    used, unused = create(creator), create(creator)
    agent.answer(JoinWorldRequest(used))
    creator.close()
    assert worlds.names == ([used, unused] if keep else [used])
    agent.close()
    assert worlds.names == ([used, unused] if keep else [])


@pytest.mark.parametrize("request_", [CreateWorldRequest(), JoinWorldRequest("")])
def test_a_connection_that_ends_while_its_request_is_carried_out(made, request_):
    def factory(settings):
        handler.close()
        return made(settings)

    worlds = limited(factory, keep_abandoned=False)
    handler = Handler(worlds)
    handler.answer(request_)
    assert world_of(handler) is None
    assert made[-1].log[-1] == "close"
    assert len(worlds) == 0


def test_closing_never_raises(handler, caplog):
    name = create(handler, sticky=1)
    handler.answer(JoinWorldRequest(name))
    assert handler.answer(LeaveWorldRequest()) == LeaveWorldResponse()
    assert handler.answer(DestroyWorldRequest(name)) == DestroyWorldResponse()
    assert caplog.messages == [
        "10.1.2.3:99: the agent's close(): RuntimeError: A.close sticks",
        f"world '{name}': the world's close(): RuntimeError: close sticks",
    ]
    handler.close()
    handler.close()


def test_unsendable_join_is_undone(handler, made):
    request = JoinWorldRequest("")
    handler.answer(request)
    answer = handler.failure(request, ValueError("two variable dimensions"))
    assert answer == Status(Code.INVALID_ARGUMENT, "join_world: two variable dimensions")
    assert world_of(handler) is None
    assert made[0].log == ["A.close", "close"]
    handler.answer(request)
    assert code_of(handler.failure(CreateWorldRequest(), RuntimeError("lost"))) is Code.INTERNAL
    assert world_of(handler) is made[1]


ECHO = "type.googleapis.com/test.Echo"


def test_extensions(made):
    seen = []

    def echo(request, world):
        seen.append(world)
        if request.value == b"no":
            raise StatusError(Code.PERMISSION_DENIED, "read only")
        return AnyMessage("type.googleapis.com/test.Echoed", request.value)

    handler = Handler(limited(made, extensions={ECHO: echo}))
    assert handler.answer(AnyMessage(ECHO, b"hi")).value == b"hi"
    # Only what follows the last slash names the type.
    assert handler.answer(AnyMessage("example.org/types/test.Echo", b"ho")).value == b"ho"
    handler.answer(JoinWorldRequest(""))
    handler.answer(AnyMessage(ECHO, b"hi"))
    assert seen == [None, None, made[0]]
    refused = handler.answer(AnyMessage(ECHO, b"no"))
    assert refused == Status(Code.PERMISSION_DENIED, "extension: read only")
    unknown = handler.answer(AnyMessage("type.googleapis.com/test.Other"))
    assert code_of(unknown) is Code.UNIMPLEMENTED
    assert "test.Other" in unknown.message
    assert unknown.message.endswith("test.Echo")

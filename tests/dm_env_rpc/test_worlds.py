"""A server's worlds by name, what a connection's handler answers, and steps of a shared world."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers

from rlwire.codecs import dm_env_rpc as d
from rlwire.dm_env_rpc import StatusError
from rlwire.dm_env_rpc.options import DmEnvRpcServerOptions
from rlwire.dm_env_rpc.served_world import ServedAgent, ServedWorld
from rlwire.dm_env_rpc.server import DmEnvRpcHandler as Handler
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.sessions.dm_env_rpc import Code
from rlwire.sessions.dm_env_rpc.states import TRANSITIONS, DmEnvRpcState
from rlwire.transports.deferred import DeferredReply
from tests.dm_env_rpc.worlds import World
from tests.raising import raised
from tests.waiting import eventually

_, RUNNING, TERMINATED, INTERRUPTED = d.EnvironmentStateType


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
    assert isinstance(answer, d.Status), answer
    assert answer.message
    return Code(answer.code)


def create(handler, **settings):
    answer = handler.answer(d.CreateWorldRequest(settings))
    assert isinstance(answer, d.CreateWorldResponse), answer
    return answer.world_name


def test_unnamed_join_creates_a_private_world_per_connection(worlds, made):
    handlers = [Handler(worlds), Handler(worlds)]
    for handler in handlers:
        assert isinstance(handler.answer(d.JoinWorldRequest()), d.JoinWorldResponse)
    assert world_of(handlers[0]) is not world_of(handlers[1])
    assert len(worlds) == 2
    assert worlds.names == []
    assert handlers[0].answer(d.ResetWorldRequest("")) == d.ResetWorldResponse()
    assert made[0].log == ["reset", "A.reset"]
    assert made[1].log == []
    handlers[0].answer(d.LeaveWorldRequest())
    assert made[0].log == ["reset", "A.reset", "A.close", "close"]
    handlers[1].close()
    assert made[1].log == ["A.close", "close"]
    assert len(worlds) == 0


def test_unknown_world_names_are_rejected_with_not_found(handler):
    for request in (
        d.JoinWorldRequest("nowhere"),
        d.ResetWorldRequest("nowhere"),
        d.DestroyWorldRequest("nowhere"),
        d.DestroyWorldRequest(""),
        d.ResetWorldRequest(""),
    ):
        answer = handler.answer(request)
        assert code_of(answer) is Code.NOT_FOUND
        assert repr(request.world_name) in answer.message
        assert "create_world" in answer.message
    assert len(handler.answer(d.JoinWorldRequest("x" * 10000)).message) < 300
    without = Handler(WorldRegistry())
    for request in (d.JoinWorldRequest(""), d.CreateWorldRequest()):
        assert code_of(without.answer(request)) is Code.UNIMPLEMENTED


def test_world_with_agents_cannot_be_destroyed(worlds, made):
    one, two, three = Handler(worlds), Handler(worlds), Handler(worlds)
    name = create(three)
    one.answer(d.JoinWorldRequest(name))
    assert "1 agent is joined" in three.answer(d.DestroyWorldRequest(name)).message
    two.answer(d.JoinWorldRequest(name))
    assert "2 agents are joined" in three.answer(d.DestroyWorldRequest(name)).message
    one.close()
    two.answer(d.LeaveWorldRequest())
    assert three.answer(d.DestroyWorldRequest(name)) == d.DestroyWorldResponse()
    assert made[0].log[-1] == "close"
    assert code_of(one.answer(d.JoinWorldRequest(name))) is Code.NOT_FOUND


def test_rejected_settings_leave_no_world_behind(handler, worlds, made):
    answer = handler.answer(d.CreateWorldRequest({"colour": 1}))
    assert answer == d.Status(Code.INVALID_ARGUMENT, "create_world: unknown settings: colour")
    assert len(worlds) == 0
    assert code_of(handler.answer(d.JoinWorldRequest("", {"full": 1}))) is Code.RESOURCE_EXHAUSTED
    assert len(worlds) == 0
    assert made[-1].log == ["close"]
    name = create(handler)
    assert code_of(handler.answer(d.JoinWorldRequest(name, {"full": 1}))) is Code.RESOURCE_EXHAUSTED
    assert worlds.names == [name]
    assert isinstance(handler.answer(d.JoinWorldRequest(name)), d.JoinWorldResponse)


def test_failing_factory_is_reported_and_releases_its_slot(caplog):
    def factory(settings):
        raise SystemExit("no licence")

    handler = Handler(limited(factory, max_worlds=1), "10.1.2.3:99")
    for _ in range(3):  # no slot is lost
        answer = handler.answer(d.CreateWorldRequest())
        assert answer == d.Status(Code.INTERNAL, "create_world: SystemExit: no licence")
    assert caplog.messages == ["10.1.2.3:99: create_world: SystemExit: no licence"] * 3


def test_server_limits_the_number_of_worlds(made):
    worlds = limited(made, max_worlds=2)
    one, two = Handler(worlds), Handler(worlds)
    name = create(one)
    two.answer(d.JoinWorldRequest(""))
    for request in (d.CreateWorldRequest(), d.JoinWorldRequest("")):
        answer = one.answer(request)
        assert code_of(answer) is Code.RESOURCE_EXHAUSTED
        assert "2 worlds" in answer.message
    one.answer(d.DestroyWorldRequest(name))
    create(one)
    assert "max_worlds" in str(raised(ValueError, DmEnvRpcServerOptions, max_worlds=0))


def test_worlds_under_construction_count_towards_the_limit(made):
    begun, go_on = threading.Event(), threading.Event()

    def slow(settings):
        begun.set()
        assert go_on.wait(10)
        return made(settings)

    worlds = limited(slow, max_worlds=1)
    with ThreadPoolExecutor(1) as pool:
        made_world = pool.submit(worlds.create, {})
        assert begun.wait(10)
        assert raised(StatusError, worlds.create, {}).code == Code.RESOURCE_EXHAUSTED
        go_on.set()
        assert [made_world.result(10).name] == worlds.names


def test_world_created_while_the_registry_closes_is_closed(made):
    def factory(settings):
        worlds.close()
        worlds.open()  # the server is started again
        return made(settings)

    worlds = WorldRegistry(factory)
    assert code_of(Handler(worlds).answer(d.CreateWorldRequest())) is Code.UNAVAILABLE
    assert made[0].log == ["close"]
    assert len(worlds) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_abandoned_worlds_are_destroyed_unless_kept(made, keep):
    worlds = limited(made, keep_abandoned=keep)
    creator, agent = Handler(worlds), Handler(worlds)
    used, unused = create(creator), create(creator)
    agent.answer(d.JoinWorldRequest(used))
    creator.close()
    assert worlds.names == ([used, unused] if keep else [used])
    agent.close()
    assert worlds.names == ([used, unused] if keep else [])


def test_errors_of_agent_and_world_close_are_logged_not_raised(handler, caplog):
    name = create(handler, sticky=1)
    handler.answer(d.JoinWorldRequest(name))
    assert handler.answer(d.LeaveWorldRequest()) == d.LeaveWorldResponse()
    assert handler.answer(d.DestroyWorldRequest(name)) == d.DestroyWorldResponse()
    assert caplog.messages == [
        "10.1.2.3:99: the agent's close(): RuntimeError: A.close sticks",
        f"world '{name}': the world's close(): RuntimeError: close sticks",
    ]


def test_join_whose_reply_cannot_be_encoded_is_undone(handler, made):
    request = d.JoinWorldRequest("")
    handler.answer(request)
    answer = handler.failure(request, ValueError("two variable dimensions"))
    assert answer == d.Status(Code.INVALID_ARGUMENT, "join_world: two variable dimensions")
    assert world_of(handler) is None
    assert made[0].log == ["A.close", "close"]
    handler.answer(request)
    assert code_of(handler.failure(d.CreateWorldRequest(), RuntimeError("lost"))) is Code.INTERNAL
    assert world_of(handler) is made[1]


ECHO = "type.googleapis.com/test.Echo"


def test_extension_requests_are_dispatched_by_type_name(made):
    seen = []

    def echo(request, world):
        seen.append(world)
        if request.value == b"no":
            raise StatusError(Code.PERMISSION_DENIED, "read only")
        return d.AnyMessage("type.googleapis.com/test.Echoed", request.value)

    handler = Handler(limited(made, extensions={ECHO: echo}))
    assert handler.answer(d.AnyMessage(ECHO, b"hi")).value == b"hi"
    # Only what follows the last slash names the type.
    assert handler.answer(d.AnyMessage("example.org/types/test.Echo", b"ho")).value == b"ho"
    handler.answer(d.JoinWorldRequest(""))
    handler.answer(d.AnyMessage(ECHO, b"hi"))
    assert seen == [None, None, made[0]]
    refused = handler.answer(d.AnyMessage(ECHO, b"no"))
    assert refused == d.Status(Code.PERMISSION_DENIED, "extension: read only")
    unknown = handler.answer(d.AnyMessage("type.googleapis.com/test.Other"))
    assert code_of(unknown) is Code.UNIMPLEMENTED
    assert "test.Other" in unknown.message
    assert unknown.message.endswith("test.Echo")


class Table:
    """A world called ``w`` and connections to it."""

    def __init__(self, on_call=None):
        self.world = World(on_call=on_call)
        self.worlds = WorldRegistry(World)
        self.worlds.add(self.world, "w")

    def handler(self, peer="a peer"):
        return Handler(self.worlds, peer)

    def joined(self, count=1, running=True):
        handlers = [self.handler(f"peer {number}") for number in range(count)]
        for handler in handlers:
            assert isinstance(handler.answer(d.JoinWorldRequest("w")), d.JoinWorldResponse)
            if running:
                assert step(handler).state is RUNNING
        self.world.log.clear()
        return handlers


def step(handler, **actions):
    return handler.answer(d.Step(actions, ("count",)))


def reset_world(handler, **world_settings):
    return handler.answer(d.ResetWorldRequest("w", world_settings))


def value(answer):
    if isinstance(answer, DeferredReply):
        assert answer.wait(10)
        return answer.result()
    return answer


def test_failed_reset_of_an_agent_is_reported_to_the_caller():
    def fail(what, given):
        if what in failing:
            raise ValueError("no reset")

    failing = {"B.reset"}
    table = Table(fail)
    caller, _other = table.joined(2, running=False)
    answer = reset_world(caller)
    assert answer == d.Status(Code.INVALID_ARGUMENT, "reset_world, the agent of peer 1: no reset")
    assert table.world.log == ["reset", "A.reset", "B.reset"]
    assert step(caller).state is RUNNING
    failing.add("A.reset")
    assert reset_world(caller).code == Code.INVALID_ARGUMENT
    failing.clear()
    assert [step(caller).state for _ in range(2)] == [INTERRUPTED, RUNNING]


def test_closing_server_answers_every_pending_request():
    table = Table()
    caller, reported, _other = table.joined(3)
    step(reported)
    answer = reset_world(caller)
    step(reported)
    held = step(reported)
    for _ in range(2):
        table.worlds.close()
    assert value(answer).code == value(held).code == Code.UNAVAILABLE
    assert table.world.log[-4:] == ["A.close", "B.close", "C.close", "close"]
    assert step(reported).code == Code.ABORTED
    assert reported.answer(d.LeaveWorldRequest()) == d.LeaveWorldResponse()
    caller.close()
    assert len(table.worlds) == 0
    assert reset_world(table.handler()).code == Code.NOT_FOUND
    for request in (d.CreateWorldRequest(), d.JoinWorldRequest("")):
        assert table.handler().answer(request).code == Code.UNAVAILABLE


def test_held_step_of_a_vanished_agent_is_aborted():
    caller, other, _third = Table().joined(3)
    reset_world(caller)
    step(other)
    held = step(other)
    other.close()
    assert value(held).code == Code.ABORTED


def test_episode_restarts_after_an_unsendable_reply():
    table = Table()
    (handler,) = table.joined(1, running=False)
    event = d.Step()
    assert handler.answer(event).state is RUNNING
    assert handler.failure(event, ValueError("too large")).code == Code.INVALID_ARGUMENT
    assert step(handler).state is RUNNING
    assert table.world.log == ["A.begin", "A.begin"]
    # Within a sequence, a step that is lost does not end it ...
    assert handler.answer(event).state is RUNNING
    handler.failure(event, ValueError("too large"))
    assert handler.answer(event).state is RUNNING
    # ... and one that has ended it has: the next one says so.
    assert step(handler, end=TERMINATED).state is TERMINATED
    for _ in range(2):
        handler.failure(event, ValueError("too large"))
        assert step(handler) == d.StepResult(INTERRUPTED, {"count": 0})
    assert step(handler).state is RUNNING
    assert table.world.log == [*["A.begin"] * 2, *["A.step"] * 3, *["A.begin"] * 3]


def test_concurrent_resets_of_a_world_run_one_after_another():
    begun, go_on, resets = threading.Event(), threading.Event(), []

    def on_call(what, given):
        if what == "reset":
            begun.set()
            assert go_on.wait(10)
            resets.append(given)

    table = Table(on_call)
    table.joined(1, running=False)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(reset_world, table.handler(), number=1)
        assert begun.wait(10)
        second = reset_world(table.handler(), number=2)
        assert not second.done()
        go_on.set()
        assert first.result(10) == value(second) == d.ResetWorldResponse()
    assert resets == [{"number": 1}, {"number": 2}]
    assert table.world.log == ["reset", "A.reset"] * 2


def test_agents_of_one_world_are_called_one_at_a_time():
    inside, met = threading.Lock(), []

    def on_call(what, given):
        if not inside.acquire(blocking=False):
            met.append(what)
            return
        threading.Event().wait(0.0001)
        inside.release()

    def play(handler):
        for number in range(60):
            assert value(step(handler)).state in (RUNNING, INTERRUPTED)
            if number % 20 == 10:
                assert value(reset_world(handler)) == d.ResetWorldResponse()
        handler.close()

    def reset(handler):
        for _ in range(5):
            assert value(reset_world(handler)) == d.ResetWorldResponse()

    table = Table(on_call)
    with ThreadPoolExecutor(5) as pool:
        playing = [pool.submit(play, handler) for handler in table.joined(4, running=False)]
        playing.append(pool.submit(reset, table.handler()))
        for each in playing:
            each.result(20)
    assert not met
    assert table.world.log.count("reset") == 17


def test_a_world_destroyed_while_an_agent_joins():
    begun, go_on = threading.Event(), threading.Event()

    def on_call(what, given):
        if what == "join":
            begun.set()
            assert go_on.wait(10)

    table = Table(on_call)
    with ThreadPoolExecutor(2) as pool:
        joining = pool.submit(table.handler().answer, d.JoinWorldRequest("w"))
        assert begun.wait(10)
        assert "1 agent is joined" in table.handler().answer(d.DestroyWorldRequest("w")).message
        room = table.worlds._worlds["w"]
        closing = pool.submit(table.worlds.close)
        eventually(lambda: room.closed)
        go_on.set()
        assert joining.result(10).code == Code.NOT_FOUND
        closing.result(10)
    eventually(lambda: table.world.log == ["A.close", "close"])


def test_agent_gets_the_requested_observations_and_its_errors_are_replies():
    requested = []

    class Asked(World.agent):
        def request(self, names):
            requested.append(names)

    table = Table()
    table.world.agent = Asked
    (handler,) = table.joined()
    handler.answer(d.Step({}, ("pixels", "reward")))
    assert requested == [("count",), ("pixels", "reward")]
    refused = step(handler, **{"raise": StatusError(Code.OUT_OF_RANGE, "in check")})
    assert refused == d.Status(Code.OUT_OF_RANGE, "step: in check")
    (member,) = table.worlds._worlds["w"].agents
    member.environment.step = lambda actions: {"count": 1}
    nonsense = step(handler)
    assert nonsense.code == Code.INTERNAL
    assert "StepResult, not a dict" in nonsense.message


class Rooms(RuleBasedStateMachine):
    """Four connections, of which one waits now and then; no reply is one that cannot follow."""

    def __init__(self):
        super().__init__()
        self.acting = None
        self.states = [DmEnvRpcState.NOT_JOINED] * 4
        self.waiting = {}
        self.table = Table(self.on_call)
        self.handlers = [self.table.handler(f"peer {number}") for number in range(4)]

    def on_call(self, what, given):
        if what != "reset":
            return
        # All are told, but those who have asked for a reset themselves.
        for number, state in enumerate(self.states):
            member = self.handlers[number]._agent
            missed_end = member is not None and member.missed_end
            if state is DmEnvRpcState.RUNNING and number != self.acting and not missed_end:
                assert self.waiting[number][0] == "reset_world"
        if "bad" in given:
            raise ValueError("a bad setting")

    def settle(self, number, kind, reply):
        if isinstance(reply, d.StepResult):
            outcome = reply.state.name.lower()
        else:
            outcome = "error" if isinstance(reply, d.Status) else "done"
        if kind == "reset_world" and self.states[number] is DmEnvRpcState.NOT_JOINED:
            outcome = "done elsewhere" if outcome == "done" else outcome
        self.states[number] = TRANSITIONS[self.states[number], kind, outcome]

    def act(self, number, kind, event):
        self.acting = number
        answer = self.handlers[number].answer(event)
        if isinstance(answer, DeferredReply):
            self.waiting[number] = (kind, answer)
        else:
            self.settle(number, kind, answer)
        self.acting = None
        self.collect()

    def collect(self):
        for number, (kind, answer) in list(self.waiting.items()):
            if answer.done():
                del self.waiting[number]
                self.settle(number, kind, answer.result())

    def free(self, number, *states):
        return number not in self.waiting and self.states[number] in states

    @rule(number=integers(0, 3))
    def join(self, number):
        if self.free(number, DmEnvRpcState.NOT_JOINED):
            self.act(number, "join_world", d.JoinWorldRequest("w"))

    @rule(number=integers(0, 3), end=integers(1, 3))
    def step(self, number, end):
        if number not in self.waiting and self.states[number] is not DmEnvRpcState.NOT_JOINED:
            self.act(number, "step", d.Step({"end": d.EnvironmentStateType(end)}))

    @rule(number=integers(0, 3))
    def broken_step(self, number):
        if self.free(number, DmEnvRpcState.RUNNING):
            self.act(number, "step", d.Step({"raise": KeyError("x")}))

    @rule(number=integers(0, 3), class_=integers(0, 1))
    def reset(self, number, class_):
        if number not in self.waiting and self.states[number] is not DmEnvRpcState.NOT_JOINED:
            self.act(number, "reset", d.ResetRequest({"class": 1} if class_ else {}))

    @rule(number=integers(0, 3), bad=integers(0, 4))
    def reset_world(self, number, bad):
        if number not in self.waiting:
            settings = {"bad": 1} if bad == 4 else {}
            self.act(number, "reset_world", d.ResetWorldRequest("w", settings))

    @rule(number=integers(0, 3))
    def leave(self, number):
        if number not in self.waiting:
            self.act(number, "leave_world", d.LeaveWorldRequest())

    @precondition(lambda self: self.waiting)
    @rule()
    def vanish(self):
        number, _ = self.waiting.popitem()
        self.states[number] = DmEnvRpcState.NOT_JOINED
        self.acting = number
        self.handlers[number].close()
        self.acting = None
        self.handlers[number] = self.table.handler(f"peer {number}, again")
        self.collect()

    @invariant()
    def every_wait_ends(self):
        room = self.table.worlds._worlds["w"]
        active = [
            number
            for number, handler in enumerate(self.handlers)
            if handler._agent is not None and handler._agent.running and number not in self.waiting
        ]
        for number, handler in enumerate(self.handlers):
            if number not in self.waiting and handler._agent is not None:
                running = handler._agent.running or handler._agent.missed_end
                assert running is (self.states[number] is DmEnvRpcState.RUNNING)
        assert bool(room.resets) <= bool(active)
        assert bool(self.waiting) <= bool(room.resets)
        assert len(room.agents) == sum(
            state is not DmEnvRpcState.NOT_JOINED for state in self.states
        )
        assert not room.resetting
        assert len(room.held) <= len(self.waiting)

    def teardown(self):
        for handler in self.handlers:
            handler.close()
        for _kind, answer in self.waiting.values():
            assert answer.done()


Rooms.TestCase.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
TestRooms = Rooms.TestCase


class Interposed(ServedAgent):
    """Calls `meanwhile` once, when a step has just set `stepping`."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "stepping" and value and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()


@pytest.mark.parametrize("running", [False, True])
def test_reset_requested_as_a_step_starts_neither_hangs_nor_is_lost(running):
    world = World()
    served = ServedWorld("", world, logging.getLogger(__name__))
    agent = served.join({}, "peer")
    if running:
        assert served.step(agent, d.Step()).state == RUNNING
    del world.log[:]
    asked = []
    agent.meanwhile = lambda: asked.append(served.reset_world({}, None, "other"))
    agent.__class__ = Interposed
    result = served.step(agent, d.Step())
    (reset,) = asked
    assert reset.result() == d.ResetWorldResponse()
    if running:  # the step ends the sequence, and then comes the reset
        assert result.state == INTERRUPTED
        assert world.log == ["A.step", "reset", "A.reset"]
    else:
        assert result.state == RUNNING
        assert world.log == ["reset", "A.reset", "A.begin"]
    assert (agent.stepping, served.held, len(served.resets)) == (False, {}, 0)

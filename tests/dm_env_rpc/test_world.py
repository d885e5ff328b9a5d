"""Steps and resets of agents that share a world, seen from their connections."""

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers

from rlwire.codecs.dm_env_rpc.values import (
    CreateWorldRequest,
    DestroyWorldRequest,
    EnvironmentStateType,
    JoinWorldRequest,
    JoinWorldResponse,
    LeaveWorldRequest,
    LeaveWorldResponse,
    ResetRequest,
    ResetWorldRequest,
    ResetWorldResponse,
    Status,
    Step,
    StepResult,
)
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc import StatusError
from rlwire.dm_env_rpc.server import DmEnvRpcHandler as Handler
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.sessions.dm_env_rpc.states import TRANSITIONS, DmEnvRpcState
from rlwire.transports.deferred import DeferredReply
from tests.dm_env_rpc.worlds import World
from tests.waiting import eventually

RUNNING, TERMINATED, INTERRUPTED = (
    EnvironmentStateType.RUNNING,
    EnvironmentStateType.TERMINATED,
    EnvironmentStateType.INTERRUPTED,
)


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
            assert isinstance(handler.answer(JoinWorldRequest("w")), JoinWorldResponse)
            if running:
                assert step(handler).state is RUNNING
        self.world.log.clear()
        return handlers


def step(handler, **actions):
    return handler.answer(Step(actions, ("count",)))


def reset_world(handler, **world_settings):
    return handler.answer(ResetWorldRequest("w", world_settings))


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
    assert answer == Status(Code.INVALID_ARGUMENT, "reset_world, the agent of peer 1: no reset")
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
    assert reported.answer(LeaveWorldRequest()) == LeaveWorldResponse()
    caller.close()
    assert len(table.worlds) == 0
    assert reset_world(table.handler()).code == Code.NOT_FOUND
    for request in (CreateWorldRequest(), JoinWorldRequest("")):
        assert table.handler().answer(request).code == Code.UNAVAILABLE


def test_episode_restarts_after_an_unsendable_reply():
    table = Table()
    (handler,) = table.joined(1, running=False)
    event = Step()
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
        assert step(handler) == StepResult(INTERRUPTED, {"count": 0})
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
        assert first.result(10) == value(second) == ResetWorldResponse()
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
                assert value(reset_world(handler)) == ResetWorldResponse()
        handler.close()

    def reset(handler):
        for _ in range(5):
            assert value(reset_world(handler)) == ResetWorldResponse()

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
        joining = pool.submit(table.handler().answer, JoinWorldRequest("w"))
        assert begun.wait(10)
        refused = table.handler().answer(DestroyWorldRequest("w"))
        assert "1 agent is joined" in refused.message
        room = table.worlds._named["w"]
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
    handler.answer(Step({}, ("pixels", "reward")))
    assert requested == [("count",), ("pixels", "reward")]
    refused = step(handler, **{"raise": StatusError(Code.OUT_OF_RANGE, "in check")})
    assert refused == Status(Code.OUT_OF_RANGE, "step: in check")
    (member,) = table.worlds._named["w"].agents
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
        if isinstance(reply, StepResult):
            outcome = reply.state.name.lower()
        else:
            outcome = "error" if isinstance(reply, Status) else "done"
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
            self.act(number, "join_world", JoinWorldRequest("w"))

    @rule(number=integers(0, 3), end=integers(1, 3))
    def step(self, number, end):
        if number not in self.waiting and self.states[number] is not DmEnvRpcState.NOT_JOINED:
            self.act(number, "step", Step({"end": EnvironmentStateType(end)}))

    @rule(number=integers(0, 3))
    def broken_step(self, number):
        if self.free(number, DmEnvRpcState.RUNNING):
            self.act(number, "step", Step({"raise": KeyError("x")}))

    @rule(number=integers(0, 3), class_=integers(0, 1))
    def reset(self, number, class_):
        if number not in self.waiting and self.states[number] is not DmEnvRpcState.NOT_JOINED:
            self.act(number, "reset", ResetRequest({"class": 1} if class_ else {}))

    @rule(number=integers(0, 3), bad=integers(0, 4))
    def reset_world(self, number, bad):
        if number not in self.waiting:
            settings = {"bad": 1} if bad == 4 else {}
            self.act(number, "reset_world", ResetWorldRequest("w", settings))

    @rule(number=integers(0, 3))
    def leave(self, number):
        if number not in self.waiting:
            self.act(number, "leave_world", LeaveWorldRequest())

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
        room = self.table.worlds._named["w"]
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

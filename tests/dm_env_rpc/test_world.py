"""Steps and resets of agents that share a world, seen from their connections."""

import threading

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers

from rlwire.codecs.dm_env_rpc.values import (
    ActionObservationSpecs,
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

RUNNING, TERMINATED, INTERRUPTED = (
    EnvironmentStateType.RUNNING,
    EnvironmentStateType.TERMINATED,
    EnvironmentStateType.INTERRUPTED,
)


class Agent:
    def __init__(self, arena, name):
        self.specs = ActionObservationSpecs()
        self.arena = arena
        self.name = name
        self.closed = False

    def say(self, what):
        assert not self.closed
        self.arena.log.append(f"{self.name}.{what}")

    def reset(self, settings):
        self.say("reset")
        if "bad agent" in settings or self.arena.bad_agent == self.name:
            raise ValueError("bad agent")

    def begin(self):
        self.say("begin")
        return StepResult(RUNNING, {"ticks": 0})

    def step(self, actions):
        self.say("step")
        if "raise" in actions:
            raise actions["raise"]
        return StepResult(actions.get("end", RUNNING), {"ticks": 1})

    def close(self):
        self.say("close")
        self.closed = True


class Arena:
    def __init__(self):
        self.log = []
        self.resets = []
        self.names = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 99)
        self.bad_agent = ""

    def join(self, settings):
        return Agent(self, next(self.names))

    def reset(self, settings):
        self.log.append("reset")
        self.resets.append(settings)
        if "bad" in settings:
            raise ValueError("a bad setting")

    def close(self):
        self.log.append("close")


class Table:
    """A world called ``w`` and connections to it."""

    def __init__(self, arena=None):
        self.arena = Arena() if arena is None else arena
        self.worlds = WorldRegistry()
        self.worlds.add(self.arena, "w")

    def handler(self, peer="a peer"):
        return Handler(self.worlds, peer)

    def joined(self, count=1, running=True):
        handlers = [self.handler(f"peer {number}") for number in range(count)]
        for handler in handlers:
            assert isinstance(handler.answer(JoinWorldRequest("w")), JoinWorldResponse)
            if running:
                assert step(handler).state is RUNNING
        self.arena.log.clear()
        return handlers


def step(handler, **actions):
    return handler.answer(Step(actions, ("ticks",)))


def reset_world(handler, **world_settings):
    return handler.answer(ResetWorldRequest("w", world_settings))


def done(answer):
    return not isinstance(answer, DeferredReply) or answer.done()


def value(answer):
    if isinstance(answer, DeferredReply):
        assert answer.wait(10)
        return answer.result()
    return answer


def test_an_agent_that_cannot_be_reset_is_reported_to_the_caller():
    table = Table()
    table.arena.bad_agent = "B"
    caller, _other = table.joined(2, running=False)
    answer = reset_world(caller)
    assert answer == Status(Code.INVALID_ARGUMENT, "reset_world, the agent of peer 1: bad agent")
    assert table.arena.log == ["reset", "A.reset", "B.reset"]


def test_closing_server_answers_every_pending_request():
    table = Table()
    caller, reported, _other = table.joined(3)
    step(reported)
    answer = reset_world(caller)
    step(reported)
    held = step(reported)
    table.worlds.close()
    assert value(answer).code == Code.UNAVAILABLE
    assert value(held).code == Code.UNAVAILABLE
    assert table.arena.log[-4:] == ["A.close", "B.close", "C.close", "close"]
    assert step(reported).code == Code.ABORTED
    assert reported.answer(LeaveWorldRequest()) == LeaveWorldResponse()
    assert reset_world(table.handler()).code == Code.NOT_FOUND


def test_episode_restarts_after_an_unsendable_reply():
    table = Table()
    (handler,) = table.joined(1, running=False)
    event = Step()
    assert handler.answer(event).state is RUNNING
    assert handler.failure(event, ValueError("too large")).code == Code.INVALID_ARGUMENT
    assert step(handler).state is RUNNING
    assert table.arena.log == ["A.begin", "A.begin"]
    # Within a sequence, a step that is lost does not end it ...
    assert handler.answer(event).state is RUNNING
    handler.failure(event, ValueError("too large"))
    assert handler.answer(event).state is RUNNING
    # ... and one that has ended it has: the next one says so.
    assert step(handler, end=TERMINATED).state is TERMINATED
    handler.failure(event, ValueError("too large"))
    assert step(handler) == StepResult(INTERRUPTED, {"ticks": 0})
    handler.failure(event, ValueError("too large"))
    assert step(handler) == StepResult(INTERRUPTED, {"ticks": 0})
    assert step(handler).state is RUNNING
    assert table.arena.log == [*["A.begin"] * 2, *["A.step"] * 3, *["A.begin"] * 3]


def test_caller_whose_reset_fails_gets_the_error():
    table = Table()
    (handler,) = table.joined()
    table.arena.bad_agent = "A"
    assert reset_world(handler).code == Code.INVALID_ARGUMENT
    table.arena.bad_agent = ""
    assert step(handler).state is INTERRUPTED
    assert step(handler).state is RUNNING


def in_threads(*calls):
    results = [None] * len(calls)

    def run(number):
        results[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return results


class Gate(Arena):
    """What is called `slow` waits until it is let go on."""

    def __init__(self, slow):
        super().__init__()
        self.slow = slow
        self.begun, self.go_on = threading.Event(), threading.Event()

    def pass_(self, what):
        if what == self.slow:
            self.begun.set()
            assert self.go_on.wait(10)

    def join(self, settings):
        arena = self

        class Slow(Agent):
            def begin(self):
                arena.pass_(f"{self.name}.begin")
                return super().begin()

        return Slow(self, next(self.names))

    def reset(self, settings):
        self.pass_("reset")
        super().reset(settings)


def test_concurrent_resets_of_a_world_run_one_after_another():
    gate = Gate("reset")
    table = Table(gate)
    table.joined(1, running=False)
    answers = []
    first = threading.Thread(target=lambda: answers.append(reset_world(table.handler(), number=1)))
    first.start()
    assert gate.begun.wait(10)
    second = reset_world(table.handler(), number=2)
    assert not done(second)
    gate.go_on.set()
    first.join(10)
    assert value(second) == ResetWorldResponse()
    assert answers == [ResetWorldResponse()]
    assert gate.resets == [{"number": 1}, {"number": 2}]
    assert gate.log == ["reset", "A.reset"] * 2


class Busy(Arena):
    def __init__(self):
        super().__init__()
        self.inside = threading.Lock()
        self.met = False

    def join(self, settings):
        arena = self

        class Watching(Agent):
            def say(self, what):
                free = arena.inside.acquire(blocking=False)
                arena.met |= not free
                threading.Event().wait(0.0001)
                if free:
                    arena.inside.release()

        return Watching(self, "X")


def test_agents_of_one_world_are_called_one_at_a_time():
    table = Table(Busy())
    handlers = table.joined(4, running=False)
    outside = table.handler()

    def play(handler):
        for number in range(60):
            assert value(step(handler)).state in (RUNNING, INTERRUPTED)
            if number % 20 == 10:
                assert value(reset_world(handler)) == ResetWorldResponse()
        handler.close()

    def reset():
        for _ in range(5):
            assert value(reset_world(outside)) == ResetWorldResponse()

    in_threads(reset, *(lambda handler=handler: play(handler) for handler in handlers))
    assert not table.arena.met
    assert table.arena.log == ["reset"] * 17


def test_a_world_destroyed_while_an_agent_joins():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Arena):
        def join(self, settings):
            begun.set()
            assert go_on.wait(10)
            return super().join(settings)

    table = Table(Slow())
    handler = table.handler()
    answers = []
    joining = threading.Thread(target=lambda: answers.append(handler.answer(JoinWorldRequest("w"))))
    joining.start()
    assert begun.wait(10)
    refused = table.handler().answer(DestroyWorldRequest("w"))
    assert "1 agent is joined" in refused.message
    room = table.worlds._named["w"]
    closing = threading.Thread(target=table.worlds.close)
    closing.start()
    while not room.closed:
        threading.Event().wait(0.001)
    go_on.set()
    joining.join(10)
    closing.join(10)
    assert [answer.code for answer in answers] == [Code.NOT_FOUND]
    for _ in range(10_000):  # the world is closed when the call has ended
        if table.arena.log[1:]:
            break
        threading.Event().wait(0.001)
    assert table.arena.log == ["A.close", "close"]


def test_refusing_agent_and_invalid_actions_are_errors():
    table = Table()
    (handler,) = table.joined()
    refused = step(handler, **{"raise": StatusError(Code.OUT_OF_RANGE, "in check")})
    assert refused == Status(Code.OUT_OF_RANGE, "step: in check")
    room = table.worlds._named["w"]
    (member,) = room.agents
    member.environment.step = lambda actions: {"ticks": 1}
    nonsense = step(handler)
    assert nonsense.code == Code.INTERNAL
    assert "Agent must return a StepResult, not a dict" in nonsense.message


def test_agent_gets_the_requested_observations():
    asked = []
    table = Table()
    make = table.arena.join

    def join(settings):
        agent = make(settings)
        agent.request = asked.append
        return agent

    table.arena.join = join
    (handler,) = table.joined()
    handler.answer(Step({}, ("pixels", "reward")))
    assert asked == [("ticks",), ("pixels", "reward")]


class Rooms(RuleBasedStateMachine):
    """Four connections, of which one waits now and then; no reply is one that cannot follow."""

    def __init__(self):
        super().__init__()
        machine = self
        self.acting = None
        self.states = [DmEnvRpcState.NOT_JOINED] * 4
        self.waiting = {}

        class Watched(Arena):
            def reset(self, settings):
                # All are told, but those who have asked for a reset themselves.
                for number, state in enumerate(machine.states):
                    member = machine.handlers[number]._agent
                    missed_end = member is not None and member.missed_end
                    if (
                        state is DmEnvRpcState.RUNNING
                        and number != machine.acting
                        and not missed_end
                    ):
                        assert machine.waiting[number][0] == "reset_world"
                super().reset(settings)

        self.table = Table(Watched())
        self.handlers = [self.table.handler(f"peer {number}") for number in range(4)]

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

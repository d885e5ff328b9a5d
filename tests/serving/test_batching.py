"""Acting for many connections at once: on a loop, in threads, with bad peers among them."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlwire.openpi import Client
from rlwire.openpi import Server as PolicyServer
from rlwire.rlx import AgentProxy, Server
from rlwire.rlx.hosting import AgentFactory, AgentHandler
from rlwire.rlx.metrics import LoggingMetrics
from rlwire.serving.batching import Batched, Together


def test_an_error_is_told_everyone_and_ends_nothing() -> None:
    def call(asked: list[int]) -> list[int]:
        if 3 in asked:
            raise ValueError("three")
        return asked

    together = Together(call)
    with pytest.raises(ValueError, match="three"):
        together.ask(3)
    assert together.ask(4) == 4


class Policy:
    """Says how many it was asked for, times what the observation's first number is."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, observations: Any, exploit: Any) -> Any:
        first = not self.batches
        self.batches.append(len(observations))
        if first:
            assert self.free.wait(30)
        if (observations < 0).any():
            raise ValueError("below zero")
        return observations.astype(np.int64)[:, 0] * (1 - 2 * exploit)


@pytest.mark.parametrize("workers", ["asyncio", "threads"])
def test_environments_behind_one_policy(workers: Any) -> None:
    policy = Policy()
    policy.free.clear()
    answers: dict[int, Any] = {}
    sent = threading.Semaphore(0)

    def play(number: int) -> None:
        agent = AgentProxy(server.address)
        agent.connect()
        agent.init(number == 5)
        sent.release()
        answers[number] = agent.update(None, np.array([number, 0.0], np.float32), False)
        agent.disconnect()

    with Server(Batched(policy), "localhost:0", workers=workers) as server:
        first = threading.Thread(target=play, args=(1,))
        first.start()
        assert sent.acquire(timeout=30)
        while not policy.batches:
            pass
        if workers == "asyncio":  # the loop is at it: the others cannot even begin
            policy.free.set()
        others = [threading.Thread(target=play, args=(number,)) for number in range(2, 8)]
        for thread in others:
            thread.start()
        if workers == "threads":
            for _ in others:
                assert sent.acquire(timeout=30)
            agents = server._agents.agent._threads
            while len(agents._waiting) < 6:
                pass
            policy.free.set()
        for thread in (first, *others):
            thread.join(30)
    assert answers == {number: -number if number == 5 else number for number in range(1, 8)}
    assert sum(policy.batches) == 7
    if workers == "threads":
        assert policy.batches == [1, 6]


def on_a_loop(batched: Batched, states: list[Any]) -> list[Any]:
    """What agents of one loop are told of observations that come in one turn."""

    async def act() -> list[Any]:
        hosts = []
        for _ in states:
            hosts.append(AgentHandler(AgentFactory(batched, None, LoggingMetrics()), "peer"))
            hosts[-1].answer({"command": "init", "exploit": False})
        replies = [
            host.answer({"command": "update", "state": state})
            for host, state in zip(hosts, states, strict=True)
        ]
        found: dict[int, Any] = {}
        for place, reply in enumerate(replies):
            if isinstance(reply, dict):
                found[place] = reply
            else:
                reply.add_done_callback(lambda it, place=place: found.update({place: it.result()}))
        for _ in range(100):
            await asyncio.sleep(0)
        return [found[place] for place in range(len(states))]

    return [reply.get("data", reply.get("message")) for reply in asyncio.run(act())]


def test_one_turn_of_a_loop_is_one_batch() -> None:
    policy = Policy()
    found = on_a_loop(Batched(policy), [np.full(2, number, np.float32) for number in range(64)])
    assert found == list(range(64))
    assert policy.batches == [64]


@pytest.mark.parametrize(
    ("states", "batches"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], [np.array([[1.0, 2.0], [3.0, 4.0]])]),
        ([[1.0, 2.0], np.array([3.0, 4.0])], [np.array([[1.0, 2.0], [3.0, 4.0]])]),
        ([[1.0, 2.0], [3.0]], [np.array([[1.0, 2.0]]), np.array([[3.0]])]),
        ([[1.0], [2], [2.0]], [np.array([[1.0], [2.0]]), np.array([[2]])]),
        ([[1.0], ["a"]], [np.array([[1.0]]), np.array([["a"]])]),
        ([2.0, 3.0], [np.array([2.0, 3.0])]),
        ([[], []], [np.empty((2, 0))]),
        ([[[1.0, 2.0]], [[3.0, 4.0]]], [np.array([[[1.0, 2.0]], [[3.0, 4.0]]])]),
        ([np.ones((2, 3), "u1")] * 2, [np.ones((2, 2, 3), "u1")]),
        ([{"a": [1.0], "b": 2}] * 2, [{"a": np.ones((2, 1)), "b": np.array([2, 2])}]),
    ],
)  # fmt: skip
def test_what_the_policy_is_given(states: list[Any], batches: list[Any]) -> None:
    seen: list[Any] = []

    def policy(observations: Any) -> Any:
        seen.append(observations)
        return np.zeros(len(observations["a"] if isinstance(observations, dict) else observations))

    on_a_loop(Batched(policy), states)
    for found, wanted in zip(seen, batches, strict=True):
        pairs = (
            [(found[key], wanted[key]) for key in wanted]
            if isinstance(wanted, dict)
            else [(found, wanted)]
        )
        for one, other in pairs:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_a_bad_observation_harms_nobody_else_s() -> None:
    good, odd, bad = np.full(2, 3, np.float32), np.full(5, 4, np.float32), np.full(7, -1.0)
    said = "can't update state: ValueError: below zero"
    assert on_a_loop(Batched(Policy()), [good, odd, bad]) == [3, 4, said]
    assert on_a_loop(Batched(Policy()), [[1.0, 2.0], [-1.0, 2.0]]) == [said, said]  # one batch
    space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    found = on_a_loop(Batched(Policy(), space), [good, odd, None])
    assert found[0] == 3
    assert "EncodeError: the observation must have shape (2,), not (5,)" in found[1]
    assert "an update without a state" in found[2]


def test_openpi_s_clients_share_it() -> None:
    def policy(observations: Any) -> Any:
        return {"actions": observations["state"] * 2.0, "count": np.arange(len(observations))}

    with (
        PolicyServer(Batched(policy), "localhost:0", threads=4) as server,
        Client(str(server.address)) as client,
    ):
        found = client.infer({"state": np.ones(3, np.float32)})
    np.testing.assert_array_equal(found["actions"], np.full(3, 2.0))


def test_what_is_no_policy() -> None:
    with pytest.raises(TypeError, match="must be callable"):
        Batched(3)
    with pytest.raises(ValueError, match="the policy returned 1 actions for 2"):
        Batched(lambda observations: [1])._called([agent(), agent()])
    assert pickle.loads(pickle.dumps(Batched("json:dumps")))._policy is json.dumps


def agent() -> Any:
    made = Batched(len)()
    made.observation = np.zeros(2)
    return made

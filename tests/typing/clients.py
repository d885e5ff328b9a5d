"""What a type checker knows of clients that are written once: checked by mypy, never run."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

from rlwire.codecs.dm_env_rpc import ActionObservationSpecs, StepResult
from rlwire.dm_env_rpc import AsyncClient, Client
from rlwire.openpi import AsyncClient as AsyncPolicyClient
from rlwire.openpi import Client as PolicyClient
from rlwire.perlert import AsyncClient as AsyncAgent
from rlwire.perlert import Client as Agent
from rlwire.rlx import AgentProxy, AsyncAgentProxy, Server
from rlwire.sessions.perlert.client import Frame
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.universe.rewarder import AsyncRewarderClient, RewarderClient


def blocking(
    policy: PolicyClient, proxy: AgentProxy, client: Client, agent: Agent, rewarder: RewarderClient
) -> None:
    with policy as same:
        assert_type(same, PolicyClient)
        assert_type(same.infer({}), dict[str, Any])
        same.infer(7)  # type: ignore[arg-type]
        same.reset(7)  # type: ignore[call-arg]
    proxy.connect(retry=3)
    proxy.connect(retries=3)  # type: ignore[call-arg]
    assert_type(client.create_world({"level": 3}), str)
    assert_type(client.join_world(), ActionObservationSpecs)
    assert_type(client.step(), StepResult)
    assert_type(client.reconnect(), ActionObservationSpecs | None)
    assert_type(agent.frame(timeout=1.0), Frame)
    assert_type(rewarder.reset(seed=3), str)
    assert_type(rewarder.step(0.5), RewarderStep)


async def asyncio(
    policy: AsyncPolicyClient,
    proxy: AsyncAgentProxy,
    client: AsyncClient,
    agent: AsyncAgent,
    rewarder: AsyncRewarderClient,
) -> None:
    async with policy as same:
        assert_type(same, AsyncPolicyClient)
        assert_type(await same.infer({}), dict[str, Any])
        await same.infer(7)  # type: ignore[arg-type]
    await proxy.connect(retry=3)
    await proxy.connect(retries=3)  # type: ignore[call-arg]
    assert_type(await client.create_world({"level": 3}), str)
    assert_type(await client.join_world(), ActionObservationSpecs)
    assert_type(await client.step(), StepResult)
    assert_type(await client.reconnect(), ActionObservationSpecs | None)
    assert_type(await agent.frame(timeout=1.0), Frame)
    assert_type(await rewarder.reset(seed=3), str)
    assert_type(await rewarder.step(0.5), RewarderStep)


def options(agent: type) -> None:
    Server(agent, "localhost:0", workers="asyncio", images="array", max_connections=3)
    Server(agent, workers="fibres")  # type: ignore[arg-type]
    Server(agent, worker=3)  # type: ignore[call-arg]
    AgentProxy("localhost:1", limits=3)  # type: ignore[arg-type]

"""An agent in a process of its own: plays one run and writes what it saw as JSON.

Arguments: the server's lobby, the instance, the slot, how it is played, and a key or "-".
"""

import asyncio
import json
import sys

import numpy as np
from gymnasium import spaces

import rlwire
from rlwire.codecs.perlert import text_to_array, text_to_mapping
from rlwire.perlert import AsyncClient, Client

SPACE = spaces.Box(-np.inf, np.inf, (18,), np.float32)


def numbers(text):
    return text_to_array(text, np.float32, shape=(18,)).tolist()


def record(seen, frame):
    seen.append((frame.step, numbers(frame.observation), frame.reward))
    return text_to_mapping(frame.extra)["total"]


def with_client(address, instance, agent, key):
    seen = []
    with Client(address, instance, tag=agent, auth=key) as client:
        client.register(agent)
        client.ready()
        client.wait_start(30)
        done = False
        while not done:
            frame = client.frame(10)
            total = record(seen, frame)
            done = frame.done
            if not done:
                client.act(frame.step % 5)
        return seen, total, client.statistics()


async def with_async_client(address, instance, agent, key):
    seen = []
    async with AsyncClient(address, instance, tag=agent, auth=key) as client:
        await client.register(agent)
        client.ready()
        await client.wait_start(30)
        done = False
        while not done:
            frame = await client.frame(10)
            total = record(seen, frame)
            done = frame.done
            if not done:
                client.act(str((frame.step + 1) % 5))
        return seen, total, client.statistics()


def with_environment(address, instance, agent, key):
    env = rlwire.make(
        f"perlert://{address}/{instance}",
        observation_space=SPACE,
        action_space=spaces.Discrete(5),
        agent=agent,
        tag=agent,
        auth=key,
    )
    observation, info = env.reset()
    seen = [(info["step"], observation.tolist(), 0.0)]
    total = 0.0
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step((info["step"] + 2) % 5)
        seen.append((info["step"], observation.tolist(), reward))
        total += reward
        over = terminated or truncated
    assert truncated
    statistics = env.endpoint.client.statistics()
    env.close()
    return seen, total, statistics


def main():
    address, instance, agent, how, key = sys.argv[1:]
    arguments = address, instance, agent, None if key == "-" else bytes.fromhex(key)
    if how == "client":
        result = with_client(*arguments)
    elif how == "async":
        result = asyncio.run(with_async_client(*arguments))
    else:
        result = with_environment(*arguments)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()

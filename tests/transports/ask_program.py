"""One server on an event loop and some blocking clients that ask it, over a bad network.

Prints as JSON what came of it. Arguments: how many clients, how many questions each, ``cipher`` or
``plain``, and seconds until a question is asked again. See `bad_network.py` for the environment.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from rlwire.errors import ConnectionClosed
from rlwire.transports import udp, udp_asyncio
from rlwire.transports.datagram_cipher import DatagramCipher


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sessions = load("datagram_sessions")


def client(
    address: tuple[str, int], questions: int, key: bytes | None, resend: float
) -> dict[str, Any]:
    texts = [b"question %d" % number for number in range(questions)]
    cipher = None if key is None else DatagramCipher(key, "client")
    events = []
    with udp.connect(
        address, lambda server: sessions.Asks(server, texts, resend=resend), cipher=cipher
    ) as connection:
        session: Any = connection.session
        session.begin(connection.now())
        try:
            while True:
                events += connection.wait(20)
        except ConnectionClosed:
            pass
        return {
            "right": events == [b"%d %s" % pair for pair in enumerate(texts, 1)],
            "resends": session.resends,
            "repeated": session.repeated,
            "foreign": session.foreign,
            **connection.statistics(),
        }


async def main(clients: int, questions: int, key: bytes | None, resend: float) -> dict[str, Any]:
    session = sessions.Answers()
    cipher = None if key is None else DatagramCipher(key, "server")
    bind, host = os.environ["BAD_NETWORK_BIND"], os.environ["BAD_NETWORK_HOST"]
    async with await udp_asyncio.serve(
        f"{bind}:0", session, on_events=lambda events: None, cipher=cipher
    ) as endpoint:
        loop = asyncio.get_running_loop()
        address = (host, endpoint.address.port)
        found = await asyncio.gather(
            *(
                loop.run_in_executor(None, client, address, questions, key, resend)
                for _ in range(clients)
            )
        )
        return {
            "clients": found,
            "peers": len(session.peers),
            "most_often": max(session.seen.values()),
            "reordered": session.reordered,
            **endpoint.statistics(),
        }


if __name__ == "__main__":
    how_many, each, how, pause = sys.argv[1:]
    key = os.urandom(32) if how == "cipher" else None
    print(json.dumps(asyncio.run(main(int(how_many), int(each), key, float(pause)))))

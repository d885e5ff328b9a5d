"""Runs the Autobahn test suite itself against both sides, blocking and asyncio, and prints a table.

    python tests/sessions/websocket/autobahn.py wstest

The suite (autobahntestsuite on PyPI) needs Python 2.7, so pytest does not run this; what it asks is
restated in test_websocket_autobahn.py. The arguments are the command that starts its ``wstest``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlwire.errors import RlwireError
from rlwire.sessions.websocket import RawMessages, WebSocketClientSession, WebSocketServerSession
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer

AWAY = ["12.*", "13.*"]  # compression, which is declined
FUZZER = 9103


class Echo:
    def answer(self, event: Any) -> Any:
        return event

    def failure(self, event: Any, error: Exception) -> Any:
        raise error

    def close(self) -> None:
        pass


def make_session() -> WebSocketServerSession:
    return WebSocketServerSession(RawMessages(), origins="*")


def session_for(path: str) -> WebSocketClientSession:
    return WebSocketClientSession(RawMessages(), f"ws://127.0.0.1:{FUZZER}{path}")


def ask(path: str) -> None:
    with tcp.connect(("127.0.0.1", FUZZER), session_for(path)) as peer:
        while True:
            peer.send(peer.receive())


async def ask_asyncio(path: str) -> None:
    address = ("127.0.0.1", FUZZER)
    async with await tcp_asyncio.connect(address, session_for(path)) as peer:
        while True:
            await peer.send(await peer.receive())


def drive(agent: str, blocking: bool) -> None:
    """Take all cases as a client."""
    with tcp.connect(("127.0.0.1", FUZZER), session_for("/getCaseCount")) as peer:
        count = int(peer.receive())
    name = quote(agent)
    paths = [f"/runCase?case={number + 1}&agent={name}" for number in range(count)]
    for path in [*paths, f"/updateReports?agent={name}"]:
        try:
            if blocking:
                ask(path)
            else:
                asyncio.run(ask_asyncio(path))
        except RlwireError:
            pass  # how each case ends


def clients(wstest: list[str], folder: Path) -> Any:
    spec = folder / "fuzzingserver.json"
    spec.write_text(
        json.dumps(
            {
                "url": f"ws://127.0.0.1:{FUZZER}",
                "outdir": str(folder / "clients"),
                "cases": ["*"],
                "exclude-cases": AWAY,
                "exclude-agent-cases": {},
            }
        )
    )
    suite = subprocess.Popen(
        [*wstest, "-m", "fuzzingserver", "-s", spec], stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(3)
        drive("client, blocking", True)
        drive("client, asyncio", False)
    finally:
        suite.terminate()
        suite.wait()
    return json.loads((folder / "clients" / "index.json").read_text())


async def servers(wstest: list[str], folder: Path) -> Any:
    threads = ThreadServer(
        "127.0.0.1:0", make_session, lambda peer: peer.serve(lambda event: event)
    )
    async with LoopServer("127.0.0.1:0", make_session, make_handler=lambda peer: Echo()) as loop:
        with threads:
            spec = folder / "fuzzingclient.json"
            spec.write_text(
                json.dumps(
                    {
                        "outdir": str(folder / "servers"),
                        "servers": [
                            {"agent": "server, threads", "url": f"ws://{threads.address}"},
                            {"agent": "server, asyncio", "url": f"ws://{loop.address}"},
                        ],
                        "cases": ["*"],
                        "exclude-cases": AWAY,
                        "exclude-agent-cases": {},
                    }
                )
            )
            suite = await asyncio.create_subprocess_exec(
                *wstest, "-m", "fuzzingclient", "-s", str(spec), stdout=subprocess.DEVNULL
            )
            await suite.wait()
    return json.loads((folder / "servers" / "index.json").read_text())


def main() -> None:
    wstest = sys.argv[1:]
    if not wstest:
        sys.exit(__doc__)
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        results = {**asyncio.run(servers(wstest, Path(name))), **clients(wstest, Path(name))}
    bad = 0
    for agent, cases in results.items():
        found = Counter(case["behavior"] for case in cases.values())
        closes = Counter(case["behaviorClose"] for case in cases.values())
        sys.stdout.write(f"{agent}: {len(cases)} cases, {dict(found)}, closing {dict(closes)}\n")
        for number, case in sorted(cases.items()):
            if {case["behavior"], case["behaviorClose"]} - {"OK", "INFORMATIONAL"}:
                sys.stdout.write(f"    {number}: {case['behavior']}, {case['behaviorClose']}\n")
                bad += case["behavior"] != "NON-STRICT"
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

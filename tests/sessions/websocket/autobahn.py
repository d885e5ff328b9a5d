"""Runs the Autobahn test suite itself against both sides: `autobahn.py wstest`, its command, which
needs Python 2.7, so that pytest does not run it. test_autobahn.py restates its cases."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from rlwire.errors import RlwireError
from rlwire.sessions.websocket import WebSocketServerSession
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Backoff
from rlwire.websocket import connect, connect_asyncio

FUZZER = "ws://127.0.0.1:9103"
HOUR = 3600.0


async def echo(peer):
    while True:
        await peer.send(await peer.receive())


async def ask_asyncio(url):
    async with await connect_asyncio(url) as peer:
        await echo(peer)


def ask(url):
    with connect(url) as peer:
        peer.serve(lambda event: event)


def make_session():
    return WebSocketServerSession(origins="*")


@contextlib.contextmanager
def suite(wstest, mode, folder, **options):
    """Run the suite in the block, without its cases of compression, which is declined."""
    cases = {"cases": ["*"], "exclude-cases": ["12.*", "13.*"], "exclude-agent-cases": {}}
    spec = folder / f"{mode}.json"
    spec.write_text(json.dumps({"outdir": str(folder / mode), **cases, **options}))
    process = subprocess.Popen([*wstest, "-m", mode, "-s", spec], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def clients(wstest, folder):
    started = Backoff(attempts=100, first=0.3, longest=0.3)
    with suite(wstest, "fuzzingserver", folder, url=FUZZER):
        with connect(f"{FUZZER}/getCaseCount", backoff=started) as peer:
            count = int(peer.receive())
        for agent in ("client, blocking", "client, asyncio"):
            name = quote(agent)
            paths = [f"runCase?case={number + 1}&agent={name}" for number in range(count)]
            for path in [*paths, f"updateReports?agent={name}"]:
                url = f"{FUZZER}/{path}"
                with contextlib.suppress(RlwireError):  # how each case ends
                    ask(url) if "blocking" in agent else asyncio.run(ask_asyncio(url))


async def servers(wstest, folder):
    where = "127.0.0.1:0"
    with ThreadServer(where, make_session, lambda peer: peer.serve(lambda event: event)) as threads:
        async with LoopServer(where, make_session, echo) as loop:
            asked = [
                {"agent": "server, threads", "url": f"ws://{threads.address}"},
                {"agent": "server, asyncio", "url": f"ws://{loop.address}"},
            ]
            with suite(wstest, "fuzzingclient", folder, servers=asked) as running:
                await asyncio.to_thread(running.wait, HOUR)


def main():
    wstest = sys.argv[1:]
    if not wstest:
        sys.exit(__doc__)
    logging.basicConfig(level=logging.ERROR)
    results = {}
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(servers(wstest, Path(name)))
        clients(wstest, Path(name))
        for index in Path(name).glob("*/index.json"):
            results |= json.loads(index.read_text())
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

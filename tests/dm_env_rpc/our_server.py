"""Our server as a program, for tests that need it in a process of its own.

It prints its port, serves `Voyage` and ends when its standard input does. Argument: the workers.
"""

import sys

from voyage import Voyage

from rlwire.dm_env_rpc import EnvironmentWorlds, Server

if __name__ == "__main__":
    workers = sys.argv[1] if len(sys.argv) > 1 else "threads"
    with Server(
        EnvironmentWorlds(Voyage, accepts=["first"]), "127.0.0.1:0", workers=workers
    ) as server:
        sys.stdout.write(f"{server.address.port}\n")
        sys.stdout.flush()
        sys.stdin.read()

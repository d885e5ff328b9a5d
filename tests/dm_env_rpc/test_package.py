"""What the package offers, and what it needs for it."""

import subprocess
import sys


def test_dm_env_rpc_package_imports_without_extras(tmp_path):
    program = """
import sys
for name in ("hpack", "grpc", "dm_env", "gymnasium", "dm_env_rpc", "google"):
    sys.modules[name] = None
import rlwire.dm_env_rpc as package
from rlwire.errors import MissingExtra
for call in (
    lambda: package.Server(lambda settings: None),
    lambda: package.Client("localhost:1").connect(),
):
    try:
        call()
    except MissingExtra as error:
        print(error.extra)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["gym", "gym"], "")

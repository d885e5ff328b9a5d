"""What the package offers, and what it takes to import it."""

from __future__ import annotations

import json
import subprocess
import sys


def test_it_needs_no_extra(tmp_path):
    program = "import json, sys, rlwire.adapters.perlert; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "numpy" in loaded
    assert not loaded & {"gymnasium", "pettingzoo", "cryptography", "grpc", "dm_env", "pygame"}

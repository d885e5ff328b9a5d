"""What is in a folder of checkpoints."""

import os
import re


def steps(folder):
    """Return the steps of the checkpoints, the latest first."""
    names = " ".join(os.listdir(folder))
    return sorted(map(int, re.findall(r"checkpoint-(\d+)\.msgpack", names)), reverse=True)

"""What is in a folder of checkpoints."""

from __future__ import annotations

import os
import re


def steps(folder: str | os.PathLike[str]) -> list[int]:
    """Return the steps of the checkpoints, the latest first."""
    names = " ".join(os.listdir(folder))
    return sorted(map(int, re.findall(r"checkpoint-(\d+)\.safetensors", names)), reverse=True)

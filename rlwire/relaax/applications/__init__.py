"""Applications: a folder with ``app.yaml``, with RELAAX's names, and ``environment/``.

``rlwire new``, ``generate``, ``config`` and ``run`` create, change and run applications.
"""

from __future__ import annotations

from rlwire.relaax.applications import configuration
from rlwire.relaax.applications.configuration import *
from rlwire.relaax.applications.generating import configurations, configure, generate, new
from rlwire.relaax.applications.running import run

__all__ = ["configurations", "configure", "generate", "new", "run", *configuration.__all__]

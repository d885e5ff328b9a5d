"""The protocols that `rlwire bench` measures, a file each.

Not here: what a row is (`rlwire.bench.provider`).
"""

from __future__ import annotations

from pkgutil import resolve_name

from rlwire.bench.provider import Row

__all__ = ["PROVIDERS", "RIVALS", "load"]

PROVIDERS: dict[str, str] = {
    "rlx": "rlwire.bench.providers.rlx:RLXRow",
    "dm_env_rpc": "rlwire.bench.providers.dm_env_rpc:DmEnvRpcRow",
    "perlert": "rlwire.bench.providers.perlert:PerlertRow",
    "rewarder": "rlwire.bench.providers.rewarder:RewarderRow",
    "openpi": "rlwire.bench.providers.openpi:OpenpiRow",
    "rllink": "rlwire.bench.providers.rllink:RLlinkRow",
    "rfb-raw": "rlwire.bench.providers.rfb:RawRow",
    "rfb-hextile": "rlwire.bench.providers.rfb:HextileRow",
    "rfb-zrle": "rlwire.bench.providers.rfb:ZrleRow",
    "rfb-tight": "rlwire.bench.providers.rfb:TightRow",
}
"""Name to ``module:class``; imported when it is asked for."""

RIVALS: dict[str, str] = {
    "pipe": "rlwire.bench.providers.rivals:PipeRow",
    "zeromq": "rlwire.bench.providers.rivals:ZeromqRow",
    "AsyncVec": "rlwire.bench.providers.rivals:AsyncVectorRow",
    "SubprocVec": "rlwire.bench.providers.rivals:SubprocVecRow",
    "rlmesh": "rlwire.bench.providers.rivals:RLMeshRow",
    "dm_env_rpc.v1": "rlwire.bench.providers.rivals:OriginalDmEnvRpcRow",
}
"""The same of what else is used between an agent and an environment of another process."""


def load(name: str) -> type[Row]:
    """Return the rows' class of the protocol called `name`.

    Raises:
        MissingExtra: what its protocol needs is not installed.
        Absent: the same of a rival.
    """
    row: type[Row] = resolve_name({**PROVIDERS, **RIVALS}[name])
    row.require()
    return row

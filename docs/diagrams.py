"""Prints the diagrams of the documents, from the tables that the program itself uses.

``python docs/diagrams.py dm_env_rpc`` prints the state diagram of docs/protocols/dm_env_rpc.md,
which stands there between two comments; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from rlwire.sessions.dm_env_rpc.states import REQUESTS, TRANSITIONS, nodes

__all__ = ["DIAGRAMS", "between", "dm_env_rpc", "main"]

BEGIN = "<!-- begin: python docs/diagrams.py {} -->\n"
END = "<!-- end -->\n"


def dm_env_rpc() -> str:
    """Return what a connection may ask in which state, as Markdown with Mermaid in it."""
    drawn = [node for node in nodes(TRANSITIONS).values() if node.nexts]
    diagram = ["stateDiagram-v2", f"    [*] --> {drawn[0].state.name}"]
    table = ["| state | leaves it as it is | is refused |", "|---|---|---|"]
    for node in drawn:
        name = node.state.name
        leading: dict[str, list[str]] = {}
        staying: dict[str, list[str]] = {}
        for (request, outcome), following in node.nexts.items():
            if following is node:
                staying.setdefault(request, []).append(outcome)
            elif request not in leading.setdefault(following.state.name, []):
                leading[following.state.name].append(request)
        diagram += [f"    {name} --> {to}: {', '.join(by)}" for to, by in leading.items()]
        kept = [_described(request, staying[request], node.joined) for request in REQUESTS]
        refused = [f"`{request}`" for request in REQUESTS if request not in node.allowed]
        if node.joined and ("destroy_world", "done") not in node.nexts:
            refused.append("`destroy_world` of its own world")
        table.append(f"| {name} | {', '.join(filter(None, kept))} | {', '.join(refused)} |")
    return "\n".join(["```mermaid", *diagram, "```", "", *table, ""])


def _described(request: str, outcomes: list[str], joined: bool) -> str:
    """Name a request if one of these outcomes, after which the state is the same, is no error."""
    if request == "step":
        return "`step` that ends in RUNNING" if "running" in outcomes else ""
    if joined and "done" not in outcomes and "done elsewhere" in outcomes:
        return f"`{request}` of another world"
    return f"`{request}`" if set(outcomes) - {"error"} else ""


def between(text: str, name: str) -> str:
    """Return what stands between the two comments of a diagram in a document."""
    return text.partition(BEGIN.format(name))[2].partition(END)[0]


DIAGRAMS: dict[str, Callable[[], str]] = {"dm_env_rpc": dm_env_rpc}


def main(names: list[str]) -> None:
    """Print diagrams, all of them where none is named."""
    for name in names or DIAGRAMS:
        sys.stdout.write(DIAGRAMS[name]())


if __name__ == "__main__":
    main(sys.argv[1:])

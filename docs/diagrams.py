"""Prints the states of a protocol, from the table that its sessions use.

``python docs/diagrams.py`` prints what docs/protocols/dm_env_rpc.md has between two comments. A
test compares them.
"""

from __future__ import annotations

from rlwire.sessions.dm_env_rpc.states import REQUESTS, TRANSITIONS, nodes

__all__ = ["BEGIN", "END", "dm_env_rpc"]

BEGIN = "<!-- begin: python docs/diagrams.py -->\n"
END = "<!-- end -->\n"


def dm_env_rpc() -> str:
    """Return which requests change, keep or do not fit each state, as Markdown."""
    arrows, table = [], ["| state | requests that keep it | rejected requests |", "|---|---|---|"]
    for node in nodes(TRANSITIONS).values():
        if not node.nexts:
            continue
        name = node.state.name
        leading: dict[str, list[str]] = {}
        staying: dict[str, list[str]] = {}
        for (request, outcome), following in node.nexts.items():
            if following is node:
                staying.setdefault(request, []).append(outcome)
            elif request not in leading.setdefault(following.state.name, []):
                leading[following.state.name].append(request)
        arrows += [f"{name} --{', '.join(by)}--> {to}" for to, by in leading.items()]
        kept = [_described(request, staying[request], node.joined) for request in REQUESTS]
        rejected = [f"`{request}`" for request in REQUESTS if request not in node.allowed]
        if node.joined and ("destroy_world", "done") not in node.nexts:
            rejected.append("`destroy_world` of its own world")
        table.append(f"| {name} | {', '.join(filter(None, kept))} | {', '.join(rejected)} |")
    return "\n".join(["```text", *arrows, "```", "", *table, ""])


def _described(request: str, outcomes: list[str], joined: bool) -> str:
    """Return a request's name if it can succeed with one of the outcomes, otherwise nothing."""
    if request == "step":
        return "`step` that ends in RUNNING" if "running" in outcomes else ""
    if joined and "done" not in outcomes and "done elsewhere" in outcomes:
        return f"`{request}` of another world"
    return f"`{request}`" if set(outcomes) - {"error"} else ""


if __name__ == "__main__":
    print(dm_env_rpc(), end="")

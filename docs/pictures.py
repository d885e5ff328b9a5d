"""Draws the pages' state diagrams for the site. GitHub draws them from Mermaid by itself.

A state is a column, a transition an arrow in a row of its own, so that nothing ever overlaps.
"""

from __future__ import annotations

import re
from html import escape

__all__ = ["replaced", "svg"]

_COLUMN, _ROW, _TOP, _LETTER = 128, 30, 46, 6.6
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.S | re.M)
_TRANSITION = re.compile(r"\s*(\S+) --> ([^\s:]+)(?:: (.*))?\s*")
_OUTSIDE = "[*]"


def replaced(page: str) -> str:
    """Return a page of Markdown with pictures in place of its state diagrams."""
    return _DIAGRAM.sub(lambda found: f"```{{raw}} html\n{svg(found[1])}\n```", page)


def svg(diagram: str) -> str:
    """Return a picture of a state diagram.

    Args:
        diagram: lines of Mermaid, ``state --> state: what leads there``; ``[*]`` is the beginning,
            and the end.

    Raises:
        ValueError: a line is none of these.
    """
    transitions = []
    for line in diagram.strip().splitlines():
        found = _TRANSITION.fullmatch(line)
        if found is None:
            raise ValueError(f"no transition between states: {line!r}")
        transitions.append((found[1], found[2], found[3] or ""))
    states = list(dict.fromkeys(name for each in transitions for name in each[:2]))
    places = {name: (place + 0.5) * _COLUMN for place, name in enumerate(states)}
    bottom = _TOP + _ROW * len(transitions) + 12
    made = [_state(name, places[name], bottom) for name in states]
    width = _COLUMN * len(states)
    for row, (begin, end, label) in enumerate(transitions):
        y = _TOP + _ROW * (row + 1)
        half = len(label) * _LETTER / 2
        middle = max((places[begin] + places[end]) / 2, half + 4)
        width = max(width, int(middle + half) + 4)
        made.append(_arrow(places[begin], places[end], y))
        made.append(f'<text x="{middle:.0f}" y="{y - 6}" class="what">{escape(label)}</text>')
    return (
        f'<svg class="states" viewBox="0 0 {width} {bottom}" role="img" '
        f'style="max-width: {width}px; width: 100%" xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
        f"</defs>{''.join(made)}</svg>"
    )


def _state(name: str, x: float, bottom: int) -> str:
    line = f'<path d="M{x} 38V{bottom}" class="life"/>'
    if name == _OUTSIDE:
        return f'{line}<circle cx="{x}" cy="24" r="6" fill="currentColor"/>'
    size = _COLUMN - 12
    return (
        f'{line}<rect x="{x - size / 2}" y="10" width="{size}" height="28" rx="6"/>'
        f'<text x="{x}" y="28">{escape(name)}</text>'
    )


def _arrow(begin: float, end: float, y: int) -> str:
    loop = f"M{begin} {y - 4}h22v8H{begin}"  # beside the line
    path = loop if begin == end else f"M{begin} {y}H{end}"
    return f'<path d="{path}" class="way" marker-end="url(#tip)"/>'

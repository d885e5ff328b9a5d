"""The directive ``c-header``: C headers on a page of the site.

Each build reads the functions, types and constants with the comments above them, so there is no
second text to maintain. The text around them is in docs/reference/c/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["INCLUDE", "Function", "Outline", "inner_headers", "markdown", "outline"]

INCLUDE = Path(__file__).parent.parent / "rlwire" / "include" / "rlwire"

inner_headers = {"rlwire.h", "rfb_pixels_x86.h", "varint_portable.h", "varint_x86.h"}
"""Headers without a section: rlwire.h includes all others, and other headers include the rest."""

_COMMENT = re.compile(r"/\*.*?\*/[ \t]*\n", re.S)
_FUNCTION = re.compile(
    r"^(?:RLW_\w+ )?((?:static inline )?(?:const )?\w+ \**(?:const )?(rlw_\w+)\([^;{]*?\))\s*[;{]",
    re.M,
)
_TYPE = re.compile(
    r"^typedef (?:struct|enum|union)[^;{]*\{.*?^\} \w+;"
    r"|^#define RLW_\w+\(X\)(?: [^\n]*\\\n)+[^\n]+",
    re.M | re.S,
)
_CONSTANT = re.compile(r"^#define RLW_\w+(?<!_H) +[^\\\n]+$", re.M)
_CODE_OR_MARK = re.compile(r"(^    .*|`[^`\n]*`)|([*<\[])", re.M)


@dataclass(frozen=True)
class Function:
    """A function: its name, its signature in one line, and the comment above it."""

    name: str
    signature: str
    text: str


@dataclass
class Outline:
    """The declarations of a header, in order.

    Attributes:
        text: the comment at the top.
        types: each with the comment above it.
        constants: the lines that define them.
        functions: without their bodies.
    """

    text: str = ""
    types: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


def outline(source: str) -> Outline:
    """Parse the text of a header."""
    comments = {found.end(): found for found in _COMMENT.finditer(source)}
    top = next(iter(comments.values()), None)
    found = Outline(_words(top.group()) if top and top.start() == 0 else "")
    for each in _TYPE.finditer(source):
        above = comments.get(each.start())
        found.types.append((above.group() if above else "") + each.group())
    found.constants += [each.group().rstrip() for each in _CONSTANT.finditer(source)]
    seen = set()
    for each in _FUNCTION.finditer(source):
        if each[2] in seen:  # the preprocessor's other branch
            continue
        seen.add(each[2])
        above = comments.get(each.start())
        text = _words(above.group()) if above else ""
        if text.startswith("----"):  # a heading
            text = ""
        found.functions.append(Function(each[2], " ".join(each[1].split()), text))
    return found


def _words(comment: str) -> str:
    """Return a comment without its marks, with empty and indented lines."""
    inner = comment.strip()[2:-2]
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in inner.split("\n")).strip()


def markdown(found: Outline) -> str:
    """Return an outline as Markdown, with Sphinx's directives for functions."""
    kept = "\n\n".join([*filter(None, ["\n".join(found.constants)]), *found.types])
    parts = [_escaped(found.text), f"```c\n{kept}\n```" if kept else ""]
    for each in found.functions:
        parts.append(f"````{{c:function}} {each.signature}\n\n{_escaped(each.text)}\n````")
    return "\n\n".join(filter(None, parts))


def _escaped(text: str) -> str:
    """Escape what Markdown would read as marks, except in code."""
    return _CODE_OR_MARK.sub(lambda found: found[1] or f"\\{found[2]}", text)


def setup(app: object) -> dict[str, bool]:
    """Register the directive. Only this imports Sphinx: tests read outlines too."""
    from docutils import nodes
    from sphinx.util.docutils import SphinxDirective

    class Headers(SphinxDirective):
        """``c-header`` and the names of headers: a section for each."""

        required_arguments = 1
        optional_arguments = 9

        def run(self) -> list[nodes.Node]:
            sections = []
            for name in self.arguments:
                self.env.note_dependency(str(INCLUDE / name))
                found = outline((INCLUDE / name).read_text("utf-8"))
                sections.append(f"## {name}\n\n{markdown(found)}")
            return self.parse_text_to_nodes("\n\n".join(sections), allow_section_headings=True)

    app.add_directive("c-header", Headers)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True, "parallel_write_safe": True}

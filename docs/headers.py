"""The directive ``c-header``: a C header on a page of the site.

Each build reads the functions, types and constants with the comments above them, so there is no
second text to maintain. The text around them is in docs/reference/c/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["INCLUDE", "Function", "Outline", "inner_headers", "outline"]

INCLUDE = Path(__file__).parent.parent / "rlwire" / "include" / "rlwire"

inner_headers = {"rlwire.h", "rfb_pixels_x86.h", "varint_portable.h", "varint_x86.h"}
"""Headers that nobody includes for their own: all of them, and the two ways behind varint.h."""

_COMMENT = re.compile(r"/\*.*?\*/[ \t]*\n", re.S)
_FUNCTION = re.compile(
    r"^(?:RLW_\w+ )?((?:static inline )?(?:const )?\w+ \**(?:const )?(rlw_\w+)\([^;{]*?\))\s*[;{]",
    re.M,
)
_TYPE = re.compile(r"^typedef (?:struct|enum|union)[^;{]*\{.*?^\} \w+;", re.M | re.S)
_CONSTANT = re.compile(r"^#define RLW_\w+(?<!_H) +[^\\\n]+$", re.M)


@dataclass(frozen=True)
class Function:
    """A function: its name, its signature in one line, and the comment above it."""

    name: str
    signature: str
    text: str


@dataclass
class Outline:
    """What a header declares, in its order.

    Attributes:
        text: the comment at its top.
        types: each with the comment above it, as it stands there.
        constants: their lines.
        functions: without their bodies.
    """

    text: str = ""
    types: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


def outline(source: str) -> Outline:
    """Return what the text of a header declares."""
    comments = {found.end(): found for found in _COMMENT.finditer(source)}
    top = next(iter(comments.values()), None)
    found = Outline(_words(top.group()) if top and top.start() == 0 else "")
    for each in _TYPE.finditer(source):
        above = comments.get(each.start())
        found.types.append((above.group() if above else "") + each.group())
    found.constants += [each.group().rstrip() for each in _CONSTANT.finditer(source)]
    seen = set()
    for each in _FUNCTION.finditer(source):
        if each[2] in seen:  # one of two branches of the preprocessor
            continue
        seen.add(each[2])
        above = comments.get(each.start())
        text = _words(above.group()) if above else ""
        if text.startswith("----"):  # a heading within the header
            text = ""
        found.functions.append(Function(each[2], " ".join(each[1].split()), text))
    return found


def _words(comment: str) -> str:
    """A comment without its marks; empty lines, and what is indented, stay."""
    inner = comment.strip()[2:-2]
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in inner.split("\n")).strip()


def setup(app: object) -> dict[str, bool]:
    """Bring the directive into Sphinx, which is imported only there: tests read outlines too."""
    from docutils import nodes
    from sphinx.util.docutils import SphinxDirective

    class Header(SphinxDirective):
        """``c-header`` and the name of a header."""

        required_arguments = 1

        def run(self) -> list[nodes.Node]:
            path = INCLUDE / self.arguments[0]
            self.env.note_dependency(str(path))
            found = outline(path.read_text("utf-8"))
            shown: list[nodes.Node] = _paragraphs(found.text)
            kept = "\n\n".join([*filter(None, ["\n".join(found.constants)]), *found.types])
            if kept:
                shown.append(nodes.literal_block(kept, kept, language="c"))
            for each in found.functions:
                lines = ["```{c:function} " + each.signature, "```"]
                entry = self.parse_text_to_nodes("\n".join(lines))
                for content in (last for node in entry for last in node.findall(_is_content)):
                    content += _paragraphs(each.text)
                shown += entry
            return shown

    def _is_content(node: nodes.Node) -> bool:
        return type(node).__name__ == "desc_content"

    def _paragraphs(text: str) -> list[nodes.Node]:
        made: list[nodes.Node] = []
        for part in filter(None, re.split(r"\n\s*\n", text)):
            if part.startswith("    "):
                code = re.sub(r"^    ", "", part, flags=re.M)
                made.append(nodes.literal_block(code, code, language="none"))
                continue
            paragraph = nodes.paragraph()
            for number, piece in enumerate(" ".join(part.split()).split("`")):
                paragraph += nodes.literal(text=piece) if number % 2 else nodes.Text(piece)
            made.append(paragraph)
        return made

    app.add_directive("c-header", Header)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True, "parallel_write_safe": True}

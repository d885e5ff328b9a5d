"""The site's pages have every public name and every function of the C headers.

That it builds without a warning is tried where Sphinx is: `.ci/run lint`.
"""

import inspect
import re
import sys
from collections.abc import Hashable
from pathlib import Path
from types import FunctionType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LAYERS = ("rlwire.codecs", "rlwire.sessions", "rlwire.transports", "rlwire.testing")


@pytest.fixture
def public(monkeypatch):
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'gym'")
    return module_of_docs("public", monkeypatch)


@pytest.fixture
def headers(monkeypatch):
    return module_of_docs("headers", monkeypatch)


def module_of_docs(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = __import__(name)
    monkeypatch.setitem(sys.modules, name, module)  # and is forgotten after the test
    return module


def test_every_public_module_is_on_a_page(public):
    pages = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    rooms = re.findall(r"^<!-- public: ([\w.]+) -->$", pages, re.M)
    shown = [module for room in rooms for module in public.on_page(room)]
    assert sorted(shown) == sorted(public.names())
    assert len(shown) > 30


def test_every_public_name_is_described_once(public):
    for module, names in public.names().items():
        text = public.directives(module)
        for name in names:
            asked = re.findall(rf"^\.\. [\w:]+:: (?:{re.escape(module)}\.)?{name}$", text, re.M)
            assert len(asked) == 1, (module, name)
            home = public.home(module, name)
            assert name in public.names()[home]
            assert (home == module) or f"`{home}.{name}`" in text


def test_every_header_is_on_the_page(headers):
    page = (DOCS / "reference" / "headers.md").read_text("utf-8")
    shown = re.findall(r"^```\{c-header\} (\w+\.h)$", page, re.M)
    there = {path.name for path in headers.INCLUDE.glob("*.h")} - headers.inner_headers
    assert sorted(shown) == sorted(there)


def test_every_function_of_a_header_is_found(headers):
    count = 0
    for path in headers.INCLUDE.glob("*.h"):
        source = path.read_text("utf-8")
        found = {each.name: each for each in headers.outline(source).functions}
        defined = set(re.findall(r"^(?![ /*#]).*?\b(rlw_\w+)\([^;]*?[{;]", source, re.M))
        assert found.keys() == defined
        for each in found.values():
            assert re.search(rf"\w[ *]+{each.name}\(.*\)$", each.signature)
        count += len(found)
    assert count > 300


def test_an_outline(headers):
    found = headers.outline(
        "/* Counts.\n *\n *     count 1\n */\n#ifndef RLWIRE_X_H\n#define RLWIRE_X_H\n"
        "#define RLW_MOST 3 /* items */\n"
        "/* What was counted. */\ntypedef struct rlw_count {\n    size_t n;\n} rlw_count;\n\n"
        "/* Adds `n` items. */\nstatic inline rlw_status rlw_add(rlw_count *c,\n"
        "                                 size_t n) {\n    return rlw_other(c, n);\n}\n"
        "static inline size_t rlw_total(const rlw_count *c) { return c->n; }\n#endif\n"
    )
    assert found.text == "Counts.\n\n    count 1"
    assert found.constants == ["#define RLW_MOST 3 /* items */"]
    assert found.types == [
        "/* What was counted. */\ntypedef struct rlw_count {\n    size_t n;\n} rlw_count;"
    ]
    assert [(each.name, each.signature, each.text) for each in found.functions] == [
        ("rlw_add", "static inline rlw_status rlw_add(rlw_count *c, size_t n)", "Adds `n` items."),
        ("rlw_total", "static inline size_t rlw_total(const rlw_count *c)", ""),
    ]


def test_state_diagrams_are_drawn(monkeypatch):
    pictures = module_of_docs("pictures", monkeypatch)
    page = (DOCS / "protocols" / "dm_env_rpc.md").read_text("utf-8")
    drawn = pictures.replaced(page)
    assert "mermaid" not in drawn
    (picture,) = re.findall(r"^```\{raw\} html\n(<svg.*</svg>)\n```$", drawn, re.M)
    root = ElementTree.fromstring(picture)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:4] == ["NOT_JOINED", "TERMINATED", "RUNNING", "INTERRUPTED"]
    assert "step, reset, reset_world" in texts
    assert picture.count('marker-end="url(#tip)"') == page.count(" --> ")
    others = [path for path in DOCS.rglob("*.md") if "mermaid" in path.read_text("utf-8")]
    for path in others:
        assert "mermaid" not in pictures.replaced(path.read_text("utf-8")), path
    with pytest.raises(ValueError, match="no transition between states: 'state a'"):
        pictures.svg("state a")


def test_every_public_class_and_function_is_documented(public):
    missing = []
    for module, names in public.names().items():
        for name in names:
            found = getattr(sys.modules[module], name)
            if not (inspect.isclass(found) or inspect.isroutine(found)):
                continue
            missing += [] if found is Hashable or inspect.getdoc(found) else [f"{module}.{name}"]
            if not inspect.isclass(found) or module.startswith(LAYERS):
                continue
            for member, value in vars(found).items():
                if member.startswith("_") or not isinstance(value, (FunctionType, property)):
                    continue
                if not inspect.getdoc(getattr(found, member)):
                    missing.append(f"{module}.{name}.{member}")
    assert missing == []

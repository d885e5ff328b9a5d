"""The site's pages have every public name and every function of the C headers.

The lane `.ci/run lint` builds the site, without a warning.
"""

import inspect
import re
import sys
from collections.abc import Hashable
from pathlib import Path
from types import FunctionType

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


def test_every_public_module_has_a_reference_page(public):
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


def test_each_header_is_on_one_page_with_existing_functions(headers):
    functions = {
        path.name: {each.name for each in headers.outline(path.read_text("utf-8")).functions}
        for path in headers.INCLUDE.glob("*.h")
        if path.name not in headers.inner_headers
    }
    shown = []
    for page in (DOCS / "reference" / "c").glob("*.md"):
        text = page.read_text("utf-8")
        listed = re.findall(r"^\*\*(\w+\.h)\*\*$", text, re.M)
        assert text.endswith(f"```{{c-header}} {' '.join(listed)}\n```\n")
        assert set(re.findall(r"`(rlw_\w+)`", text)) <= set().union(*functions.values())
        shown += listed
    assert sorted(shown) == sorted(functions)


def test_header_outline_lists_every_function(headers):
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


def test_header_outline_has_text_constants_types_and_functions(headers):
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

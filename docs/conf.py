"""Sphinx's configuration: the checkout's Markdown as a site.

The root of the checkout is the source folder, so links work on GitHub and in the site::

    pip install '.[docs]' && sphinx-build -W --keep-going -c docs . build/site

The build downloads nothing. It warns of a public name that is on no page of docs/reference.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.errors import PycodeError
from sphinx.ext.autodoc.mock import mock
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import public  # noqa: E402

import rlwire  # noqa: E402

# The documentation does not need PyTorch installed.
with mock(["stable_baselines3", "torch"]):
    public.modules()

project = "rlwire"
author = "the authors of rlwire"
project_copyright = "the authors of rlwire, Apache-2.0"
version = release = rlwire.__version__

extensions = ["headers", "myst_parser", "sphinx_copybutton"]
extensions += [f"sphinx.ext.{name}" for name in ("autodoc", "autosummary", "napoleon", "viewcode")]
autosummary_generate = False  # only the tables
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "benchmarks/README.md"]
exclude_patterns = ["build/**", "docs/_static/**", "docs/_templates/**"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 3
# Single backticks in docstrings are names, which link if Sphinx knows them.
default_role = "py:obj"
autodoc_member_order = "bysource"
# Two rooms may have a class of the same name. The link then leads to one of them.
suppress_warnings = ["ref.python"]
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_use_type_comments = False
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "rlwire"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sphinx = False
# Redirects to the first page.
html_additional_pages = {"index": "first.html"}
templates_path = ["_templates"]


def _modules(app: Any, name: str, source: list[str]) -> None:
    """Replace the comments in the reference's pages by a section for each public module."""

    def sections(found: re.Match[str]) -> str:
        return "\n".join(
            f"## {module}\n\n```{{eval-rst}}\n{public.directives(module)}\n```\n"
            for module in public.on_page(found[1])
        )

    source[0] = re.sub(r"^<!-- public: ([\w.]+) -->$", sections, source[0], flags=re.M)
    source[0] = re.sub(r"^<!-- options -->$", lambda _: public.options(), source[0], flags=re.M)


def _words(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Convert Markdown's tables, and replace the docstring of a constant's type."""
    lines[:] = _tables(lines)
    if what == "data" and inspect.cleandoc("\n".join(lines)) == (inspect.getdoc(value) or ""):
        lines[:] = _words_where_written(*name.rpartition(".")[::2])


def _words_where_written(module: str, name: str) -> list[str]:
    """Return the string below a constant in the module of a package that defines it."""
    for other in sorted(each for each in sys.modules if each.startswith(f"{module}.")):
        with contextlib.suppress(PycodeError):
            words = ModuleAnalyzer.for_module(other).find_attr_docs().get(("", name))
            if words:
                return list(words)
    return []


def _tables(lines: list[str]) -> list[str]:
    """Convert Markdown's tables to reStructuredText."""
    made: list[str] = []
    for line in lines:
        if not re.match(r"\s*\|.*\|\s*$", line):
            made.append(line)
        elif not re.match(r"[\s|:-]+$", line):
            if not made or not made[-1].startswith("   "):
                made += ["", ".. list-table::", "   :header-rows: 1", ""]
            first, *more = (cell.strip() for cell in line.strip().strip("|").split("|"))
            made += [f"   * - {first}", *(f"     - {cell}" for cell in more)]
    return made


def _every_public_name(app: Any, env: Any) -> list[str]:
    """Warn of public names that are on no page of the reference."""
    known = env.get_domain("py").objects
    for module, names in public.names().items():
        for name in names:
            if f"{module}.{name}" not in known:
                logging.getLogger(__name__).warning("no page has %s.%s", module, name)
    return []


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _modules)
    app.connect("autodoc-process-docstring", _words)
    app.connect("env-updated", _every_public_name)

"""The files for browsers are installed, and found."""

import pytest

import rlwire.web
from tests.raising import raised


@pytest.mark.parametrize(
    "name", ["rlx.js", "cartpole.js", "cartpole.html", "universe.js", "universe.html", "look.css"]
)
def test_web_files_are_found_by_name(name):
    found = rlwire.web.path(name)
    assert (found.name, found.parent) == (name, rlwire.web.folder())
    assert found.read_text("utf-8")
    assert rlwire.web.path().name == "rlx.js"


@pytest.mark.parametrize("name", ["no.js", "", ".", "..", "../cli.py", "/etc/passwd"])
def test_unknown_web_files_are_rejected(name):
    raised(FileNotFoundError, rlwire.web.path, name)


def test_web_files_load_no_external_resources():
    """A page that teaches how to be careful loads nothing from elsewhere."""
    for file in rlwire.web.folder().iterdir():
        if file.suffix in (".js", ".html"):
            assert "http" not in file.read_text("utf-8")

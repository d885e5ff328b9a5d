"""`python` in a checkout in which nothing is built, as after the README's commands."""

import os
import shutil
from pathlib import Path

import pytest

import rlwire
from tests import programs

ROOT = Path(__file__).parents[1]
INSTALLED = Path(rlwire.__path__[0])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The sources without the compiled modules."""
    folder = tmp_path_factory.mktemp("checkout")
    not_built = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "rlwire", folder / "rlwire", ignore=not_built)
    return folder


def python(checkout, *arguments, path=""):
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONSAFEPATH", None)
    return programs.python(*arguments, cwd=checkout, env=environment)


@pytest.fixture
def site(tmp_path):
    """A folder as site-packages is after a regular install, however rlwire is installed here."""
    (tmp_path / "rlwire").symlink_to(INSTALLED, target_is_directory=True)
    return tmp_path


def test_checkout_uses_the_installed_compiled_modules(checkout, site):
    done = python(
        checkout,
        "-c",
        "import rlwire, rlwire.cli\n"
        "from rlwire.codecs import rlx\n"
        "assert rlx.decode(rlx.encode({'command': 'reset'})) == {'command': 'reset'}\n"
        "print(rlwire.__file__, rlwire.cli.__file__, rlwire.get_include(), sep='\\n')\n",
        path=str(site),
    )
    assert done.returncode == 0, done.stderr
    front, cli, include = map(Path, done.stdout.splitlines())
    assert front.parent == checkout / "rlwire"
    assert cli == site / "rlwire" / "cli.py"
    assert include == site / "rlwire" / "include"


def test_rlwire_command_runs_as_a_module_in_a_checkout(checkout, site):
    done = python(checkout, "-m", "rlwire", "--version", path=str(site))
    assert done.stdout.startswith("rlwire "), done.stderr


def test_checkout_without_compiled_modules_names_the_remedy(checkout):
    # Without site-packages, so that none is installed.
    last = python(checkout, "-S", "-c", "import rlwire").stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: rlwire in {checkout} has no compiled modules")
    assert "pip install ." in last


def test_modules_built_in_place_precede_the_installed(site, tmp_path):
    built = tmp_path / "built"
    built.mkdir()
    (built / "rlwire").symlink_to(INSTALLED, target_is_directory=True)
    done = python(built, "-c", "import rlwire.cli; print(rlwire.cli.__file__)", path=str(site))
    assert done.stdout.strip() == str(built / "rlwire" / "cli.py"), done.stderr

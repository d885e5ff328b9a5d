import importlib
import runpy
import subprocess
import sys

import pytest

import rlwire
from rlwire._imports import after_import
from rlwire.installing import LIBRARIES, install
from tests.raising import raised


def run(program, where):
    """Run it away from the checkout, whose modules may not be compiled."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["numpy", "", None, "dm-env-rpc"])
def test_install_rejects_an_unknown_library(name):
    assert "dm_env_rpc" in str(raised(ValueError, rlwire.install, name))
    assert "dm_env_rpc" in str(raised(ValueError, rlwire.uninstall, name))


IMPORTED = {name: "ray.rllib" if name == "rllib" else name for name in LIBRARIES}


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_install_and_uninstall_are_idempotent(name):
    pytest.importorskip(IMPORTED[name])
    rlwire.uninstall(name)
    rlwire.install(name)
    rlwire.install(name)
    rlwire.uninstall(name)
    rlwire.uninstall(name)


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_install_names_a_missing_library(name, tmp_path):
    program = (
        "import sys\n"
        f"sys.modules[{IMPORTED[name].partition('.')[0]!r}] = None\n"
        "import rlwire\n"
        "try:\n"
        f"    rlwire.install({name!r})\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert name in done.stdout
    assert "pip install" in done.stdout


@pytest.mark.parametrize(("module", "named"), [("absent", False), ("torch.absent", True)])
def test_install_raises_the_error_of_another_missing_module(module, named, monkeypatch):
    monkeypatch.setitem(LIBRARIES, "lerobot", (f"{module}:replace", "lerobot", "torch"))
    caught = raised(ImportError, install, "lerobot")
    assert caught.name == module.partition(".")[0]
    assert ("pip install lerobot" in str(caught)) == named


def test_rlwire_import_loads_no_replaced_library(tmp_path):
    program = (
        "import sys, rlwire; "
        "print([n for n in sys.modules if n.startswith(('dm_env', 'msgpack', 'openpi'))])"
    )
    done = run(program, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_install_rejects_an_unknown_option(name):
    assert "no_such_option" in str(raised(TypeError, install, name, no_such_option=True))


def test_module_is_changed_at_each_import_until_it_is_uninstalled(tmp_path, monkeypatch):
    (tmp_path / "pickling.py").write_text("import missing_at_first\n")
    monkeypatch.syspath_prepend(tmp_path)
    changed = []
    stop = after_import("pickling", changed.append)
    raised(ImportError, importlib.import_module, "pickling")
    (tmp_path / "missing_at_first.py").touch()
    importlib.invalidate_caches()
    module = importlib.import_module("pickling")
    importlib.reload(module)
    raised(ImportError, runpy.run_module, "pickling")  # as `python -m` does, without the change
    stop()
    importlib.reload(module)
    assert changed == [module, module]
    for name in ("pickling", "missing_at_first"):
        del sys.modules[name]

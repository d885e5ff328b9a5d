"""What the compiled modules say of threads without a lock, and of further interpreters."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import rlwire
from tests.programs import python

HERE = Path(__file__).parent
PROGRAM = """
import ctypes, sys
import rlwire.codecs.rlx
from rlwire.codecs import rlx
run = ctypes.PyDLL(sys.argv[1]).run_elsewhere
run.argtypes = [ctypes.c_char_p]
line = b'''
import warnings
warnings.simplefilter("ignore")  # of NumPy, which is not made for this either
import sys
sys.path[:] = {path!r}
try:
    import {module}
except ImportError as problem:
    print("refused:", problem)
else:
    print("loaded")
'''
sys.stdout.flush()
assert run(line) == 0
assert rlx.decode(rlx.encode({{"a": 1}})) == {{"a": 1}}
print("still here")
"""


def test_import_in_a_subinterpreter_is_rejected(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler")
    helper = tmp_path / "interpreter.so"
    subprocess.run([compiler, "-shared", "-fPIC", HERE / "interpreter.c", "-o", helper], check=True)
    path = [entry for entry in sys.path if entry]
    path.append(str(Path(rlwire.__file__).parents[1]))  # an editable install has a finder instead
    for module in ("rlwire.buffers", "rlwire.codecs.rlx"):
        done = python("-c", PROGRAM.format(path=path, module=module), helper)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("refused: "), done.stdout
        assert done.stdout.endswith("still here\n")


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has its lock"
)
def test_import_enables_the_gil():
    done = python("-c", "import sys, rlwire.codecs.rlx; print(sys._is_gil_enabled())")
    assert done.stdout == "True\n"
    assert "has been enabled to load module 'rlwire" in done.stderr

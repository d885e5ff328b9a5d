"""`rlwire headers`: one file that compiles alone."""

import shutil

import pytest

from rlwire.cli import main
from tests.programs import run

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
DIALECTS = (["cc", "-std=c11", "-xc"], ["c++", "-std=c++17", "-xc++"])
needs_compilers = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("c++")), reason="there are no compilers"
)


def written(name, folder, capsys):
    assert main(["headers", *name]) == 0
    header = folder / f"{(name or ['all'])[0]}.h"
    header.write_text(capsys.readouterr().out, "utf-8")
    return header


@needs_compilers
@pytest.mark.parametrize(
    "name", [[], ["rlx"], ["rllink"], ["dm-env-rpc"], ["perlert"], ["msgpack_array"], ["rfb"]]
)
def test_header_compiles_alone(name, tmp_path, capsys):
    header = written(name, tmp_path, capsys)
    assert '#include "' not in header.read_text("utf-8")
    for compiler in DIALECTS:
        program = f'#include "{header.name}"\nint main(void) {{ return 0; }}\n'
        words = [*compiler, *STRICT, "-fsyntax-only", "-I", str(tmp_path), "-"]
        run(words, input=program, cwd=tmp_path, check=True)


@needs_compilers
def test_header_with_numbers_links_from_two_files(tmp_path, capsys):
    header = written(["perlert"], tmp_path, capsys)
    use = "int main(void) { uint8_t to[40]; return rlw_double_to_digits(to, 1.5) != 3; }"
    (tmp_path / "use.c").write_text(f'#include "{header.name}"\n{use}\n')
    (tmp_path / "numbers.cc").write_text(
        f'#define RLW_NUMBERS_IMPLEMENTATION\n#include "{header.name}"\n'
    )
    words = "cc -std=c11 -c use.c -o use.o && c++ -std=c++17 use.o numbers.cc -o use && ./use"
    run(["sh", "-ec", words], cwd=tmp_path, check=True)


def test_unknown_header_is_named(capsys):
    assert main(["headers", "rlxx"]) == 1
    names = capsys.readouterr().err.strip().rpartition("expected one of ")[2].split(", ")
    assert "rlx" in names
    assert "ucs4" not in names
    assert all(main(["headers", name]) == 0 for name in names)


def test_header_names_are_case_insensitive(tmp_path, capsys):
    upper = written(["DM-Env-RPC"], tmp_path, capsys).read_text("utf-8")
    assert upper == written(["dm_env_rpc"], tmp_path, capsys).read_text("utf-8")

"""The C headers, without Python: compiled and run as a simulator's author would.

The tests themselves are in C, beside this file; here they are built and their last line is read.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import rlwire

HERE = Path(__file__).resolve().parent
INCLUDE = Path(rlwire.get_include())
HEADERS = sorted(path.name for path in (INCLUDE / "rlwire").glob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-pedantic", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MESSAGES = int(os.environ.get("MESSAGES", "20_000"))  # run_sanitized by itself takes a million

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(300)]


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="shm.h is for Linux")


def find_compiler(variable: str, names: Sequence[str]) -> list[str]:
    if command := shlex.split(os.environ.get(variable, "")):
        return command
    for name in names:
        if shutil.which(name):
            return [name]
    pytest.skip(f"no compiler: {variable} is not set, and none of {', '.join(names)} is on PATH")


@pytest.fixture(scope="module")
def cc() -> list[str]:
    return find_compiler("CC", ["cc", "gcc", "clang"])


@pytest.fixture(scope="module")
def cxx() -> list[str]:
    return find_compiler("CXX", ["c++", "g++", "clang++"])


@pytest.fixture(scope="module")
def sanitizers(
    cc: list[str], cxx: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of run_sanitized; skips where a program cannot even start under it."""
    folder = tmp_path_factory.mktemp("probe")
    for compiler, name in ((cc, "probe.c"), (cxx, "probe.cpp")):
        (folder / name).write_text("int main(void) { return 0; }\n")
        build = [*compiler, *SANITIZERS, str(folder / name), "-o", str(folder / "probe")]
        for command in (build, [str(folder / "probe")]):
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                pytest.skip(
                    f"{shlex.join(compiler)} cannot build or run programs with "
                    f"{SANITIZERS[0]}: {result.stderr.strip()[:300]}"
                )
    return {
        **os.environ,
        "CC": shlex.join(cc),
        "CXX": shlex.join(cxx),
        "PYTHON": sys.executable,
        "MESSAGES": str(MESSAGES),
        "RLWIRE_INCLUDE": str(INCLUDE),
    }


def build(
    cc: list[str], cxx: list[str], program: Path, sources: Sequence[Path], *flags: str
) -> None:
    """C sources, with numbers.cpp linked to them."""
    common = [*flags, *WARNINGS, f"-I{INCLUDE}"]
    numbers = program.parent / "numbers.o"
    objects = [numbers]
    run([*cxx, "-std=c++17", *common, "-c", INCLUDE / "rlwire" / "numbers.cpp", "-o", numbers])
    for source in sources:
        objects.append(program.parent / f"{source.name}.o")
        run([*cc, "-std=c11", *common, "-c", source, "-o", objects[-1]])
    run([*cxx, *flags, *objects, "-o", program])


def run(command: Sequence[str | Path]) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def outcomes(line: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", line)}


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-DRLW_NO_SIMD"],
        ["-DRLW_NO_INT128", "-DRLW_NO_CHARCONV"],  # the portable paths of numbers
    ],
)
def test_unit_tests(cc: list[str], cxx: list[str], tmp_path: Path, flags: list[str]) -> None:
    program = tmp_path / "units"
    build(cc, cxx, program, sorted(HERE.glob("unit*.c")), "-O2", *flags)
    assert re.fullmatch(r"[1-9]\d+ passed, 0 failed\n", run([program]))


def test_headers_as_cxx17(cxx: list[str], tmp_path: Path) -> None:
    program = tmp_path / "cxx"
    sources = [HERE / "cxx.cpp", INCLUDE / "rlwire" / "numbers.cpp"]
    run([*cxx, "-std=c++17", "-O2", *WARNINGS, f"-I{INCLUDE}", *sources, "-o", program])
    assert run([program]) == "1 passed, 0 failed\n"


@pytest.mark.parametrize("header", HEADERS)
def test_each_header_stands_alone(
    cc: list[str], cxx: list[str], tmp_path: Path, header: str
) -> None:
    for compiler, standard, name in ((cc, "c11", "alone.c"), (cxx, "c++17", "alone.cpp")):
        source = tmp_path / name
        source.write_text(f"#include <rlwire/{header}>\nint main(void) {{ return 0; }}\n")
        run([*compiler, f"-std={standard}", *WARNINGS, f"-I{INCLUDE}", "-fsyntax-only", source])


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O3", "-Os"])
def test_no_warning_at_any_optimization(cc: list[str], tmp_path: Path, level: str) -> None:
    # -O2: the tests themselves
    units = (f"unit_{name}.c" for name in ("rlx", "dm_env_rpc", "numbers", "websocket", "rllink"))
    for name in (*units, "fuzz_perlert.c", "fuzz_msgpack.c", "fuzz_http2.c"):
        source = HERE / name
        run([*cc, "-std=c11", level, *WARNINGS, f"-I{INCLUDE}", "-c", source, "-o", tmp_path / "o"])


# Each has a further outcome that must occur.
DRIVERS = {
    "rlx": "data_found",
    "dm_env_rpc": "in_pieces",
    "perlert": "steps",
    "numbers": "made",
    "websocket": "masked",
    "http2": "messages",
    "msgpack": "arrays",
    "rfb": "inflated",
    "rllink": "tensors",
    "shm": "moved",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[on_linux] if name == "shm" else []) for name in DRIVERS]
)
def test_mutated_messages(cc: list[str], cxx: list[str], tmp_path: Path, name: str) -> None:
    corpus, program = tmp_path / "corpus.bin", tmp_path / name
    run([sys.executable, HERE / "corpus.py", name, corpus])
    build(cc, cxx, program, [HERE / f"fuzz_{name}.c"], "-O2")
    few, again, other = (outcomes(run([program, corpus, "5000", seed])) for seed in ("7", "7", "8"))
    assert few == again  # a finding can be had again by its seed
    assert few != other
    first = outcomes(run([program, corpus, str(MESSAGES), "7"]))
    assert sum(first.values()) - first["whole"] - first[DRIVERS[name]] == MESSAGES
    assert "NO_MEMORY" not in first
    assert [name for name, count in first.items() if not count] == []


@on_linux
def test_run_sanitized(sanitizers: dict[str, str], tmp_path: Path) -> None:
    result = subprocess.run(
        [HERE / "run_sanitized"], cwd=tmp_path, env=sanitizers, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    for name in DRIVERS:
        assert re.search(rf"^fuzz_{name}: {MESSAGES} messages", result.stdout, re.MULTILINE)
    assert re.search(r"^12 passed, 0 failed, \d+ s$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("utf8.h", "if (size - i <= more) return i;", "if (size - i < more) return i;"),
        (
            "varint_portable.h",
            "if ((size_t)(end - to) < rlw_varint_size_of(v)) return NULL;",
            "if (end == to) return NULL;",
        ),
        ("numbers.h", "while (end - p >= 8) {", "while (end - p >= 7) {"),
        ("rfb_pixels_x86.h", "for (; left >= 6; left -= 4,", "for (; left >= 4; left -= 4,"),
    ],
)
def test_run_sanitized_sees_one_byte_too_many(
    sanitizers: dict[str, str], tmp_path: Path, name: str, right: str, wrong: str
) -> None:
    broken = tmp_path / "include"
    shutil.copytree(INCLUDE, broken)
    header = broken / "rlwire" / name
    good = header.read_text()
    bad = good.replace(right, wrong)
    assert bad != good
    header.write_text(bad)
    result = subprocess.run(
        [HERE / "run_sanitized", "units"],
        env={**sanitizers, "RLWIRE_INCLUDE": str(broken), "OPTIMIZE": "0"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    seen = r"AddressSanitizer: (heap|stack)-buffer-overflow|address \w+ with insufficient space"
    assert re.search(seen, result.stderr)
    assert re.search(r"^unit tests: FAILED", result.stdout, re.MULTILINE)
    assert re.search(r"^0 passed, 1 failed, \d+ s$", result.stdout, re.MULTILINE)

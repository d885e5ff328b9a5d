"""The C headers, without Python: builds and runs the tests in C beside this file."""

import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import rlwire
from tests import programs

HERE = Path(__file__).resolve().parent
INCLUDE = Path(rlwire.get_include())
HEADERS = sorted(path.name for path in (INCLUDE / "rlwire").glob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-pedantic", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MESSAGES = int(os.environ.get("MESSAGES", "20_000"))  # run_sanitized by itself takes a million

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(300)]


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="shm.h is for Linux")

# Other processors: the prefix of the compilers, the emulator, further flags.
OTHERS = {
    "aarch64": ("aarch64-linux-gnu", "qemu-aarch64", ()),
    "s390x": ("s390x-linux-gnu", "qemu-s390x", ()),  # big-endian
    # 32 bits, with the 64-bit time_t of Debian 13
    "armhf": ("arm-linux-gnueabihf", "qemu-arm", ("-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64")),
}
ALL = ["here", *(pytest.param(name, marks=pytest.mark.machines) for name in OTHERS)]


@dataclass
class Machine:
    """Compilers for a processor, and what runs their programs on this one."""

    cc: list[str]
    cxx: list[str]
    folder: Path
    flags: Sequence[str] = ("-O2",)
    emulator: Sequence[str] = ()

    def build(self, program, sources, *more, cxx=False):
        """C sources, which may be compiled as C++, with numbers.cpp linked to them."""
        common = [*self.flags, *more, *WARNINGS, f"-I{INCLUDE}", "-c"]
        objects = [self.folder / f"numbers{''.join(more)}.o"]
        compile_cxx = [*self.cxx, "-std=c++17", *common]
        if not objects[0].exists():
            run([*compile_cxx, INCLUDE / "rlwire" / "numbers.cpp", "-o", objects[0]])
        for source in sources:
            objects.append(program.parent / f"{source.name}.o")
            start = [*compile_cxx, "-x", "c++"] if cxx else [*self.cc, "-std=c11", *common]
            run([*start, source, "-o", objects[-1]])
        run([*self.cxx, *self.flags, *objects, "-o", program])

    def run(self, program, *arguments):
        return run([*self.emulator, program, *arguments])


def find_compiler(variable, names):
    if command := shlex.split(os.environ.get(variable, "")):
        return command
    for name in names:
        if shutil.which(name):
            return [name]
    pytest.skip(f"no compiler: {variable} is not set, and none of {', '.join(names)} is on PATH")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    cc = find_compiler("CC", ["cc", "gcc", "clang"])
    cxx = find_compiler("CXX", ["c++", "g++", "clang++"])
    return Machine(cc, cxx, tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def machine(request, here, tmp_path_factory):
    if request.param == "here":
        return here
    prefix, emulator, flags = OTHERS[request.param]
    tools = [f"{prefix}-gcc", f"{prefix}-g++", emulator]
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        pytest.skip(f"not on PATH: {', '.join(missing)}")
    flags = ("-O1", "-static", "-DEMULATED=1", *flags)
    return Machine(tools[:1], tools[1:2], tmp_path_factory.mktemp("other"), flags, [emulator])


@pytest.fixture(scope="module")
def outcomes_here(here):
    """Return what the mutated messages of a name lead to on this processor."""
    return functools.cache(lambda name: mutated(here, name, MESSAGES))


@pytest.fixture(scope="module")
def sanitizers(here, tmp_path_factory):
    """The environment of run_sanitized; skips where a program cannot even start under it."""
    folder = tmp_path_factory.mktemp("probe")
    for compiler, name in ((here.cc, "probe.c"), (here.cxx, "probe.cpp")):
        (folder / name).write_text("int main(void) { return 0; }\n")
        build = [*compiler, *SANITIZERS, str(folder / name), "-o", str(folder / "probe")]
        for command in (build, [str(folder / "probe")]):
            result = programs.run(command)
            if result.returncode:
                pytest.skip(
                    f"{shlex.join(compiler)} cannot build or run programs with "
                    f"{SANITIZERS[0]}: {result.stderr.strip()[:300]}"
                )
    return {
        **os.environ,
        "CC": shlex.join(here.cc),
        "CXX": shlex.join(here.cxx),
        "PYTHON": sys.executable,
        "MESSAGES": str(MESSAGES),
        "RLWIRE_INCLUDE": str(INCLUDE),
    }


def run(command, **options):
    words = [str(part) for part in command]
    result = programs.run(words, timeout=None, **options)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def outcomes(line):
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", line)}


def check_units(machine, program, *flags, **options):
    machine.build(program, sorted(HERE.glob("unit*.c")), *flags, **options)
    assert re.fullmatch(r"[1-9]\d+ passed, 0 failed\n", machine.run(program))


@pytest.mark.parametrize("machine", ALL, indirect=True)
def test_c_unit_tests_pass(machine, tmp_path):
    check_units(machine, tmp_path / "units")


PORTABLE_NUMBERS = ["-DRLW_NO_INT128", "-DRLW_NO_CHARCONV"]


def test_c_unit_tests_pass_on_portable_paths(here, tmp_path):
    check_units(here, tmp_path / "units", "-DRLW_NO_SIMD", *PORTABLE_NUMBERS)


@pytest.mark.parametrize("machine", ALL, indirect=True)
def test_headers_compile_and_run_as_cxx17(machine, tmp_path):
    check_units(machine, tmp_path / "units", cxx=True)


@pytest.mark.parametrize("header", HEADERS)
def test_each_header_compiles_alone(here, tmp_path, header):
    for compiler, standard, name in ((here.cc, "c11", "a.c"), (here.cxx, "c++17", "a.cpp")):
        source = tmp_path / name
        source.write_text(f"#include <rlwire/{header}>\nint main(void) {{ return 0; }}\n")
        run([*compiler, f"-std={standard}", *WARNINGS, f"-I{INCLUDE}", "-fsyntax-only", source])


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O3", "-Os"])
def test_kernels_compile_without_warnings_at_each_optimization(here, tmp_path, level):
    # -O2: the tests themselves
    units = (f"unit_{name}.c" for name in ("rlx", "dm_env_rpc", "numbers", "websocket", "rllink"))
    for name in (*units, "fuzz_perlert.c", "fuzz_msgpack.c", "fuzz_http2.c"):
        command = [*here.cc, "-std=c11", level, *WARNINGS, f"-I{INCLUDE}", "-c", HERE / name]
        run([*command, "-o", tmp_path / "o"])


# Each has a further outcome that must occur.
DRIVERS = {
    "rlx": "data_found", "dm_env_rpc": "in_pieces", "perlert": "steps", "numbers": "made",
    "websocket": "masked", "http2": "messages", "msgpack": "arrays", "rfb": "inflated",
    "rllink": "tensors", "shm": "moved",
}  # fmt: skip


def mutated(machine, name, messages, seed=7, flags=()):
    corpus, program = machine.folder / f"{name}.bin", machine.folder / f"{name}{''.join(flags)}"
    if not program.exists():
        run([sys.executable, HERE / "corpus.py", name, corpus])
        machine.build(program, [HERE / f"fuzz_{name}.c"], *flags)
    return outcomes(machine.run(program, corpus, str(messages), str(seed)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[on_linux] if name == "shm" else []) for name in DRIVERS]
)
def test_fuzz_outcomes_are_complete_and_reproducible(here, name):
    few, again, other = (mutated(here, name, 5000, seed) for seed in (7, 7, 8))
    assert few == again  # a finding can be had again by its seed
    assert few != other
    first = mutated(here, name, MESSAGES)
    assert sum(first.values()) - first["whole"] - first[DRIVERS[name]] == MESSAGES
    assert "NO_MEMORY" not in first
    assert [name for name, count in first.items() if not count] == []


def test_portable_numbers_agree_with_the_c_library(here):
    mutated(here, "numbers", MESSAGES, flags=PORTABLE_NUMBERS)


@pytest.mark.machines
@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("machine", OTHERS, indirect=True)
def test_fuzz_outcomes_on_other_machines_equal_those_here(outcomes_here, machine, name):
    there, expected = mutated(machine, name, MESSAGES), outcomes_here(name)
    if name == "dm_env_rpc" and machine.cc == ["arm-linux-gnueabihf-gcc"]:
        assert there.keys() == expected.keys()  # 32 bits cannot address all shapes
        assert there["BAD_SHAPE"] > expected["BAD_SHAPE"]
    else:
        assert there == expected


@on_linux
@pytest.mark.timeout(900)  # it compiles twelve programs with the sanitizers
def test_run_sanitized_passes(sanitizers, tmp_path):
    result = programs.run([HERE / "run_sanitized"], cwd=tmp_path, env=sanitizers, timeout=None)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    for name in DRIVERS:
        assert re.search(rf"^fuzz_{name}: {MESSAGES} messages", result.stdout, re.MULTILINE)
    assert re.search(r"^12 passed, 0 failed, \d+ s$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("utf8.h", "size - i <= s.more) return i;", "size - i < s.more) return i;"),
        ("varint_portable.h", "(size_t)(end - to) < rlw_varint_size(v))", "end == to)"),
        ("numbers.h", "while (end - p >= 8) {", "while (end - p >= 7) {"),
        ("rfb_pixels_x86.h", "for (; left >= 6; left -= 4,", "for (; left >= 4; left -= 4,"),
    ],
)
def test_run_sanitized_detects_a_one_byte_overrun(sanitizers, tmp_path, name, right, wrong):
    broken = tmp_path / "include"
    shutil.copytree(INCLUDE, broken)
    header = broken / "rlwire" / name
    good = header.read_text()
    bad = good.replace(right, wrong)
    assert bad != good
    header.write_text(bad)
    env = {**sanitizers, "RLWIRE_INCLUDE": str(broken), "OPTIMIZE": "0"}
    result = programs.run([HERE / "run_sanitized", "units"], env=env, timeout=None)
    assert result.returncode == 1
    seen = r"AddressSanitizer: (heap|stack)-buffer-overflow|address \w+ with insufficient space"
    assert re.search(seen, result.stderr)
    assert re.search(r"^unit tests: FAILED", result.stdout, re.MULTILINE)
    assert re.search(r"^0 passed, 1 failed, \d+ s$", result.stdout, re.MULTILINE)

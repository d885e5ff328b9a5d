"""The how-tos: what their install lines install, their programs, and a shell for their commands."""

import importlib.metadata
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import rlwire
from tests import programs

ROOT = Path(__file__).parents[1]
PAGES = {page.stem: page.read_text("utf-8") for page in ROOT.glob("docs/howto/*.md")}
INSTALLED = Path(rlwire.__path__[0])


def code(text, *languages):
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.S | re.M)
    return [block for language, block in blocks if language in (languages or ("python",))]


def compiled(source, folder, *libraries):
    """Compile a program strictly, as C and as C++, and return that in C."""
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    strict = ["cc", "-O2", *strict, f"-I{rlwire.get_include()}"]
    program = Path(source).stem
    for how in (
        ["-std=c11", source, *libraries, "-o", program],
        ["-std=c++17", "-fsyntax-only", "-xc++", source],
    ):
        programs.run([*strict, *how], cwd=folder, check=True)
    return folder / program


def requirements(page, torch=False):
    """What a page's lines install, with the dependencies of rlwire in its place.

    The first line holds for the page. A later one with PyTorch is for a section, whose test is in
    a lane that has it.
    """
    commands = re.findall(r"^pip install ([^&\n]*)", "".join(code(PAGES[page], "sh")), re.M)
    commands[1:] = [each for each in commands[1:] if torch or "torch" not in each]
    words = shlex.split(" ".join(commands))
    extras = set(re.findall(r"\w+", " ".join(word for word in words if word.startswith("."))))
    found = [word for word in words if not word.startswith(".")]
    assert extras <= {*(importlib.metadata.metadata("rlwire").get_all("Provides-Extra") or [])}
    required = importlib.metadata.requires("rlwire") or []
    for _ in range(2):  # an extra may have another
        for each in required:
            own = re.match(r'rlwire\[([\w,-]+)\]; extra == "(\w+)"', each)
            extras |= set(own[1].split(",")) if own and own[2] in extras else set()
    for each in required:
        extra = re.search(r'extra == "(\w+)"', each)
        if not each.startswith("rlwire[") and (extra is None or extra[1] in extras):
            found.append(re.sub(r"(;| and) extra == .*", "", each))
    return found


def run(text, folder):
    """Run a page's programs but those with a file's name, and return how many there are."""
    for commands in re.findall(r"^```sh\n(openssl .*?)```", text, re.S | re.M):
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl")
        programs.run(["sh", "-ec", commands], cwd=folder, check=True)
    for number, block in enumerate(code(text)):
        name = re.match(r"# ([\w/]+\.py)\n", block)
        (folder / (name[1] if name else f"example{number}.py")).write_text(block, "utf-8")
        if name is None:
            programs.python(f"example{number}.py", cwd=folder, timeout=None, check=True)
    return len(code(text))


def shell(folder):
    """Of a shell with this `python` and `rlwire`; its path has no package beside rlwire."""
    (folder / "site").mkdir(parents=True)
    (folder / "site" / "rlwire").symlink_to(INSTALLED, target_is_directory=True)
    (folder / "bin").mkdir()
    for name, words in (("python", ""), ("rlwire", "-m rlwire")):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(folder / "site")}

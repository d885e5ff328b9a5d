"""What the documents name exists, and their examples run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlwire.registry import PROTOCOLS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def names_of_files(text: str) -> set[str]:
    """Words in backticks that look like a file or folder of the project."""
    words = re.findall(r"`([\w./-]+)`", text)
    return {
        word
        for word in words
        if re.match(r"^(\.ci|rlwire|tests|docs|benchmarks)/", word)
        or re.search(r"\w\.(py|pyx|pxd|h|md|toml|c|cpp)$", word)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_exist(page: Path) -> None:
    places = [ROOT, ROOT / "rlwire", ROOT / "rlwire" / "include", page.parent]
    missing = [
        name
        for name in names_of_files(page.read_text("utf-8"))
        if not any((place / name).exists() for place in places)
        and not ("/" not in name and any((ROOT / "rlwire").rglob(name)))
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_tests_exist(page: Path) -> None:
    """As pytest takes them: a method with its class."""
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)+)`", page.read_text("utf-8"))
    missing = []
    for file, names in named:
        *classes, name = names[2:].split("::")
        text = (ROOT / file).read_text("utf-8")
        begins = [f"class {each}\\b" for each in classes] + [
            f"{'    ' * len(classes)}def {name}\\("
        ]
        if not all(re.search(f"^{begin}", text, re.MULTILINE) for begin in begins):
            missing.append(f"{file}{names}")
    assert missing == []


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("README.md", 2),
        ("docs/protocols/rewarder.md", 1),
        ("docs/protocols/rlx.md", 2),
        ("docs/howto/many_environments.md", 2),
        ("docs/howto/own_loop.md", 2),
        ("docs/howto/universe.md", 2),
        ("docs/index.md", 1),
        ("docs/howto/front_door.md", 1),
        ("docs/howto/watch_and_play.md", 1),
        ("docs/protocols/rfb.md", 1),
        ("docs/howto/agents_together.md", 2),
        ("docs/howto/atari.md", 1),
        ("docs/howto/secure.md", 2),
        ("docs/howto/stop.md", 1),
    ],
    ids=str,
)
def test_examples_run(page: str, count: int, tmp_path: Path) -> None:
    found = re.findall(r"^( *)```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S | re.M)
    blocks = [re.sub(f"^{indent}", "", block, flags=re.M) for indent, block in found]
    assert len(blocks) == count
    for commands in re.findall(
        r"^```sh\n(openssl .*?)```", (ROOT / page).read_text("utf-8"), re.S | re.M
    ):
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl")
        subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, check=True)
    for number, block in enumerate(blocks):
        script = tmp_path / f"example{number}.py"
        script.write_text(block, "utf-8")
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr


def test_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"^pip install '.*$", text, re.M) == [
        "pip install '.[bench]' && rlwire bench",
        "pip install '.[test]' && pytest",
    ]


def test_the_front_door_has_every_protocol() -> None:
    text = (ROOT / "docs/howto/front_door.md").read_text("utf-8")
    rows = {
        scheme: int(port) for scheme, port in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", text, re.M)
    }
    assert rows == {scheme: record.port for scheme, record in PROTOCOLS.items()}


def test_how_each_protocol_is_secured_is_told() -> None:
    _, table = (ROOT / "docs/howto/secure.md").read_text("utf-8").split("| protocol | TLS |")
    rows = re.findall(r"^\|([^|]*)\|", table, re.M)
    assert {scheme for row in rows for scheme in re.findall(r"`([\w-]+)`", row)} == set(PROTOCOLS)


def test_options_exist(tmp_path: Path) -> None:
    """Each option of `rlwire` that a page names is one that the program has."""
    helps = "".join(
        subprocess.run(
            [
                sys.executable,
                "-P" if sys.version_info >= (3, 11) else "-I",
                "-m",
                "rlwire",
                *command,
                "--help",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for command in (
            (),
            ("bench",),
            *((command,) for command in ("new", "generate", "config", "run")),
            *(("serve", f"{scheme}://") for scheme in PROTOCOLS),
        )
    )
    for page in PAGES:
        for line in re.findall(r"`(rlwire [^`]+)`", page.read_text("utf-8")):
            for option in re.findall(r"--[\w-]+", line):
                assert option in helps, (page, option)

"""What the documents name exists, and their examples run."""

import ast
import re
import sys
from pathlib import Path

import pytest

from rlwire import cli
from rlwire.registry import PROTOCOLS
from tests import howtos

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def names_of_files(text):
    """Words in backticks that look like a file or folder of the project."""
    return {
        word
        for word in re.findall(r"`([\w./-]+)`", text)
        if re.match(r"^(\.ci|rlwire|tests|docs|benchmarks)/", word)
        or re.search(r"\w\.(py|pyx|pxd|h|md|toml|c|cpp)$", word)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_pages_exist(page):
    places = [ROOT, ROOT / "rlwire", ROOT / "rlwire" / "include", page.parent]
    missing = [
        name
        for name in names_of_files(page.read_text("utf-8"))
        if not any((place / name).exists() for place in places)
        and not ("/" not in name and any((ROOT / "rlwire").rglob(name)))
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_in_pages_resolve(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_named_in_pages_exist(page):
    """As pytest takes them: a method with its class."""
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)+)`", page.read_text("utf-8"))
    missing = []
    for file, names in named:
        *classes, name = names[2:].split("::")
        text = (ROOT / file).read_text("utf-8")
        begins = [f"class {each}\\b" for each in classes]
        begins.append(f"{'    ' * len(classes)}(async )?def {name}\\(")
        if not all(re.search(f"^{begin}", text, re.MULTILINE) for begin in begins):
            missing.append(f"{file}{names}")
    assert missing == []


def test_each_conformance_statement_has_a_file_and_a_test_or_a_reason():
    text = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \| (.+) \| (.*) \| (.+) \|$", text, re.MULTILINE)
    rows = [row for row in rows if row[1] != "statement"]
    assert len(rows) >= 200
    assert len({(section, statement) for section, statement, *_ in rows}) == len(rows)
    incomplete = [
        f"{section}: {statement}"
        for section, statement, done_in, held_by in rows
        if not re.match("not (done|ours): .", held_by)
        and not ("`" in done_in and re.match(r"`(tests/[\w/]+\.py::|\.ci/run )", held_by))
    ]
    assert incomplete == []


EXAMPLES = """README.md docs/index.md docs/protocols/rewarder.md docs/protocols/rfb.md
docs/howto/agents_together.md docs/howto/drop_ins.md
docs/howto/inspect.md docs/howto/many_environments.md docs/howto/policy_server.md
docs/howto/secure.md docs/howto/serve.md docs/howto/universe.md
docs/howto/watch_and_play.md"""


@pytest.mark.parametrize("page", EXAMPLES.split())
def test_examples_in_pages_run(page, tmp_path):
    assert howtos.run((ROOT / page).read_text("utf-8"), tmp_path)


PACKAGES = {"ray": "ray[rllib]"}
USES = {  # what a page's code names: the package that this needs
    r"gym:|like=": "gymnasium", r"dm-env-rpc": "hpack", r"universe(\+\w+)?://|rlx-ws": "msgspec",
    r"ALE/": "ale-py", r"algorithm:pg": "torch", r"--config": "ruamel.yaml",
}  # fmt: skip


@pytest.mark.parametrize("page", howtos.PAGES)
def test_howto_starts_with_the_packages_of_its_programs(page):
    text = howtos.PAGES[page]
    assert re.match(r"# .+\n\n((?!```).+\n)+\n```sh\npip install ", text)
    given = " ".join(howtos.requirements(page, torch=True)) + " "
    given += "gymnasium " if "ray[rllib]" in given else ""
    named = {Path(file).stem for file in re.findall(r"^# ([\w/]+\.py)$", text, re.M)}
    modules = set()
    for node in ast.walk(ast.parse("\n".join(howtos.code(text)))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules.add((getattr(node, "module", None) or node.names[0].name).partition(".")[0])
    modules -= {*sys.stdlib_module_names, *named, "rlwire"}
    wanted = {PACKAGES.get(module, module.replace("_", "-")) for module in modules}
    shown = "".join(howtos.code(text, "python", "sh", ""))
    wanted |= {package for used, package in USES.items() if re.search(used, shown)}
    missing = [each for each in wanted if not re.search(rf"(^| ){re.escape(each)}[ >=\[;]", given)]
    assert missing == []


def test_readme_has_the_benchmark_and_test_commands():
    text = (ROOT / "README.md").read_text("utf-8")
    expected = ["pip install '.[bench]' && rlwire bench", "pip install '.[test]' && pytest"]
    assert re.findall(r"^pip install '\.\[.*$", text, re.M) == expected


def test_page_on_the_front_door_lists_every_protocol():
    text = (ROOT / "docs/howto/front_door.md").read_text("utf-8")
    rows = {name: int(port) for name, port in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", text, re.M)}
    assert rows == {scheme: record.port for scheme, record in PROTOCOLS.items()}


def test_page_on_security_lists_every_protocol():
    _, table = (ROOT / "docs/howto/secure.md").read_text("utf-8").split("| protocol | TLS |")
    rows = re.findall(r"^\|([^|]*)\|", table, re.M)
    assert {scheme for row in rows for scheme in re.findall(r"`([\w-]+)`", row)} == set(PROTOCOLS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_listen_on_loopback_or_with_tls_and_a_secret(page):
    for block in re.split(r"\n\n(?!\s)|\n(?=- )", page.read_text("utf-8")):
        anywhere = r"(0\.0\.0\.0|\[::\])"
        if re.search(rf"://{anywhere}|host\W+{anywhere}|\"{anywhere}:", block):
            assert re.search(r"tls", block, re.I), block
            assert re.search(r"auth|token|password", block), block


def test_options_named_in_pages_exist(capsys):
    for command in (
        (),
        ("bench",),
        *((command,) for command in ("new", "generate", "config", "run")),
        *(("serve", f"{scheme}://") for scheme in PROTOCOLS),
    ):
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([*command, "--help"])
    helps = capsys.readouterr().out
    for page in PAGES:
        for line in re.findall(r"`(rlwire [^`]+)`", page.read_text("utf-8")):
            for option in re.findall(r"--[\w-]+", line):
                assert option in helps, (page, option)

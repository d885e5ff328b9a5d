"""Counts of the package's structure: `python -m tests.structure` prints them, with each place.

- parameters: functions with more than `PARAMETERS` parameters, apart from `self`.
- depth: classes with more than `DEPTH` classes of rlwire above them. Errors and dataclasses are
  left out: a tree of errors and added fields are no calls.
- reach-ins: private attributes of an object of another class, which another file defines.
- probes: `hasattr` and `getattr` of a session or a layer, by which a caller asks what it has.
- circles: modules that import each other, also for types only or within a function.
"""

import ast
import functools
import graphlib
import re
from pathlib import Path

from tests import test_imports

ROOT = Path(__file__).parents[1] / "rlwire"
PARAMETERS = 8
DEPTH = 3

# Documented, in spite of their names.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe", "_field_defaults"}
SESSION = re.compile(r"(?:session|layer|inner)$")
PROBE = re.compile(r"\b(?:hasattr|getattr)\(\s*((?:\w+\.)*\w+)")
CYTHON_DEF = re.compile(
    r"^[ \t]*(?:async )?(?:cp?def [^=\n]*?|def )(\w+)\(((?:[^()]|\([^()]*\))*)\)", re.M
)


@functools.cache  # parsing takes a second
def modules():
    """Each Python module's tree by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def long_signatures():
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = node.args
                names = [each.arg for each in given.posonlyargs + given.args + given.kwonlyargs]
                count = len([each for each in names if each not in ("self", "cls")])
                if count > PARAMETERS:
                    yield f"{name}:{node.lineno} {node.name} has {count} parameters"
    for path in sorted(ROOT.rglob("*.pyx")):
        for match in CYTHON_DEF.finditer(path.read_text("utf-8")):
            given_ = [one for one in re.sub(r"\[[^]]*\]", "", match[2]).split(",") if one.strip()]
            count = len([each for each in given_ if each.strip() not in ("self", "cls", "*", "/")])
            if count > PARAMETERS:
                yield f"{path.relative_to(ROOT.parent)} {match[1]} has {count} parameters"


def _name(node):
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def classes():
    """By name: where a class is, its bases' names, and whether it is a dataclass."""
    found = {}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                data = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
                where = f"{name}:{node.lineno}"
                key = node.name if node.name not in found else f"{name}.{node.name}"
                found[key] = (where, [_name(base) for base in node.bases], data)
    for path in sorted(ROOT.rglob("*.pyx")):
        for match in re.finditer(r"^cdef class (\w+)(?:\(([\w., ]*)\))?:", path.read_text(), re.M):
            bases = [each.strip().rpartition(".")[2] for each in (match[2] or "").split(",")]
            found[match[1]] = (str(path.relative_to(ROOT.parent)), bases, False)
    return found


def deep_classes():
    known = classes()

    def line(name, seen=()):
        if name not in known or name in seen:
            return []
        above = [line(base, (*seen, name)) for base in known[name][1]]
        return [name, *max(above, key=len, default=[])]

    for name, (where, _, data) in known.items():
        path = line(name)
        if len(path) - 1 > DEPTH and not data and not path[-1].endswith(("Error", "Exception")):
            yield f"{where} {' < '.join(path)}"


def reach_ins():
    for name, tree in modules().items():
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        kinds = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        of_file = {each for kind in kinds for each in _names_of(kind)}
        yield from _reach_ins(name, tree, of_file, imported)


def _reach_ins(name, node, own, imported):
    """`own`: the names that the file's classes define."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and re.match("_[^_]", child.attr):
            whose = _name(child.value)
            is_super = isinstance(child.value, ast.Call) and _name(child.value.func) == "super"
            # Of a class, at the module's level: functions that are registered, tables of methods.
            is_class = whose[:1].isupper()
            known = is_super or is_class or whose in {"self", "cls"} | imported
            if not known and child.attr not in own | PUBLIC:
                yield f"{name}:{child.lineno} {ast.unparse(child)}"
        yield from _reach_ins(name, child, own, imported)


def _names_of(kind):
    """Names that a class defines: methods, fields, and what it assigns to `self`."""
    found = {
        node.target.id
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(kind):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and _name(node.value) in ("self", "cls"):
            found.add(node.attr)
    return found


def probes():
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyx")]):
        if path.name == "layer.py":
            continue
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            for match in PROBE.finditer(text):
                if SESSION.search(match[1]):
                    yield f"{path.relative_to(ROOT.parent)}:{number} {text.strip()}"


def circles():
    imports = {name: found - {name} for name, found in test_imports.module_imports().items()}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        yield " < ".join(error.args[1])


COUNTS = {
    "parameters": long_signatures,
    "depth": deep_classes,
    "reach-ins": reach_ins,
    "probes": probes,
    "circles": circles,
}

if __name__ == "__main__":
    for title, count in COUNTS.items():
        found = list(count())
        print(f"{title}: {len(found)}", *found, sep="\n  ")

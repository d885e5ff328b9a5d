"""The package's structure keeps its rules; `python -m tests.structure` prints what breaks one."""

from tests import structure


def test_source_code_violates_no_structure_rule():
    found = {name: list(places()) for name, places in structure.COUNTS.items()}
    assert found == {name: [] for name in structure.COUNTS}

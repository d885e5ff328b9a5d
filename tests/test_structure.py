"""The package's structure keeps its rules; `python -m tests.structure` prints what breaks one."""

import pytest

from tests import structure


@pytest.mark.parametrize("count", structure.COUNTS)
def test_structure_keeps_to_its_rules(count):
    assert list(structure.COUNTS[count]()) == []

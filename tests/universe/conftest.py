"""What the tests of Universe share."""

import pytest

from tests.waiting import eventually


@pytest.fixture
def wait_for():
    return eventually

"""What tests of applications share: a file ``app.yaml`` with a text, read."""

import pytest

from rlwire.relaax.applications import read_application


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "app.yaml"
        path.write_text(text)
        return read_application(path)

    return read

"""A fleet repository in a folder."""

import pytest

from tests.support.checkouts import write_files
from tests.support.fleet_texts import GOOD


@pytest.fixture
def root(tmp_path):
    found = tmp_path / "repo"
    write_files(found, GOOD)
    return found

"""What many rooms need."""

import pytest

from tests.support.fake_clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()

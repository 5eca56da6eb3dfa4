"""Every mutation still has its one place in the product, and tests that are there."""

import pytest

from tests.mutants.__main__ import ROOT
from tests.mutants.mutations import ALL, Mutation, places


@pytest.mark.parametrize("mutation", ALL, ids=lambda one: one.name)
def test_each_applies_once(mutation: Mutation) -> None:
    ((file, text),) = places(mutation, ROOT)
    assert text != file.read_text()
    compile(text, str(file), "exec")
    assert all((ROOT / one).exists() for one in mutation.tests)

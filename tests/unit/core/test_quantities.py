"""Which quantities are equal."""

import pytest

from reconciler.core.normalize import canonical_quantity

QUANTITIES = {
    "1": "1",
    1: "1",
    0.5: "0.5",
    1e22: "10000000000000000000000",
    "500m": "0.5",
    "0.5": "0.5",
    ".5": "0.5",
    "5.": "5",
    "+5": "5",
    "-5": "-5",
    "-0": "0",
    "1000m": "1",
    "1500u": "0.0015",
    "3n": "0.000000003",
    "0.1n": "0.000000001",
    "1k": "1000",
    "1Ki": "1024",
    "1024Mi": "1073741824",
    "1Gi": "1073741824",
    "1.5Gi": "1610612736",
    "1E": "1000000000000000000",
    "1Ei": "1152921504606846976",
    "1E3": "1000",
    "1e3": "1000",
    "1e-3": "0.001",
    "1e+3": "1000",
}


@pytest.mark.parametrize(("quantity", "want"), QUANTITIES.items())
def test_canonical_quantity(quantity, want):
    assert canonical_quantity(quantity) == want


@pytest.mark.parametrize(
    "text",
    ["", ".", "m", "1K", "1mi", "1 Gi", "1e", "1e1000", "--1", "0x1", "\u0661", "9" * 65, "1\n"],
)
def test_what_is_not_a_quantity(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        canonical_quantity(text)

"""Kubernetes quantities such as `1Gi`, `0.5` and `500m`: which are equal.

Refuses to know what is measured.
"""

import re
from typing import Final

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_MAX_LENGTH: Final = 64
_NANO: Final = 9


def canonical_quantity(quantity: str | int | float) -> str:
    """Return the quantity as a plain decimal number, such as `1073741824` or `0.5`.

    Digits below a billionth are rounded up, as API servers do. Raises ValueError with a sentence.
    """
    text = str(quantity)
    found = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None or not (found["whole"] or found["fraction"]):
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a quantity such as 500m, 1.5 or 2Gi")
    fraction = found["fraction"] or ""
    power, factor = _scale(found["suffix"] or "")
    power += _NANO - len(fraction)
    nanos = int(found["whole"] + fraction) * factor
    nanos = nanos * 10**power if power >= 0 else -(-nanos // 10**-power)
    whole, rest = divmod(nanos, 10**_NANO)
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if nanos and found['sign'] == '-' else ''}{whole}{decimals}"


def _scale(suffix: str) -> tuple[int, int]:
    """Return the power of ten and the factor that a suffix stands for."""
    if suffix in _BINARY:
        return 0, 1 << _BINARY[suffix]
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], 1
    return int(suffix[1:]), 1

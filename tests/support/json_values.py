"""Any JSON, for laws."""

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

NO_OBJECTS: Final[tuple[Any, ...]] = (None, 7, "x", [], [7])


def json_values(
    texts: SearchStrategy[str], leaves: int, *more: SearchStrategy[Any], size: int = 3
) -> SearchStrategy[Any]:
    """Draw values with some texts and all numbers; `more` in place of all integers."""
    floats = st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.one_of(st.none(), st.booleans(), floats, texts, *(more or [st.integers()])),
        lambda one: st.lists(one, max_size=size) | st.dictionaries(texts, one, max_size=size),
        max_leaves=leaves,
    )

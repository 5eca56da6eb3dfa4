"""Law 6: identity is a uid; what carries none decides nothing, unless all had one."""

import pytest

from reconciler.core import keys
from reconciler.core.identity import Life, compare, of_mark

LIVES = {
    "the recorded one": ("a", "a", False, Life.SAME),
    "made again under its name": ("b", "a", False, Life.ANOTHER),
    "of a time without uids": ("a", "", False, Life.UNKNOWN),
    "without uid, though all were stamped": ("a", "", True, Life.ANOTHER),
    "stamped": ("a", "a", True, Life.SAME),
    "not read": ("", "a", False, Life.UNKNOWN),
    "not read, though all were stamped": ("", "a", True, Life.UNKNOWN),
}


@pytest.mark.parametrize(("found", "recorded", "stamped", "life"), LIVES.values(), ids=LIVES)
def test_a_life_is_known_by_its_uid(found: str, recorded: str, stamped: bool, life: Life) -> None:
    marked = {"metadata": {"annotations": {keys.CLAIM_UID: recorded}}} if recorded else None
    assert compare(found, recorded, stamped=stamped) is life
    assert of_mark(found, marked, keys.CLAIM_UID, stamped=stamped) is life

"""What becomes of copies whose origin is absent, and what a confirmation means (T3)."""

from datetime import timedelta

import pytest

from konnector.claim import orphans
from konnector.claim.orphans import Confirmation, Terms
from reconciler.core import keys
from reconciler.core.manifest import get_map
from reconciler.core.times import format_time
from tests.support.instance_objects import COPY_PLACE, KIND, copy, on
from tests.support.space_objects import NOW, SPACE

RESOURCE = KIND.resource
SECOND = timedelta(seconds=1)


def orphan(since=NOW, under=""):
    marks = {keys.BOUND: "true", keys.ORPHANED: format_time(since)}
    return copy({"annotations": marks | ({keys.ORPHANED_UNDER: under} if under else {})})


def terms(value="", came=None, grace=None):
    return Terms(RESOURCE, Confirmation(value, came), grace)


OTHERS = f"others.example, {RESOURCE}"
GOES = {
    "nobody confirms": (orphan(), terms(), False),
    "confirmed": (orphan(), terms(RESOURCE), True),
    "with others": (orphan(), terms(OTHERS), True),
    "others confirmed": (orphan(), terms("others.example"), False),
    "part of a name is no name": (orphan(), terms("databases"), False),
    "a word for all there is none": (orphan(), terms("all"), False),
    "orphaned while the confirmation stood": (orphan(under=RESOURCE), terms(RESOURCE), False),
    "under an earlier one": (orphan(under=RESOURCE), terms(OTHERS), True),
    "under the same, that was given again since": (
        orphan(NOW - SECOND, RESOURCE), terms(RESOURCE, NOW), True,
    ),
    "under the same, just after it was given again": (
        orphan(NOW, RESOURCE), terms(RESOURCE, NOW + SECOND / 2), False,
    ),
    "after its grace": (orphan(NOW - 2 * SECOND), terms(grace=2 * SECOND), True),
    "before it": (orphan(NOW - SECOND), terms(grace=2 * SECOND), False),
    "no orphan": (copy(), terms(RESOURCE, grace=SECOND), False),
    "since nobody knows when": (
        copy({"annotations": {keys.ORPHANED: "yes"}}), terms(RESOURCE, grace=SECOND), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("live", "on_terms", "goes"), GOES.values(), ids=GOES.keys())
def test_what_may_go(live, on_terms, goes):
    assert orphans.may_go(live, on_terms, NOW) is goes


def test_what_becomes_an_orphan_under_a_confirmation_says_so_and_is_not_meant():
    for value, marks in ((RESOURCE, {keys.ORPHANED_UNDER: RESOURCE}), ("others.example", {})):
        patch = orphans.mark(KIND, copy(), terms(value), NOW)
        marked = get_map(patch.body, "metadata", "annotations")
        assert marked == {keys.ORPHANED: format_time(NOW), **marks}
        assert not orphans.may_go(on(COPY_PLACE, {"annotations": marked}), terms(value), NOW)


def test_a_confirmation_comes_when_it_is_seen_to_come():
    first = orphans.follow(None, RESOURCE, NOW, NOW)
    assert first == Confirmation(RESOURCE, None)
    assert orphans.follow(first, RESOURCE, NOW, NOW + SECOND) == first
    gone = orphans.follow(first, "", None, NOW)
    assert gone == Confirmation()
    assert orphans.follow(gone, RESOURCE, NOW, NOW) == Confirmation(RESOURCE, NOW)
    # One that was written long ago came with a restore.
    old = orphans.follow(gone, RESOURCE, NOW - 9 * SECOND, NOW)
    assert old == Confirmation(RESOURCE, NOW - 8 * SECOND)
    assert orphans.follow(gone, RESOURCE, None, NOW) == Confirmation(RESOURCE, None)


def test_a_sentence_has_the_number_the_first_names_and_the_command():
    places = [COPY_PLACE._replace(namespace="dev", name=f"db{one}") for one in range(5)]
    said = orphans.sentence(RESOURCE, places, SPACE)
    assert said.startswith(f"5 copies of {RESOURCE} lack their origin")
    assert "dev/db0, dev/db1, dev/db2 and 2 more" in said
    assert f"klutchctl.dev/confirm-orphans={RESOURCE}" in said
    assert orphans.sentence(RESOURCE, [], SPACE) == ""


def test_the_grace_is_looked_at_when_it_ends():
    assert orphans.changes_in(orphan(NOW - SECOND), terms(grace=3 * SECOND), NOW) == 2 * SECOND
    assert orphans.changes_in(orphan(), terms(), NOW) is None

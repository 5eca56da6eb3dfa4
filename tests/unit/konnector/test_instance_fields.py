"""Who wrote which field of a copy, and what that means for it (H10, H12, H26)."""

from typing import Any

import pytest

from konnector.claim.copies import trimmed_copy
from konnector.claim.decide import Read
from reconciler.core.decision import Apply, Decision
from reconciler.core.manifest import get, put
from tests.support.instance_objects import (
    BOUND,
    CLAIM_UID,
    HELD,
    LARGE,
    LAST_APPLIED,
    READY,
    claim,
    copy,
    look,
    reported,
    written_by,
)

CREATED: Any = {"f:spec": {".": {}, "f:size": {}, "f:note": {}}}
ROOMY = {"size": "1Gi", "note": "n"}


@pytest.mark.parametrize("manager", ["klutch.anynines.com", "konnector"])
def test_a_field_that_was_created_and_is_no_longer_stated_goes(manager):
    """H10: it does only once creating counts as applying, and all of managedFields tells."""
    other = written_by(copy(spec=ROOMY), manager, CREATED)
    assert look(claim(), other) is Read.COPY
    found = look(claim(), other, copy_whole=True)
    assert reported(found) == ["take the copy over", "apply copy"]


def test_a_status_that_a_konnector_once_wrote_is_left_alone():
    wrote: Any = {"f:status": {"f:phase": {}}}
    other = written_by(copy(spec=ROOMY, **READY), "klutch.anynines.com", wrote)
    assert reported(look(claim(**READY), other)) == []


def entry(manager, operation="Update", **fields):
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def test_what_is_kept_of_a_copy_hides_others():
    labels: Any = {"f:team": {}, "f:crossplane.io/claim-name": {}}
    theirs: Any = {"f:metadata": {"f:labels": {".": {}, "f:crossplane.io/claim-name": {}}}}
    ours = {"f:metadata": {"f:labels": labels, "f:ownerReferences": {}}, "f:spec": {"f:a": {}}}
    only = {"f:metadata": {"f:labels": {"f:crossplane.io/claim-name": {}}}, "f:spec": {"f:a": {}}}
    entries = [
        entry("crossplane", **theirs),
        entry("konnector", **ours),
        entry("klutch.anynines.com", "Apply", **only),
        {**entry("klutch.anynines.com", **ours), "subresource": "status"},
    ]
    kept = get(trimmed_copy(copy({"managedFields": entries})), "metadata", "managedFields")
    mine: Any = {"f:labels": {"f:team": {}}, "f:ownerReferences": {}}
    assert kept == [
        entry("konnector", **{"f:metadata": mine, "f:spec": {"f:a": {}}}),
        entry("klutch.anynines.com", "Apply", **{"f:spec": {"f:a": {}}}),
    ]
    assert trimmed_copy(copy()) == copy()


def test_what_others_wrote_inside_of_what_was_empty_is_reported_by_one_field():
    ours: Any = {"f:spec": {"f:m": {}, "f:full": {"f:a": {}}, "f:alone": {}, "f:same": {}}}
    inside: Any = {"f:m": {".": {}, "f:x": {}, "f:y": {}}, "f:full": {"f:b": {}}, "f:same": {}}
    theirs: Any = {"f:spec": {**inside, "f:z": {"f:a": {}}}}
    entries = [entry("klutch.anynines.com", **ours), entry("provider", **theirs)]
    kept = get(trimmed_copy(copy({"managedFields": entries})), "metadata", "managedFields")
    reported_of: Any = {"f:spec": {"f:m": {"f:x": {}}}}
    assert kept == [entries[0], {"manager": "", "fieldsV1": reported_of}]


def test_what_the_original_applied_with_all_it_saw_is_not_applied_again():
    labels = {"team": "orders"}
    fields: Any = {"f:metadata": {"f:labels": {"f:team": {}}}}
    entries = [entry("crossplane", **fields), entry("klutch.anynines.com", "Apply", **fields)]
    other = copy({"annotations": {BOUND: "true"}, "labels": labels, "managedFields": entries})
    assert reported(look(claim(), trimmed_copy(other))) == []
    alone = put(other, entries[1:], "metadata", "managedFields")
    assert look(claim(), trimmed_copy(alone)) is Read.COPY
    assert reported(look(claim(), alone, copy_whole=True)) == ["apply copy"]


def test_an_apply_that_changed_nothing_is_not_repeated():
    """A webhook of the provider may put back what it says, for ever."""
    seen: Any = (claim(spec=LARGE), copy())
    assert reported(look(*seen)) == ["apply copy"]
    assert reported(look(*seen, settled=True)) == []
    assert reported(look(claim(spec=LARGE), copy(**READY), settled=True)) == ["status to status"]


def test_a_field_to_take_away_is_no_loop():
    other = written_by(copy(spec=ROOMY), "konnector", CREATED)
    found = look(claim(), other, copy_whole=True, settled=True)
    assert reported(found) == ["take the copy over", "apply copy"]


def test_what_went_up_before_and_does_not_any_more_is_said_again():
    """A service may have been found by it ever since: only what is said again stays."""
    fields: Any = {
        "f:metadata": {
            "f:labels": {"f:x.example/color": {}, "f:team": {}, "f:tier": {}},
            "f:annotations": {"f:crossplane.io/external-name": {}, f"f:{LAST_APPLIED}": {}},
        },
        "f:spec": {"f:size": {}},
    }
    notes = {BOUND: "true", "crossplane.io/external-name": "db-1", LAST_APPLIED: "{}"}
    theirs = {"theirs": "x", "team": "a", "x.example/color": "blue", "tier": "db"}
    meta = {"labels": theirs, "annotations": notes}
    for entries in (
        [entry("klutch.anynines.com", "Apply", **fields)],
        [entry("konnector", **fields), entry("klutch.anynines.com", "Apply", **{"f:spec": {}})],
    ):
        held = trimmed_copy(copy({**meta, "managedFields": entries}))
        # Nothing else differs, so nothing is written.
        assert reported(look(claim({**HELD, "labels": {"team": "a", "tier": "db"}}), held)) == []
        changed = look(claim({**HELD, "labels": {"team": "b"}}, spec=LARGE), held, copy_whole=True)
        assert isinstance(changed, Decision)
        applied = changed.tasks[-1].steps[-1]
        assert isinstance(applied, Apply)
        assert get(applied.manifest, "metadata", "labels") == {
            "team": "b",
            "x.example/color": "blue",
        }
        assert get(applied.manifest, "metadata", "annotations") == {
            BOUND: "true",
            CLAIM_UID: "uid-dev",
            "crossplane.io/external-name": "db-1",
        }

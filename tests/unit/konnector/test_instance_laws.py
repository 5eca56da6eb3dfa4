"""Laws of the sync: it ends, loses nothing, and never deletes on a guess."""

import json
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from konnector.claim import copies
from konnector.claim.copies import Pair
from konnector.claim.decide import Read, Seen, decide
from konnector.claim.orphans import Terms
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Decision, Delete
from reconciler.core.refs import Kind, ObjectKey
from tests.support.pair_model import Both
from tests.support.space_objects import NOW

KIND = Kind("shop.example", "v1", "Database", "databases")
REGION = Kind("shop.example", "v1", "Region", "regions", namespaced=False)
SPACE = "cluster-a1"
PAIRS = {
    "namespaced": (
        Pair(KIND, SPACE, "uid-of-space", has_status=True),
        ObjectKey("dev", "orders"),
        ObjectKey(f"{SPACE}-dev", "orders"),
    ),
    "cluster-scoped": (
        Pair(REGION, SPACE, "uid-of-space", has_status=True),
        ObjectKey("", "eu"),
        ObjectKey("", f"{SPACE}-eu"),
    ),
}
ROUNDS = 4

leaves = st.sampled_from([1, 2, "x", True, [], [1], ["a", "b"], [{"a": 1}], [{"a": 1, "b": 2}]])
fields = st.sampled_from(["a", "b", "c", "deep"])
inner = st.dictionaries(fields, leaves, max_size=3)
specs = st.dictionaries(fields, st.one_of(leaves, inner), max_size=4)
words = st.dictionaries(
    st.sampled_from(["team", "note", "argocd.argoproj.io/instance", "klutchctl.dev/fleet"]),
    st.sampled_from(["1", "2"]),
    max_size=3,
)
statuses = st.one_of(st.none(), st.dictionaries(fields, leaves, max_size=2))
writers = st.sampled_from([keys.MANAGER_KONNECTOR, keys.MANAGER_ORIGINAL_KONNECTOR])


@st.composite
def states(draw) -> Any:
    """A claim, its copy or none, and what happened to both since."""
    pair, place, copy_place = PAIRS[draw(st.sampled_from(sorted(PAIRS)))]
    both = Both(pair, place, copy_place)
    both.app.create(_claim(draw, pair, place), "kubectl")
    if draw(st.booleans()):
        made = copies.moved(both.app.live, pair.kind, copy_place, pair.marks)
        made["spec"] = draw(specs)
        both.plane.create(made, draw(writers))
        if draw(st.booleans()):
            both.perform(both.look()[0])
        if draw(st.booleans()):
            both.plane.patch({"metadata": {}, "spec": draw(specs)}, "provider")
        status = draw(statuses)
        if status is not None:
            both.plane.patch({"metadata": {}, "status": status}, "provider", "status")
    if draw(st.booleans()):
        marks = {"labels": draw(words), "annotations": draw(words)}
        metadata = {**both.app.live["metadata"], **marks}
        both.app.live = {**both.app.live, "metadata": metadata, "spec": draw(specs)}
    return both


def _claim(draw, pair, place):
    metadata = {"name": place.name, "labels": draw(words), "annotations": draw(words)}
    if place.namespace:
        metadata["namespace"] = place.namespace
    kind = {"apiVersion": pair.kind.api_version, "kind": pair.kind.kind}
    return {**kind, "metadata": metadata, "spec": draw(specs)}


def settle(both):
    for _ in range(ROUNDS):
        decision, _ = both.look()
        if not decision.tasks:
            return
        both.perform(decision)
    raise AssertionError(f"it goes on: {both.look()[0]} {json.dumps(both.plane.live, indent=1)}")


@given(states())
def test_it_ends_and_both_sides_agree(both):
    settle(both)
    claim, copy = both.app.live, both.plane.live
    assert keys.SYNCER in manifest.finalizers_of(claim)
    assert copies.is_managed(claim)
    assert copies.travelling("labels", claim).items() <= manifest.labels_of(copy).items()
    wanted = {**copies.travelling("annotations", claim), **both.pair.marks}
    assert wanted.items() <= manifest.annotations_of(copy).items()
    assert claim.get("status") == copy.get("status")
    assert _holds(copy.get("spec", {}), claim["spec"])


@given(states(), specs, st.booleans())
def test_what_a_claim_states_no_more_goes_and_what_others_wrote_stays(both, spec, provider_writes):
    settle(both)
    if provider_writes:
        both.plane.patch({"metadata": {}, "spec": {"resourceRef": {"name": "x"}}}, "provider")
    both.app.live = {**both.app.live, "spec": spec}
    settle(both)
    held = both.plane.live.get("spec", {})
    others = {
        step[2:]
        for entry in both.plane.live["metadata"]["managedFields"]
        if entry["manager"] == "provider"
        for step in entry["fieldsV1"].get("f:spec", {})
    }
    assert held.keys() - spec.keys() <= others
    assert not provider_writes or held["resourceRef"] == {"name": "x"}


@given(states())
def test_what_is_settled_stays_untouched_by_another_konnector(both):
    settle(both)
    again = Both(both.pair, both.place, both.copy_place, both.app, both.plane)
    assert again.look()[0].tasks == ()


@given(states(), st.booleans())
def test_a_claim_goes_after_its_copy(both, held):
    settle(both)
    if held:
        both.plane.patch({"metadata": {"finalizers": ["provider.example/x"]}}, "provider")
    both.app.delete(manifest.uid_of(both.app.live))
    for _ in range(ROUNDS):
        both.perform(both.look()[0])
        assert both.app.live is not None or both.plane.live is None
    assert (both.app.live is None) is (both.plane.live is None) is not held
    if held:
        assert manifest.is_deleting(both.plane.live)
        both.plane.patch({"metadata": {"finalizers": []}}, "provider")
        settle(both)
        assert both.app.live is None


metadata = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.dictionaries(
            st.sampled_from([keys.BOUND, keys.RELEASED, "note"]), st.just("true"), max_size=3
        ),
        "finalizers": st.lists(st.sampled_from([keys.SYNCER, "x.example/x"]), unique=True),
        "deletionTimestamp": st.just("2026-06-01T12:00:00Z"),
        "labels": words,
    },
)
whole = st.fixed_dictionaries({"metadata": metadata, "spec": specs}, optional={"status": specs})


def _live(part, place):
    identity = {
        "name": place.name,
        "namespace": place.namespace,
        "uid": "u",
        "resourceVersion": "7",
    }
    return part and {**part, "metadata": {**part["metadata"], **identity}}


@st.composite
def looks(draw) -> Any:
    _, place, copy_place = PAIRS["namespaced"]
    claim = _live(draw(st.one_of(st.none(), whole)), place)
    copy = _live(draw(st.one_of(st.none(), whole)), copy_place)
    guards = st.sampled_from(["", "held"])
    return Seen(
        place,
        copy_place,
        claim,
        copy,
        Terms("databases.shop.example", grace=draw(st.sampled_from([None, timedelta(1)]))),
        NOW,
        claim_gone=claim is None and draw(st.booleans()),
        copy_whole=draw(st.booleans()),
        delete_guard=draw(guards),
        create_guard=draw(guards),
        settled=draw(st.booleans()),
        taken="x" if copy is None and draw(st.booleans()) else "",
    )


def steps(found):
    assert isinstance(found, Decision)
    return [step for task in found.tasks for step in task.steps]


@given(looks())
def test_nothing_is_deleted_on_a_guess(seen):
    found = decide(PAIRS["namespaced"][0], seen)
    if isinstance(found, Read):
        return
    deletes = [step for step in steps(found) if isinstance(step, Delete)]
    if not deletes:
        return
    if seen.claim is None:
        assert seen.claim_gone
        assert seen.terms.grace is not None
        assert keys.ORPHANED in manifest.annotations_of(seen.copy)
    else:
        assert not seen.delete_guard
        assert manifest.is_deleting(seen.claim)
        assert keys.SYNCER in manifest.finalizers_of(seen.claim)
    assert not manifest.is_deleting(seen.copy)
    assert seen.claim is None or keys.RELEASED not in manifest.annotations_of(seen.copy)
    assert deletes == [
        Delete(deletes[0].ref, manifest.uid_of(seen.copy), manifest.resource_version_of(seen.copy))
    ]


@given(looks())
def test_no_copy_is_made_before_the_claim_is_held(seen):
    found = decide(PAIRS["namespaced"][0], seen)
    if isinstance(found, Read):
        return
    for task in found.tasks:
        made = [
            step
            for step in task.steps
            if isinstance(step, Create) and step.cluster != "app-cluster"
        ]
        if made:
            first: Any = task.steps[0]
            held = keys.SYNCER in manifest.finalizers_of(seen.claim)
            assert held or keys.SYNCER in manifest.finalizers_of(first.body)
            assert not manifest.is_deleting(seen.claim)
            assert not seen.taken
            assert not (copies.is_managed(seen.claim) and seen.create_guard)


@given(looks())
def test_nothing_is_adopted_or_marked_that_is_on_its_way_out(seen):
    found = decide(PAIRS["namespaced"][0], seen)
    if isinstance(found, Read) or seen.copy is None or not manifest.is_deleting(seen.copy):
        return
    about_the_copy = [
        step
        for step in steps(found)
        if isinstance(step, Create)
        or (getattr(step, "ref", None) and step.ref.cluster != "app-cluster")
    ]
    assert about_the_copy == []


def _holds(live, stated):
    """Return whether all of a map's fields are there, and lists are the same."""
    if isinstance(stated, dict):
        return isinstance(live, dict) and all(_holds(live.get(k), v) for k, v in stated.items())
    return manifest.canonical(live) == manifest.canonical(stated)

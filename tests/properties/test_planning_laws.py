"""Laws of planning, over random fleets, histories and outages."""

import random

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core import keys
from reconciler.core.manifest import drop, get, labels_of, put, uid_of
from reconciler.planning.changes import Action
from reconciler.planning.prune_units import PRUNING
from tests.support import fleet_texts
from tests.support.worlds import World, fleet_of, offering

RESOURCES = ("postgresqlinstances", "servicebindings", "backups")
NAMES = tuple(f"{plural}.anynines.com" for plural in RESOURCES)
CLUSTERS = ("alpha", "beta", "gamma")
BUDGETS = "{prune: {maxDeletes: 1000, maxDeletePercent: 100, allowEmpty: true}}"

# Which cluster binds which resource.
bound = st.frozensets(st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(RESOURCES)))
modes = st.sampled_from(["Direct", "AppClusterBinding"])


def documents(units, mode, clusters=CLUSTERS):
    yield fleet_texts.document("Fleet", "acme", BUDGETS)
    yield fleet_texts.control_plane(more=f", mode: {mode}")
    for name in clusters:
        yield fleet_texts.cluster(name)
    for plural in RESOURCES:
        chosen = sorted(cluster for cluster, resource in units if resource == plural)
        if chosen:
            yield fleet_texts.binding(
                plural, group="anynines.com", plural=plural, clusters=", ".join(chosen)
            )


def fleet(units, mode, clusters=CLUSTERS):
    return fleet_of(fleet=fleet_texts.one_file(*documents(units, mode, clusters)))


def world():
    return World(control_plane=offering(*NAMES), clusters={name: [] for name in CLUSTERS})


def applied(units, mode):
    here = world()
    here.apply(here.plan(fleet(units, mode)))
    return here


@given(units=bound)
def test_a_plan_of_what_a_plan_leads_to_is_empty(units):
    plan = applied(units, "Direct").plan(fleet(units, "Direct"))
    assert {change.action for change in plan.changes} <= {Action.NOOP}


@given(
    before=bound,
    after=bound,
    mode=modes,
    unseen=st.frozensets(st.sampled_from((*CLUSTERS, "eu"))),
)
def test_nothing_that_was_not_seen_is_ever_touched(before, after, mode, unseen):
    here = applied(before, mode)
    here.unseen |= unseen
    plan = here.plan(fleet(after, mode))
    blind = set(CLUSTERS) if "eu" in unseen else unseen
    for change in plan.changes:
        if change.cluster in blind:
            assert change.action is Action.UNKNOWN
    wanted = {cluster for cluster, _ in after} & set(blind)
    assert {c.cluster for c in plan.changes if c.action is Action.UNKNOWN} == wanted
    seen_names = {one.name.removeprefix("control-plane/") for one in plan.unseen}
    assert seen_names == unseen


@given(before=bound, after=bound)
def test_exactly_what_left_is_released_and_nothing_else_is_pruned(before, after):
    plan = applied(before, "Direct").plan(fleet(after, "Direct"))
    pruned = {
        (change.unit.cluster, change.unit.resource)
        for change in plan.changes
        if change.action in PRUNING and change.unit
    }
    assert pruned == before - after
    assert all(change.action is not Action.DELETE for change in plan.changes)


@given(before=bound, after=bound, mode=modes, seed=st.integers(0, 10))
def test_the_order_of_what_is_live_does_not_matter(before, after, mode, seed):
    here = applied(before, mode)
    wanted = fleet(after, mode)
    plan = here.plan(wanted)
    shuffle = random.Random(seed).shuffle
    for objects in (here.control_plane, *here.clusters.values()):
        shuffle(objects)
    assert here.plan(wanted) == plan


MISHAPS = {
    "none": lambda one: one,
    "unlabelled": lambda one: drop(one, "metadata", "labels"),
    "unmarked": lambda one: drop(one, "metadata", "annotations"),
    "of another fleet": lambda one: put(one, "other", "metadata", "labels", keys.FLEET),
    "of another cluster": lambda one: put(one, "beta", "metadata", "labels", keys.CLUSTER),
    "going": lambda one: put(one, "2026-11-21T00:00:00Z", "metadata", "deletionTimestamp"),
}


@given(before=bound, after=bound, mode=modes, seed=st.integers(0, 10_000))
def test_whatever_befalls_objects_only_ours_are_written(before, after, mode, seed):
    here, chance = applied(before, mode), random.Random(seed)
    for objects in (here.control_plane, *here.clusters.values()):
        objects[:] = [MISHAPS[chance.choice([*MISHAPS, *["none"] * 30])](o) for o in objects]
    for change in here.plan(fleet(after, mode)).changes:
        if change.action in (Action.NOOP, Action.BLOCKED, Action.UNKNOWN):
            continue
        there = here.objects(change.ref.cluster)
        live = [one for one in there if change.uid and change.uid == uid_of(one)]
        owners = {labels_of(one).get(keys.FLEET) for one in live}
        leaves = change.action in (Action.RELEASE, Action.DELETE)
        assert owners <= ({"acme"} if leaves else {"acme", None})
        assert leaves or not any(get(o, "metadata", "deletionTimestamp") for o in live)


@given(before=bound, limit=st.integers(0, 9), percent=st.integers(0, 100))
def test_a_budget_holds_all_pruning_or_none(before, limit, percent):
    budget = f"prune: {{maxDeletes: {limit}, maxDeletePercent: {percent}, allowEmpty: true}}"
    text = fleet_texts.one_file(*documents(frozenset(), "Direct"))
    head = "prune: {maxDeletes: 1000, maxDeletePercent: 100, allowEmpty: true}"
    plan = applied(before, "Direct").plan(fleet_of(fleet=text.replace(head, budget)))
    allowed = min(limit, max(1, -(-len(before) * percent // 100)))
    tripped = any(held.guard == "max-deletes" for held in plan.held)
    assert tripped is (len(before) > allowed)

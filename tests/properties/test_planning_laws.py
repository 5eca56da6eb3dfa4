"""Laws of planning, over random fleets, histories and outages; also of narrow plans."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconciler import api
from reconciler.core import keys
from reconciler.core.live import Live
from reconciler.core.manifest import drop, get, labels_of, name_of, namespace_of, put, uid_of
from reconciler.core.refs import CRD, NAMESPACE
from reconciler.observe import read_scope
from reconciler.planning import planner
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


def applied(units, mode):
    here = World(control_plane=offering(*NAMES), clusters={name: [] for name in CLUSTERS})
    here.apply(here.plan(fleet(units, mode)))
    return here


@given(units=bound)
def test_a_plan_of_what_a_plan_leads_to_is_empty(units):
    plan = applied(units, "Direct").plan(fleet(units, "Direct"))
    assert {change.action for change in plan.changes} <= {Action.NOOP}


@given(
    before=bound, after=bound, mode=modes, unseen=st.frozensets(st.sampled_from((*CLUSTERS, "eu")))
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
    assert any(held.guard == "max-deletes" for held in plan.held) is (len(before) > allowed)


WHOLE = (CRD, api.API_SERVICE_EXPORT_TEMPLATE, api.API_SERVICE_BINDING)
UNREAD = {
    "unlabelled": lambda one: drop(one, "metadata", "labels"),
    "unmarked": lambda one: drop(one, "metadata", "annotations"),
    "of another fleet": lambda one: put(one, "other", "metadata", "labels", keys.FLEET),
    "of another cluster": lambda one: put(one, "beta", "metadata", "labels", keys.CLUSTER),
    "of no cluster": lambda one: put(one, "nobody", "metadata", "labels", keys.CLUSTER),
    "of alpha": lambda one: put(one, "uid-alpha", "metadata", "annotations", keys.APP_CLUSTER_UID),
    "released": lambda one: put(
        one, "2026-11-21T00:00:00Z", "metadata", "annotations", keys.RELEASED
    ),
    "leaving": lambda one: put(
        one, "backups.anynines.com=Release", "metadata", "annotations", keys.LEAVING
    ),
    "going": lambda one: put(one, "2026-11-21T00:00:00Z", "metadata", "deletionTimestamp"),
    "with another token": lambda one: put(
        one, api.token_digest("another"), "data", "kubeconfig", "token"
    ),
}


def reads(kind, one, fleet, spaces):
    """Return whether the reads of a part give this object of a control plane."""
    if kind in WHOLE:
        return True
    ours = labels_of(one).get(keys.FLEET) == fleet.name
    if kind == NAMESPACE:
        return ours or name_of(one) in spaces
    return ours if kind == api.APP_CLUSTER_BINDING else namespace_of(one) in spaces


def part_of(fleet, live, cluster):
    seen = live.control_planes["eu"]
    reported = [one for one in seen.objects.get(NAMESPACE, ()) if reads(NAMESPACE, one, fleet, ())]
    spaces = read_scope.spaces(fleet, cluster, reported, live.clusters[cluster])
    objects = {
        kind: [one for one in items if reads(kind, one, fleet, spaces)]
        for kind, items in seen.objects.items()
    }
    return Live({"eu": replace(seen, objects=objects, silent=seen.silent & spaces)}, live.clusters)


@given(before=bound, after=bound, seed=st.integers(0, 10_000), renamed=st.booleans())
def test_a_part_of_a_control_plane_is_enough_to_decide_about_a_cluster(
    before, after, seed, renamed
):
    here, chance = applied(before, "Direct"), random.Random(seed)
    names = CLUSTERS
    if renamed:
        names = ("omega", *CLUSTERS[1:])
        here.clusters["omega"], here.uids["omega"] = here.clusters.pop("alpha"), "uid-alpha"
        after = {("omega" if name == "alpha" else name, what) for name, what in after}
    for objects in (here.control_plane, *here.clusters.values()):
        for place, one in enumerate(objects):
            if not chance.randrange(2 if one["kind"] == NAMESPACE.kind else 12):
                objects[place] = UNREAD[chance.choice([*UNREAD])](one)
    here.silent = {name_of(one) for one in here.control_plane if chance.randrange(2)}
    wanted = fleet(after, "Direct", clusters=names)
    live = here.live(wanted)
    for name in names:
        whole = Live(live.control_planes, {name: live.clusters[name]})
        part = part_of(wanted, whole, name)
        assert planner.decide(wanted, part, only={name}) == planner.decide(
            wanted, whole, only={name}
        )

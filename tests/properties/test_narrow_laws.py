"""A plan of one cluster is the same whether all of its control plane was read, or its part."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconciler import api
from reconciler.core import keys
from reconciler.core.live import Live
from reconciler.core.manifest import drop, labels_of, name_of, namespace_of, put
from reconciler.core.refs import CRD, NAMESPACE
from reconciler.observe import read_scope
from reconciler.planning import planner
from tests.properties.test_planning_laws import CLUSTERS, applied, bound, fleet

WHOLE = (CRD, api.API_SERVICE_EXPORT_TEMPLATE, api.API_SERVICE_BINDING)
MISHAPS = {
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
    """Tell whether the reads of a part give this object of a control plane."""
    if kind in WHOLE:
        return True
    ours = labels_of(one).get(keys.FLEET) == fleet.name
    if kind == NAMESPACE:
        return ours or name_of(one) in spaces
    return ours if kind == api.APP_CLUSTER_BINDING else namespace_of(one) in spaces


def part_of(fleet, live, cluster):
    seen = live.control_planes["eu"]
    told = [one for one in seen.objects.get(NAMESPACE, ()) if reads(NAMESPACE, one, fleet, ())]
    spaces = read_scope.spaces(fleet, cluster, told, live.clusters[cluster])
    objects = {
        kind: [one for one in items if reads(kind, one, fleet, spaces)]
        for kind, items in seen.objects.items()
    }
    part = replace(seen, objects=objects, silent=seen.silent & spaces)
    return Live({"eu": part}, live.clusters)


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
                objects[place] = MISHAPS[chance.choice([*MISHAPS])](one)
    here.silent = {name_of(one) for one in here.control_plane if chance.randrange(2)}
    wanted = fleet(after, "Direct", clusters=names)
    live = here.live(wanted)
    for name in names:
        whole = Live(live.control_planes, {name: live.clusters[name]})
        part = part_of(wanted, whole, name)
        assert planner.decide(wanted, part, only={name}) == planner.decide(
            wanted, whole, only={name}
        )

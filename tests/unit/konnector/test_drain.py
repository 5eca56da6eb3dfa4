"""How a binding is let go (mapping.md 9, protocol-konnector.md C.7, H15, H33)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.binding import drain
from konnector.binding.drain import BATCH, RECHECK, SOMEWHAT_LATER, Seen, decide, syncs, waits
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_NAMESPACE, claim_status
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Delete, Patch, unfinalized
from reconciler.core.manifest import annotations_of, finalizers_of, get_map, get_maps, name_of
from reconciler.core.refs import CRD, SECRET, Kind
from reconciler.core.times import format_time
from tests.kit.json_patch import merged
from tests.support.space_objects import NOW, SPACE, deleting, live, live_like

DATABASE = Kind("shop.example", "v1", "Database", "databases")
TENANT = Kind("shop.example", "v1", "Tenant", "tenants", namespaced=False)
NAME = DATABASE.resource
HERE = f"{SPACE}-dev"
LIFE = f"uid-of-{SPACE}"
BOUND = {keys.BOUND: "true"}
FREED = {keys.RELEASED: format_time(NOW)}
GOING = {"deletionTimestamp": format_time(NOW)}
OTHERS = "somebody.example/x"


def binding(policy=None, *finalizers, goes=False, draining=False):
    notes = {} if policy is None else {keys.DELETION_POLICY: policy}
    if draining:
        notes[keys.DRAINING] = format_time(NOW)
    made = live(API_SERVICE_BINDING, NAME, namespace="klutch-bind")
    made = live_like(made, annotations=notes, finalizers=list(finalizers))
    return live_like(made, **GOING) if goes else made


def leaving(policy: str | None = "Release", **facts):
    return binding(policy, OTHERS, keys.DRAIN, goes=True, **facts)


def copy(name="a", *, namespace=HERE, **annotations):
    made = live(DATABASE, name, namespace=namespace)
    return DATABASE, live_like(made, annotations={**BOUND, "x": "y", **annotations})


def instance(name="a", *finalizers, **annotations):
    made = live(DATABASE, name, namespace="dev")
    return DATABASE, live_like(
        made, annotations={**BOUND, **annotations}, finalizers=list(finalizers)
    )


def held(name="a"):
    return instance(name, OTHERS, keys.SYNCER)


def tenant(name, space=SPACE, life=LIFE, **notes):
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": space, "uid": life}
    marks = {**BOUND, keys.CLUSTER_NAMESPACE: space, **notes}
    return TENANT, live_like(live(TENANT, name), annotations=marks, ownerReferences=[owner])


def secret(name="creds", owner: str | None = keys.OWNER_PROVIDER):
    made = live(SECRET, name, namespace="dev")
    return SECRET, live_like(made, annotations={keys.RESOURCE_OWNER: owner} if owner else {})


def crd(*, owner: str | None = None, group="klutch.anynines.com", manager="klutch.anynines.com"):
    owners = [{"apiVersion": f"{group}/v1", "kind": "APIServiceBinding", "uid": owner}]
    return live_like(
        live(CRD, NAME),
        ownerReferences=owners if owner else [],
        managedFields=[{"manager": "kube-apiserver"}, {"manager": manager, "operation": "Update"}],
    )


def seen(bound, cluster=APP_CLUSTER, **facts):
    lives, within = frozenset({LIFE, "given"}), frozenset({HERE})
    usual = {"space": SPACE, "lives": lives, "service_namespaces": within}
    return Seen(cluster=cluster, binding=bound, **{**usual, **facts})


def only(bound, **facts):
    ((step,),) = (task.steps for task in decide(seen(bound, **facts), now=NOW).tasks)
    assert isinstance(step, Patch)
    return step


def done(decision):
    found = []
    for task in decision.tasks:
        (step,) = task.steps
        reports = isinstance(step, Patch) and "status" in step.body
        assert task.failure == (None if reports else drain.DRAIN_FAILED)
        match step:
            case Patch(ref) if reports:
                found.append(("report", ref.cluster, ref.kind.kind, ref.name))
            case Patch(ref, body) if get_map(body, "metadata", "annotations"):
                found.append(("release", ref.cluster, ref.kind.kind, ref.name))
            case Patch(ref, body):
                verb = "hold" if keys.DRAIN in finalizers_of(body) else "free"
                found.append((verb, ref.cluster, ref.kind.kind, ref.name))
            case Delete(ref):
                found.append(("delete", ref.cluster, ref.kind.kind, ref.name))
    return found


def reasons_of(decision):
    return [one.reason for one in decision.conditions]


LET_GO = [("free", APP_CLUSTER, "APIServiceBinding", NAME)]
HELD = [("hold", APP_CLUSTER, "APIServiceBinding", NAME)]
HOLDING = {
    "one that says how it is let go is": (binding("Release"), HELD),
    "once is enough": (binding("Release", keys.DRAIN), []),
    "one that says it no longer is let go": (binding(None, OTHERS, keys.DRAIN), LET_GO),
    "none is held that goes already": (binding("Release", OTHERS, goes=True), []),
    "one that says so no longer goes without a drain": (leaving(None), LET_GO),
}


@pytest.mark.parametrize(("bound", "steps"), HOLDING.values(), ids=HOLDING.keys())
def test_which_bindings_are_held(bound, steps):
    decision = decide(seen(bound, copies=[copy()], instances=[held()], reported=True), now=NOW)
    assert done(decision) == steps
    assert decision.conditions == ()


def test_finalizers_of_others_stay():
    step = only(binding("Release", OTHERS))
    same = {"uid": f"uid-of-{NAME}", "resourceVersion": "7"}
    assert step.body == {"metadata": {**same, "finalizers": [OTHERS, keys.DRAIN]}}
    step = only(leaving(), reported=True)
    assert step.body["metadata"] == {**same, "finalizers": [OTHERS]}


def unbound(**notes):
    return DATABASE, live_like(live(DATABASE, "a", namespace=HERE), annotations=notes)


part = DATABASE, live_like(unbound()[1], ownerReferences=[{"uid": "x", "controller": True}])
RELEASED = ("release", CONTROL_PLANE, "Database", "a")
FREE = ("free", APP_CLUSTER, "Database", "a")
LATER = {"reported": False}
RELEASING: dict[str, tuple[Any, ...]] = {
    "the sync stops first": ({"syncing": True, "copies": [copy()], **LATER}, [], ["Draining"]),
    "not while a view is incomplete": (
        {"unsure": "the control plane does not answer", "copies": [copy()]},
        [], ["DrainWaiting"],
    ),
    "copies before instances": (
        {"copies": [copy()], "instances": [held()]}, [RELEASED], ["Draining"],
    ),
    "then instances": ({"instances": [held()]}, [FREE], ["Draining"]),
    "also those that are being deleted": (
        {"instances": [(DATABASE, live_like(held()[1], **GOING))], **LATER}, [FREE], ["Draining"],
    ),
    "what is released already, or kept for itself, or a part, is left alone": (
        {"copies": [unbound(**FREED), unbound(**{keys.ADOPT: "false"}), part]}, LET_GO, [],
    ),
    "what the original adopted and never marked is released too": (
        {"copies": [unbound()]}, [RELEASED], ["Draining"],
    ),
    "what is free already is left alone": ({"instances": [instance("a", OTHERS)]}, LET_GO, []),
    "what is elsewhere is another space's": (
        {"copies": [copy(namespace="cluster-b-dev")]}, LET_GO, [],
    ),
    "the name of a cluster-scoped copy proves nothing (H3)": (
        {"copies": [tenant(f"{SPACE}-b-x", f"{SPACE}-b"), tenant("any")]},
        [("release", CONTROL_PLANE, "Tenant", "any")], ["Draining"],
    ),
    "nor does that of the space, where it is of an earlier one": (
        {"copies": [tenant("any", life="earlier"), tenant("other", **{keys.SPACE_UID: "earlier"}),
                    tenant("mine", life="given")]},
        [("release", CONTROL_PLANE, "Tenant", "mine")], ["Draining"],
    ),
    "not before the control plane says so": (LATER, [], ["Draining"]),
    "the CRD and what came down stay": ({"crd": crd(), "copied": [secret()]}, LET_GO, []),
}  # fmt: skip


@pytest.mark.parametrize("policy", ["Release", "Block", "Whatever", ""])
@pytest.mark.parametrize(("facts", "steps", "reasons"), RELEASING.values(), ids=RELEASING.keys())
def test_releasing(policy, facts, steps, reasons):
    decision = decide(seen(leaving(policy), **{"reported": True, **facts}), now=NOW)
    assert (done(decision), reasons_of(decision)) == (steps, reasons)
    assert (decision.again is None) is (steps == LET_GO)


def schema(**properties):
    return {"type": "object", "properties": properties}


def of(**root):
    return served(schema={"openAPIV3Schema": root})


def served(**version):
    """Return the CRD of databases, with a version like this."""
    said = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    form = {"openAPIV3Schema": schema(status=schema(conditions={"type": "array"}))}
    return {**crd(), "spec": {"versions": [{**said, "schema": form, **version}]}}


def reports(live_claim, definition):
    """Return the statuses that freeing a claim writes, by subresource."""
    found = decide(seen(leaving(), instances=[(DATABASE, live_claim)], crd=definition), now=NOW)
    assert done(found)[-1] == FREE
    steps = [step for step in found.steps if isinstance(step, Patch) and "status" in step.body]
    for step in steps:
        assert get_map(step.body, "metadata") == {"uid": "uid-of-a", "resourceVersion": "7"}
    return {step.subresource: get_map(step.body, "status") for step in steps}


STOPPED = {
    "type": "Synced",
    "status": "False",
    "reason": "BindingReleased",
    "message": claim_status.RELEASED.message,
    "lastTransitionTime": format_time(NOW),
}
REPORTS: dict[str, tuple[Any, Any, Any]] = {
    "one that said nothing": ({}, served(), {"status": {"conditions": [STOPPED]}}),
    "once": ({"conditions": [{**STOPPED, "lastTransitionTime": "y"}]}, served(), {}),
    "not among conditions of another form": ({"conditions": {"Ready": True}}, served(), {}),
    "where there is no subresource": (
        {}, served(subresources={}), {"": {"conditions": [STOPPED]}},
    ),
}  # fmt: skip


KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
SCHEMAS: dict[str, tuple[Any, bool]] = {
    "it keeps what it does not know": (of(**KEEPS), True),
    "it has no conditions": (of(**schema(status=schema(phase={"type": "string"}))), False),
    "another version": (served(name="v2"), False),
}


@pytest.mark.parametrize(("definition", "takes"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_nothing_is_said_where_the_schema_would_drop_it(definition, takes):
    assert claim_status.takes_conditions(definition, "v1") is takes
    assert bool(reports(held()[1], definition)) is takes


@pytest.mark.parametrize(("status", "definition", "said"), REPORTS.values(), ids=REPORTS.keys())
def test_a_claim_says_that_its_sync_has_stopped_before_it_is_free(status, definition, said):
    assert reports({**held()[1], "status": status}, definition) == said


def test_a_claim_that_is_being_deleted_says_nothing_more():
    assert reports(live_like(held()[1], **GOING), served()) == {}


def warning(definition):
    """Return what a CRD says to everyone who uses its kind, by version; None for no write."""
    patch = drain.unserved(definition)
    if patch is None:
        return None
    versions = get_maps(patch.body, "spec", "versions")
    return {one["name"]: one.get("deprecationWarning", "") for one in versions}


def test_a_crd_warns_of_a_kind_that_is_bound_no_more():
    old = {"name": "v0", "served": False}
    both = served()
    both["spec"]["versions"].append(old)
    said = warning(both)
    assert said is not None
    assert NAME in said["v1"]
    assert said["v0"] == ""
    assert warning(served(deprecated=True, deprecationWarning=said["v1"])) is None
    assert warning(served(served=False)) is None
    assert warning(deleting(served())) is None
    assert warning(None) is None
    person = {**served(), "metadata": crd(manager="kubectl")["metadata"]}
    assert warning(person) is None


def mapping(service=HERE, **annotations):
    made = live(API_SERVICE_NAMESPACE, "dev", namespace=SPACE)
    return {**live_like(made, annotations=annotations), "status": {"namespace": service}}


MARKED = {keys.RELEASED_KINDS: f"{NAME},secrets.shop.example"}
MARKING: dict[str, tuple[Any, ...]] = {
    "beside what was released before": (
        {"mappings": [mapping(**{keys.RELEASED_KINDS: "secrets.shop.example"})]}, MARKED,
    ),
    "once": ({"mappings": [mapping(**MARKED)]}, None),
    "not where nothing of it is": ({"mappings": [mapping("elsewhere")]}, None),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "notes"), MARKING.values(), ids=MARKING.keys())
def test_a_mapping_tells_of_what_is_released_behind_it(facts, notes):
    step = only(leaving(), **{"copies": [copy()], **facts})
    assert (step.ref.kind == API_SERVICE_NAMESPACE) is (notes is not None)
    if notes is not None:
        assert get_map(step.body, "metadata", "annotations") == notes


GONE = ("delete", APP_CLUSTER, "CustomResourceDefinition", NAME)
OWN = f"uid-of-{NAME}"
DELETING: dict[str, tuple[Any, ...]] = {
    "the CRD goes before all is told": ({"crd": crd(), **LATER}, [GONE], ["Draining"]),
    "the binding does not": (LATER, [], ["Draining"]),
    "not before the sync has stopped": ({"crd": crd(), "syncing": True}, [], ["Draining"]),
    "the CRD first": ({"crd": crd(owner=OWN), "copied": [secret()]}, [GONE], ["Draining"]),
    "also where an orphaning delete took its owner away": ({"crd": crd()}, [GONE], ["Draining"]),
    "also one that the original made": ({"crd": crd(manager="konnector")}, [GONE], ["Draining"]),
    "not one that another binding owns": ({"crd": crd(owner="another")}, LET_GO, []),
    "nor one that a person made": ({"crd": crd(manager="kubectl")}, LET_GO, []),
    "another group's owner is no binding": (
        {"crd": crd(owner=OWN, group="other.example", manager="kubectl")}, LET_GO, [],
    ),
    "a CRD that is going is waited for": (
        {"crd": deleting(crd()), "copied": [secret()]}, [], ["DrainWaiting"],
    ),
    "then what came down": (
        {"copied": [secret(), secret("own", None), secret("up", keys.OWNER_CONSUMER)]},
        [("delete", APP_CLUSTER, "Secret", "creds")], ["Draining"],
    ),
    "which is waited for": ({"copied": [(SECRET, deleting(secret()[1]))]}, [], ["DrainWaiting"]),
    "then the binding": ({}, LET_GO, []),
    "instances that are left make it a release": (
        {"instances": [held()], "copies": [copy()], "crd": crd()},
        [RELEASED], ["Draining"],
    ),
    "the CRD stays with them": (
        {"instances": [instance()], "crd": crd(), "copied": [secret()]},
        LET_GO, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "steps", "reasons"), DELETING.values(), ids=DELETING.keys())
def test_deleting(facts, steps, reasons):
    decision = decide(seen(leaving("Delete"), **{"reported": True, **facts}), now=NOW)
    assert (done(decision), reasons_of(decision)) == (steps, reasons)
    assert (decision.again is None) is (steps == LET_GO)


def test_a_space_that_goes_waits_for_its_instances():
    facts: Any = {"crd": crd(), "reported": True, "syncing": True, "copies": [copy()]}
    look = seen(leaving("Delete", draining=True), **facts)
    decision = decide(look, now=NOW)
    assert (done(decision), reasons_of(decision)) == ([], ["DrainWaiting"])
    assert "delete them, or annotate" in decision.conditions[0].message
    assert syncs(look)
    former = [tenant("a", life="earlier")]
    assert not syncs(seen(leaving("Delete", draining=True), copies=former))
    # A released space keeps its data, so there is nothing to wait for.
    assert not syncs(seen(leaving("Release", draining=True), **facts))


def test_what_goes_is_looked_at_more_often_than_what_stays():
    """No event tells here that the last one is gone."""
    kind, stays = held()
    goes = kind, deleting(stays)
    for found, again in (([held("b"), goes], SOMEWHAT_LATER), ([held("b")], RECHECK)):
        facts = {"crd": crd(), "syncing": True, "instances": found}
        look = seen(leaving("Delete", draining=True), **facts)
        assert decide(look, now=NOW).again == again


def test_a_binding_that_stays_is_synced():
    assert syncs(seen(binding(), instances=[held()], copies=[copy()]))


def test_detaching():
    one = held()[1]
    patch = drain.detached(DATABASE, one)
    assert patch is not None
    assert patch.ref.cluster == APP_CLUSTER
    known = {"uid": "uid-of-a", "resourceVersion": "7"}
    change = {"finalizers": [OTHERS], "annotations": {keys.BOUND: None}}
    assert patch.body == {"metadata": {**known, **change}}
    assert drain.detached(DATABASE, merged(one, patch.body)) is None


def test_a_detached_binding_is_not_held():
    patch = unfinalized(APP_CLUSTER, API_SERVICE_BINDING, leaving(), keys.DRAIN)
    assert patch is not None
    assert not waits(merged(leaving(), patch.body))
    assert unfinalized(APP_CLUSTER, API_SERVICE_BINDING, binding("Release"), keys.DRAIN) is None


class World:
    """Both sides, on which steps are carried out. `fails` says for each step whether it fails."""

    def __init__(self, bound, copies, instances, *, fails=()):
        self.binding = bound
        self.copies = {name_of(one): one for _, one in copies}
        self.instances = {name_of(one): one for _, one in instances}
        self.fails = iter(fails)

    def look(self):
        return seen(
            self.binding,
            copies=[(DATABASE, one) for one in self.copies.values()],
            instances=[(DATABASE, one) for one in self.instances.values()],
            reported=True,
        )

    def turn(self):
        decision = decide(self.look(), now=NOW)
        for task in decision.tasks:
            (step,) = task.steps
            assert isinstance(step, Patch)
            if next(self.fails, False):
                continue
            self.write(step)
        steps: Any = decision.steps
        if any(step.ref.cluster == APP_CLUSTER for step in steps):
            # Who is free may go, and a bound copy would follow.
            assert not any(keys.BOUND in annotations_of(one) for one in self.copies.values())
        return decision

    def write(self, step):
        if step.ref.kind == API_SERVICE_BINDING:
            self.binding = merged(self.binding, step.body)
            return
        side = self.copies if step.ref.cluster == CONTROL_PLANE else self.instances
        side[step.ref.name] = merged(side[step.ref.name], step.body)


def test_many_instances_are_let_go_in_parts():
    count = 5 * BATCH
    world = World(
        leaving(), [copy(f"d{i}") for i in range(count)], [held(f"d{i}") for i in range(count)]
    )
    looks = 0
    while waits(world.binding):
        assert len(world.turn().tasks) <= BATCH
        looks += 1
    assert looks == 2 * count // BATCH + 1


STATES = st.tuples(st.booleans(), st.booleans(), st.sampled_from(["both", "copy", "instance"]))


@settings(max_examples=200)
@given(
    objects=st.lists(STATES, max_size=8),
    policy=st.sampled_from(["Release", "Block", "Delete", "x"]),
    fails=st.lists(st.booleans(), max_size=40),
)
def test_a_drain_that_is_disturbed_ends_all_the_same(objects, policy, fails):
    copies, instances = [], []
    for i, (bound, finalized, sides) in enumerate(objects):
        name = f"d{i}"
        if sides != "instance":
            one = copy(name)
            copies.append(one if bound else (DATABASE, live_like(one[1], annotations=FREED)))
        if sides != "copy":
            instances.append(held(name) if finalized else instance(name))
    before = [name_of(one) for _, one in (*copies, *instances)]
    world = World(leaving(policy), copies, instances, fails=fails)
    for _ in range(100):
        if not waits(world.binding):
            break
        world.turn()
    assert not waits(world.binding)
    assert [*world.copies, *world.instances] == before
    for one in world.copies.values():
        assert keys.BOUND not in annotations_of(one)
        assert keys.RELEASED in annotations_of(one)
    for one in world.instances.values():
        assert keys.SYNCER not in finalizers_of(one)
        assert keys.BOUND in annotations_of(one)


ODD: list[Any] = [
    {}, {"metadata": 5}, {"metadata": {"annotations": [1], "finalizers": "x"}},
    {"metadata": {"finalizers": [None, 1], "ownerReferences": [None, {"kind": 4}]}},
    {"metadata": {"managedFields": {"manager": "konnector"}}},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("policy", ["Release", "Delete"])
def test_hostile_objects(odd, policy):
    each = [(DATABASE, odd), (TENANT, odd)]
    look = seen(leaving(policy), copies=each, copied=each, crd=odd, reported=True)
    assert done(decide(look, now=NOW)) == LET_GO
    assert done(decide(seen(leaving(policy), instances=each, reported=True), now=NOW)) == LET_GO
    assert decide(seen(odd), now=NOW) == NOTHING
    assert drain.detached(DATABASE, odd) is None

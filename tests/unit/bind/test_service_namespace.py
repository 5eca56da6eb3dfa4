"""Where copies live, and when that place goes (protocol-bind.md C.4, F6, F41, F46)."""

from datetime import timedelta

import pytest

from bind.service_namespace.decide import decide, is_bound, needs_search, obstacle, revocations
from bind.service_namespace.facts import Contents, Mapped, Removal, Seen, key_of, leaving
from reconciler.blueprints import rbac
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Create, Delete, Patch
from reconciler.core.manifest import annotations_of, name_of
from reconciler.core.refs import CRD, NAMESPACE, ROLE_BINDING, SECRET
from reconciler.core.times import format_time
from tests.support.space_objects import (
    CONTROL_PLANE,
    NOW,
    SPACE,
    deleting,
    live,
    live_like,
    mapping,
    served,
    space,
)

KEY = Mapped(SPACE, "dev")
TARGET = f"{SPACE}-dev"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MARK = {
    "klutch.anynines.com/api-service-namespace": f"{SPACE}/dev",
    keys.SPACE_UID: f"uid-of-{SPACE}",
}
RIGHTS = served(rbac.binding_in_service_namespace(SPACE, TARGET))


def namespace(name=TARGET, annotations=None, age=HOUR):
    notes = made_at(age) if annotations is None else annotations
    return live(NAMESPACE, name, age=age, metadata={"annotations": notes})


def made_at(age):
    return MARK | {keys.MADE_AT: format_time(NOW - age)}


def crd(age=2 * HOUR):
    return live(CRD, "apiservicenamespaces.klutch.anynines.com", age=age)


def seen(*, namespace=None, elsewhere=None, role_binding=None, **facts):
    """Return a look, with whatever Namespaces and RoleBinding there are."""
    there = tuple(filter(None, (namespace, elsewhere)))
    rights = tuple(filter(None, (role_binding,)))
    known = {"mapping": mapping(), "space": space(), "witnessed": True, **facts}
    return Seen(CONTROL_PLANE, KEY, namespaces=there, role_bindings=rights, **known)


def steps_of(decision):
    reported = []
    for step in [step for task in decision.tasks for step in task.steps]:
        match step:
            case Create(kind, manifest):
                reported.append(("Create", kind, name_of(manifest)))
            case Patch(ref) | Delete(ref):
                reported.append((type(step).__name__, ref.kind, ref.name))
    return reported


OURS = {"namespace": namespace()}
OTHER_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
OF_OTHER = MARK | {"klutch.anynines.com/api-service-namespace": "cluster/a1-dev"}
MAKING = {
    "a new app namespace gets a Namespace and its rights there": (
        "Namespaced", {},
        [("Create", NAMESPACE, TARGET), ("Create", ROLE_BINDING, "klutch-binder")], {},
    ),
    "in Cluster scope the Namespace alone": (
        "Cluster", {}, [("Create", NAMESPACE, TARGET)], {},
    ),
    "rights are given before the status tells where": (
        "Namespaced", OURS, [("Create", ROLE_BINDING, "klutch-binder")], {},
    ),
    "the status tells when all is there": (
        "Namespaced", {**OURS, "role_binding": RIGHTS}, [], {"namespace": TARGET},
    ),
    "in Cluster scope it tells without rights": ("Cluster", OURS, [], {"namespace": TARGET}),
    "another subject is corrected": (
        "Namespaced", {**OURS, "role_binding": {**RIGHTS, "subjects": []}},
        [("Patch", ROLE_BINDING, "klutch-binder")], {},
    ),
    "another role means a new RoleBinding (F41)": (
        "Namespaced", {**OURS, "role_binding": {**RIGHTS, "roleRef": OTHER_ROLE}},
        [("Delete", ROLE_BINDING, "klutch-binder"), ("Create", ROLE_BINDING, "klutch-binder")], {},
    ),
    "a Namespace on its way out is waited for (F41)": (
        "Namespaced", {"namespace": deleting(namespace())}, [], {},
    ),
    "a Namespace of nobody is not adopted (F6)": (
        "Namespaced", {"namespace": namespace(annotations={})}, [], {},
    ),
    "nor one of another app namespace": (
        "Cluster", {"namespace": namespace(annotations=OF_OTHER)}, [], {},
    ),
    "nothing is made for a space that goes": ("Namespaced", {"space": deleting(space())}, [], {}),
    "nor for one that is gone": ("Namespaced", {"space": None}, [], {}),
    "nor for an app namespace that goes": ("Namespaced", {"mapping": deleting(mapping())}, [], {}),
    "but its konnector keeps its rights until then": (
        "Namespaced", {**OURS, "mapping": deleting(mapping())},
        [("Create", ROLE_BINDING, "klutch-binder")], {},
    ),
    "a status that names its own Namespace elsewhere counts": (
        "Cluster",
        {"mapping": mapping(namespace="elsewhere"),
         "elsewhere": namespace("elsewhere", made_at(HOUR))},
        [], {"namespace": "elsewhere"},
    ),
    "a status that names somebody else's does not, and is corrected": (
        "Cluster",
        {**OURS, "mapping": mapping(namespace="kube-system"),
         "elsewhere": namespace("kube-system", annotations={})},
        [], {"namespace": TARGET},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("scope", "facts", "steps", "fields"), MAKING.values(), ids=MAKING.keys())
def test_making(scope, facts, steps, fields):
    decision = decide(seen(**facts), scope=scope, now=NOW)
    assert (steps_of(decision), decision.fields) == (steps, fields)


def test_a_new_namespace_says_whose_it_is():
    (task,) = decide(seen(), scope="Namespaced", now=NOW).tasks
    made, rights = task.steps
    assert isinstance(made, Create)
    assert isinstance(rights, Create)
    assert annotations_of(made.manifest) == MARK | {keys.MADE_AT: format_time(NOW)}
    assert rights.manifest == rbac.binding_in_service_namespace(SPACE, TARGET)


OBSTACLES = {
    "a Namespace of nobody": (
        seen(namespace=namespace(annotations={})), "NamespaceCollision",
        "Namespace cluster-a1-dev is there already and does not belong to app namespace dev",
    ),
    "one of another tenant (F6)": (
        seen(namespace=namespace(annotations=OF_OTHER)), "NamespaceCollision",
        "Namespace cluster-a1-dev is there already and does not belong to app namespace dev",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "reason", "message"), OBSTACLES.values(), ids=OBSTACLES.keys())
@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
def test_obstacles_are_reported_and_nothing_is_written(facts, reason, message, scope):
    found = obstacle(facts)
    assert found is not None
    assert (found[0].reason, found[1]) == (reason, message)
    decision = decide(facts, scope=scope, now=NOW)
    assert (decision.tasks, decision.fields) == ((), {})
    (note,) = decision.notes
    assert (note.reason, note.message, note.type) == (reason, message, "Warning")


NO_OBSTACLE = {
    "its own Namespace": seen(**OURS),
    "none yet": seen(),
    "an app namespace that is gone": seen(mapping=None, namespace=namespace(annotations={})),
    "an app namespace that goes": seen(
        mapping=deleting(mapping()), namespace=namespace(annotations={})
    ),
}


@pytest.mark.parametrize("facts", NO_OBSTACLE.values(), ids=NO_OBSTACLE.keys())
def test_no_obstacle(facts):
    assert obstacle(facts) is None


OF_CLAIM = Contents(released=False, bound="databases.shop.example orders")


def removal(**facts):
    return Removal(**{"mapping": None, "crd": crd(), "contents": Contents(released=False), **facts})


GONE = {"mapping": None, **OURS, "removal": removal()}


def test_a_service_namespace_goes_with_its_app_namespace_exactly_as_it_was_seen():
    for place in (space(), None, deleting(space())):  # also with its space
        (task,) = decide(seen(**{**GONE, "space": place}), scope="Namespaced", now=NOW).tasks
        (step,) = task.steps
        assert isinstance(step, Delete)
        assert (step.ref.name, step.uid, step.resource_version) == (TARGET, f"uid-of-{TARGET}", "7")


KEPT = {
    "nobody looked what is in it": ({"removal": None}, ""),
    "not all app namespaces may be seen": ({"unsure": "403"}, ""),
    "the app namespace is back": ({"removal": removal(mapping=mapping())}, ""),
    "it is not marked as ours": ({"namespace": namespace(annotations={})}, ""),
    "it is another's": ({"namespace": namespace(annotations=OF_OTHER)}, ""),
    "it is on its way out": ({"namespace": deleting(namespace())}, ""),
    "it is a copy under another name": (
        {"namespace": None, "elsewhere": namespace("restored")}, "",
    ),
    "something in it was released": (
        {"removal": removal(contents=Contents(released=True))}, "ReleasedDataKept",
    ),
    "so do copies that nobody deletes": (
        {"removal": removal(contents=OF_CLAIM)}, "BoundDataKept",
    ),
    "also where their space was never seen to go": (
        {"removal": removal(contents=OF_CLAIM), "space": None, "witnessed": False,
         "namespace": namespace(annotations=made_at(HOUR))}, "BoundDataKept",
    ),
    "something in it may be released": (
        {"removal": removal(contents=Contents(released=False, hidden="a.example"))},
        "ContentsUnknown",
    ),
    "nobody looked at all": ({"removal": removal(contents=None)}, "ContentsUnknown"),
    "the CRD of app namespaces is gone": (
        {"removal": removal(crd=None)}, "CustomResourceDefinitionGone",
    ),
    "the CRD goes, and app namespaces before it": (
        {"removal": removal(crd=deleting(crd()))}, "CustomResourceDefinitionGone",
    ),
    "the CRD was made anew": (
        {"removal": removal(crd=crd(age=MINUTE))}, "CustomResourceDefinitionMadeAnew",
    ),
    "it was made again, as from a backup": (
        {"namespace": namespace(annotations=made_at(HOUR + 6 * MINUTE))}, "NamespaceMadeAnew",
    ),
    "nobody knows when": (
        {"removal": removal(crd=live_like(crd(), creationTimestamp=None))},
        "CustomResourceDefinitionMadeAnew",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "reason"), KEPT.values(), ids=KEPT.keys())
def test_data_survive_whatever_is_in_doubt(facts, reason):
    decision = decide(seen(**{**GONE, **facts}), scope="Namespaced", now=NOW)
    assert decision.tasks == ()
    assert [(note.reason, note.type) for note in decision.notes] == (
        [(reason, "Warning")] if reason else []
    )
    assert not reason or decision.again


@pytest.mark.parametrize(("facts", "reason"), KEPT.values(), ids=KEPT.keys())
def test_a_namespace_that_stays_anyway_is_not_searched(facts, reason):
    searched = reason in ("ReleasedDataKept", "BoundDataKept", "ContentsUnknown")
    assert needs_search(seen(**{**GONE, **facts})) == searched


WAYS_OUT = {
    "its space stays": (space(), "Bring app namespace and claim back"),
    "its space is gone": (None, f"`kubectl delete namespace {TARGET}`"),
}


@pytest.mark.parametrize(("space_", "way_out"), WAYS_OUT.values(), ids=WAYS_OUT)
def test_what_to_do_about_copies_that_nobody_deletes(space_, way_out):
    facts = {"space": space_, "witnessed": False, "namespace": namespace(annotations=made_at(HOUR))}
    left = seen(**{**GONE, **facts, "removal": removal(contents=OF_CLAIM)})
    decision = decide(left, scope="Namespaced", now=NOW)
    (note,) = decision.notes
    assert [one for _, one in WAYS_OUT.values() if one in note.message] == [way_out]
    assert decision.again == 30 * MINUTE  # a search takes a call for each kind


@pytest.mark.parametrize("space_", [None, deleting(space())], ids=["gone", "going"])
def test_copies_go_with_their_space(space_):
    facts = {**GONE, "space": space_, "removal": removal(contents=OF_CLAIM)}
    assert decide(seen(**facts), scope="Namespaced", now=NOW).tasks


COPIES = {
    "a copy": (live(SECRET, "x", metadata={"annotations": {keys.BOUND: "true"}}), True),
    "whatever it says": (live(SECRET, "x", metadata={"annotations": {keys.BOUND: ""}}), True),
    "what a provider made": (live(SECRET, "x"), False),
}


@pytest.mark.parametrize(("one", "expected"), COPIES.values(), ids=COPIES.keys())
def test_which_objects_nobody_may_lose(one, expected):
    assert is_bound(one) is expected
    assert not is_bound(deleting(one))


@pytest.mark.parametrize("said", [HOUR, HOUR - 30 * MINUTE, HOUR + 4 * MINUTE])
def test_clocks_may_differ(said):
    facts = {**GONE, "namespace": namespace(annotations=made_at(said))}
    assert decide(seen(**facts), scope="Namespaced", now=NOW).tasks


def test_a_namespace_of_the_same_second_as_the_crd_is_not_older():
    facts = {**GONE, "removal": removal(crd=crd(age=HOUR))}
    assert decide(seen(**facts), scope="Namespaced", now=NOW).tasks


LEAVING = {
    "an app namespace is gone": (GONE, True),
    "it is there": ({**GONE, "mapping": mapping()}, False),
    "there is no Namespace": ({**GONE, "namespace": None}, False),
    "the Namespace is not ours": ({**GONE, "namespace": namespace(annotations={})}, False),
    "the Namespace goes already": ({**GONE, "namespace": deleting(namespace())}, False),
}


@pytest.mark.parametrize(("facts", "wanted"), LEAVING.values(), ids=LEAVING.keys())
def test_the_last_look_is_asked_for_only_before_a_deletion(facts, wanted):
    assert (leaving(seen(**facts)) is not None) == wanted


HOMES = {f"{SPACE}/dev": KEY, "a/b/c": None, "/dev": None, f"{SPACE}/": None, SPACE: None, "": None}


@pytest.mark.parametrize(("mark", "want"), HOMES.items(), ids=[repr(one) for one in HOMES])
def test_whose_a_namespace_is_stands_in_its_annotation(mark, want):
    assert key_of(mark) == want
    assert want is None or want.mark == mark


def test_two_tenants_with_one_target_do_not_share_it():
    one, other = Mapped("a", "b-c"), Mapped("a-b", "c")
    assert one.target == other.target
    held = [namespace(one.target, {"klutch.anynines.com/api-service-namespace": one.mark})]
    second = Seen(CONTROL_PLANE, other, mapping=mapping("c"), space=space(), namespaces=held)
    assert obstacle(second) is not None
    gone = Seen(CONTROL_PLANE, other, namespaces=held, removal=removal())
    assert decide(gone, scope="Cluster", now=NOW) == NOTHING


SWEEPS = {
    "young, with its mark": (namespace(annotations=made_at(MINUTE), age=MINUTE), None, 59),
    "young, without": (namespace(annotations=MARK, age=MINUTE), "NamespaceUnmarked", 5),
}


@pytest.mark.parametrize(("left", "reason", "minutes"), SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_keeps_what_is_young_or_unmarked(left, reason, minutes):
    gone = Removal(mapping=None, crd=crd(age=5 * HOUR), contents=Contents(released=False))
    facts = seen(mapping=None, namespace=left, removal=gone, witnessed=False)
    decision = decide(facts, scope="Namespaced", now=NOW)
    assert not decision.tasks
    assert [note.reason for note in decision.notes] == ([reason] if reason else [])
    assert decision.again == minutes * MINUTE


UIDS = {keys.SPACE_UID: f"uid-of-{SPACE}", keys.ACCOUNT_UID: "uid-of-account"}
BEFORE_UIDS = {"klutch.anynines.com/api-service-namespace": f"{SPACE}/dev"}
STAMPED = {
    "what another backend made": ({"namespace": namespace(annotations=BEFORE_UIDS)}, {}),
    "also what had no uid": (
        {"namespace": namespace(annotations=BEFORE_UIDS, age=3 * HOUR), "mapping": mapping()},
        {keys.CONFIRM_SPACE: "none"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "notes"), STAMPED.values(), ids=STAMPED)
def test_it_says_whose_it_is_before_its_konnector_gets_rights(facts, notes):
    known = {"mapping": mapping(namespace=TARGET), "space": space(annotations=notes), **facts}
    (task,) = decide(seen(account="uid-of-account", **known), scope="Namespaced", now=NOW).tasks
    stamp, rights = task.steps
    assert isinstance(stamp, Patch)
    assert annotations_of(stamp.body).items() >= UIDS.items()
    said = annotations_of(facts["namespace"]) | annotations_of(stamp.body)
    assert said[keys.MADE_AT]
    assert isinstance(rights, Create)


ANOTHER = made_at(HOUR) | {keys.SPACE_UID: "former"}
FORMER = {
    "a plain name": (namespace(annotations=ANOTHER), {}, "former"),
    "a hashed name": (namespace(KEY.hashed("former")[0], ANOTHER), {}, "former"),
    "although its status names it": (
        namespace(annotations=ANOTHER), {"mapping": mapping(namespace=TARGET)}, "former",
    ),
    "one that another line gave away": (
        namespace(annotations=ANOTHER), {"space": space(annotations={keys.CONFIRM_SPACE: "older"})},
        "former,older",
    ),
    "one without uid that nothing names": (namespace(annotations=BEFORE_UIDS), {}, "none"),
    "one without uid that is older than its space": (
        namespace(annotations=BEFORE_UIDS, age=2 * HOUR), {"mapping": mapping(namespace=TARGET)},
        "none",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("left", "facts", "line"), FORMER.values(), ids=FORMER)
@pytest.mark.parametrize("hashing", [True, False], ids=["hashed", "plain"])
def test_what_an_earlier_space_left_is_no_later_ones(left, facts, line, hashing):
    """S1: not mapped, no right there, and the line that gives it to the present space."""
    rights = {**RIGHTS, "metadata": {**RIGHTS["metadata"], "namespace": name_of(left)}}
    known = seen(namespace=left, role_binding=rights, hashing=hashing, **facts)
    decision = decide(known, scope="Namespaced", now=NOW)
    assert steps_of(decision) == [("Delete", ROLE_BINDING, "klutch-binder")]
    assert decision.fields == {}
    (note,) = decision.notes
    assert note.reason == "NamespaceOfFormerSpace"
    command = f"kubectl annotate namespace {SPACE} klutchctl.dev/confirm-space={line} --overwrite"
    assert command in note.message


RIGHTS_END = {
    "the space goes": ({**OURS, "space": deleting(space())}, True),
    "it is gone": ({**OURS, "space": None}, True),
    "it is another": ({"namespace": namespace(annotations=ANOTHER)}, True),
    "and the app namespace with it": ({**GONE, "space": None, "removal": None}, True),
    "what is left goes, too": ({**GONE, "space": None, "namespace": deleting(namespace())}, True),
    "it lives": (OURS, False),
    "somebody else has the name": ({"namespace": namespace(annotations=OF_OTHER)}, False),
}


@pytest.mark.parametrize(("facts", "wanted"), RIGHTS_END.values(), ids=RIGHTS_END)
def test_rights_end_with_the_space(facts, wanted):
    found = list(revocations(seen(role_binding=RIGHTS, **facts)))
    assert [isinstance(step, Delete) and step.ref.namespace for step in found] == (
        [TARGET] if wanted else []
    )
    decision = decide(seen(role_binding=RIGHTS, **facts), scope="Namespaced", now=NOW)
    assert (("Delete", ROLE_BINDING, "klutch-binder") in steps_of(decision)) == wanted


def test_data_of_an_earlier_space_do_not_go_with_a_later_one():
    """The new space goes as well, or its app namespace does."""
    left = namespace(annotations=ANOTHER)
    for place in (space(), deleting(space())):
        facts = {**GONE, "namespace": left, "removal": removal(contents=OF_CLAIM), "space": place}
        decision = decide(seen(**{**facts, "witnessed": False}), scope="Namespaced", now=NOW)
        assert not decision.tasks
        assert [note.reason for note in decision.notes] == ["BoundDataKept"]

"""Mappings of app namespaces (protocol-konnector.md D.1, H6; mapping.md 9, 10)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konnector import CONTROL_PLANE
from konnector.claim.orphans import Confirmation, Terms
from konnector.context import Mappings
from konnector.namespace.decide import Removal, Seen, decide, leaving
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Create, Delete, Patch
from reconciler.core.manifest import annotations_of, get_map, put
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.core.times import format_time
from reconciler.kube.store import Store
from tests.support.space_objects import NOW, SPACE, ago, deleting, live, live_like, mapping

DEV = live(NAMESPACE, "dev", status={"phase": "Active"})
ENDING = deleting(DEV)
PHASED = live(NAMESPACE, "dev", status={"phase": "Terminating"})
TIME = ago()
REF = Ref(CONTROL_PLANE, API_SERVICE_NAMESPACE, SPACE, "dev")


def marked(uid="app", namespace="uid-of-dev"):
    uids = {keys.APP_CLUSTER_UID: uid, keys.APP_NAMESPACE_UID: namespace}
    return live_like(mapping(), annotations={key: uid for key, uid in uids.items() if uid})


def gone(*, released=False, brought=False, unsynced=False):
    return Removal(gone=True, released=released, brought=brought, unsynced=unsynced)


def seen(**facts):
    usual = {"name": "dev", "space": SPACE, "app_cluster_uid": "app", "now": NOW,
             "terms": Terms(API_SERVICE_NAMESPACE.resource)}  # fmt: skip
    return Seen(**{**usual, **facts})


_WORDS = {
    keys.APP_CLUSTER_UID: "mark",
    keys.APP_NAMESPACE_UID: "uid",
    keys.APP_NAMESPACE_DELETED: "ends",
    keys.UIDS_SINCE: "since",
    keys.ORPHANED: "orphan",
    keys.ORPHANED_UNDER: "under",
}


def ended(live):
    return live_like(live, annotations={**annotations_of(live), keys.APP_NAMESPACE_DELETED: TIME})


def orphan(live):
    return live_like(live, annotations={**annotations_of(live), keys.ORPHANED: ago(hours=1)})


def done(decision):
    found: list[tuple[object, ...]] = []
    for step in [step for task in decision.tasks for step in task.steps]:
        match step:
            case Create(kind, manifest, cluster):
                assert (kind, cluster) == (API_SERVICE_NAMESPACE, CONTROL_PLANE)
                found.append(("make", annotations_of(manifest)))
            case Patch(ref, body):
                assert ref == REF
                notes = get_map(body, "metadata", "annotations")
                found += [(_WORDS[key], value) for key, value in sorted(notes.items())]
            case Delete(ref, uid, version):
                assert (ref, uid, version) == (REF, "uid-of-dev", "7")
                found.append(("delete",))
    return found


MEANT = Terms(API_SERVICE_NAMESPACE.resource, Confirmation(API_SERVICE_NAMESPACE.resource))
NEW = {keys.APP_NAMESPACE_UID: "uid-of-dev"}
OURS = {keys.APP_CLUSTER_UID: "app", **NEW}
ANOTHER = {"app_namespace": DEV, "mapping": marked(namespace="old"), "wanted": True}
UNKNOWN = {"app_namespace": DEV, "mapping": mapping()}
BOTH = [("mark", "app"), ("uid", "uid-of-dev")]
SAID = {
    "a claim needs it": ({"app_namespace": DEV, "wanted": True}, [("make", OURS)]),
    "an app cluster that cannot be told is not recorded": (
        {"app_namespace": DEV, "wanted": True, "app_cluster_uid": ""}, [("make", NEW)],
    ),
    "a new one has no copy without uid": (
        {"app_namespace": DEV, "wanted": True, "stamped": True},
        [("make", {**OURS, keys.UIDS_SINCE: format_time(NOW)})],
    ),
    "its copies have their uids by now": (
        {"app_namespace": DEV, "mapping": marked(), "stamped": True}, [("since", format_time(NOW))],
    ),
    "nobody needs it": ({"app_namespace": DEV}, []),
    "none for an app namespace that is ending": ({"app_namespace": ENDING, "wanted": True}, []),
    "nor by its phase": ({"app_namespace": PHASED, "wanted": True}, []),
    "nothing for one that vanished without mapping": ({"wanted": True, "removal": gone()}, []),
    "nor where nobody needs it": ({"removal": gone()}, []),
    "it is there and ours": ({"app_namespace": DEV, "mapping": marked(), "wanted": True}, []),
    "a take-over records it, with what is synced": ({**UNKNOWN, "vouched": True}, BOTH),
    "or what has nothing behind it": ({**UNKNOWN, "removal": gone()}, BOTH),
    "not before that is read": (UNKNOWN, []),
    "not with copies of nobody knows which": (
        {**UNKNOWN, "removal": gone(), "occupied": True}, [],
    ),
    "nor of one that was on its way out": (
        {**UNKNOWN, "mapping": ended(mapping()), "vouched": True, "occupied": True,
         "removal": gone()}, [],
    ),
    "nor of one that was gone": (
        {**UNKNOWN, "mapping": orphan(mapping()), "vouched": True, "occupied": True,
         "removal": gone()}, [],
    ),
    "one that ends without it may end": (
        {**UNKNOWN, "app_namespace": ENDING}, [("mark", "app"), ("ends", TIME)],
    ),
    "not with a uid that is not known": (
        {"app_namespace": DEV, "mapping": marked(""), "app_cluster_uid": ""}, [],
    ),
    "another app namespace's is kept": ({**ANOTHER, "removal": gone(), "occupied": True}, []),
    "also for what was brought": ({**ANOTHER, "removal": gone(brought=True)}, []),
    "or released": ({**ANOTHER, "removal": gone(released=True)}, []),
    "or is not synced": ({**ANOTHER, "removal": gone(unsynced=True)}, []),
    "whatever is synced there": ({**ANOTHER, "vouched": True}, []),
    "nor before it has a service namespace": ({**ANOTHER, "removal": gone()}, []),
    "it is given with nothing behind it": (
        {**ANOTHER, "mapping": put(ANOTHER["mapping"], "x", "status", "namespace"),
         "removal": gone()}, [("uid", "uid-of-dev")],
    ),
    "not because a view says so, either": (
        {**ANOTHER, "removal": Removal(gone=False, released=False)}, [],
    ),
    "a person gives it": (
        {**ANOTHER, "confirmed_uid": "uid-of-dev", "occupied": True}, [("uid", "uid-of-dev")],
    ),
    "to one": ({**ANOTHER, "confirmed_uid": "third", "occupied": True}, []),
    "a person who confirms its cluster does": (
        {**ANOTHER, "mapping": marked("old", "old"), "confirmed": True}, BOTH,
    ),
    "once": ({**ANOTHER, "confirmed": True}, []),
    "another app cluster's stays": ({"app_namespace": DEV, "mapping": marked("old")}, []),
    "until a person confirms": (
        {"app_namespace": DEV, "mapping": marked("old"), "confirmed": True}, [("mark", "app")],
    ),
    "an app namespace that is ending keeps it, and that is noted": (
        {"app_namespace": ENDING, "mapping": marked(), "removal": gone()}, [("ends", TIME)],
    ),
    "noted once": ({"app_namespace": ENDING, "mapping": ended(marked())}, []),
    "one that is there again ends no more": (
        {"app_namespace": DEV, "mapping": ended(marked())}, [("ends", None)],
    ),
    "one that ended and is gone loses it": (
        {"mapping": ended(marked()), "removal": gone()}, [("delete",)],
    ),
    "also where the note was not written in time": (
        {"mapping": marked(), "removal": gone(), "ended": True}, [("delete",)],
    ),
    "not while there are copies behind it": (
        {"mapping": ended(marked()), "removal": gone(), "occupied": True}, [],
    ),
    "of one that is only absent it is an orphan": (
        {"mapping": marked(), "removal": gone()}, [("orphan", TIME)],
    ),
    "that is kept": ({"mapping": orphan(marked()), "removal": gone()}, []),
    "until its app namespace is back": (
        {"mapping": orphan(marked()), "app_namespace": DEV}, [("orphan", None)],
    ),
    "or a person means it": (
        {"mapping": orphan(marked()), "removal": gone(), "terms": MEANT}, [("delete",)],
    ),
    "which means no copies": (
        {"mapping": orphan(marked()), "removal": gone(), "terms": MEANT, "occupied": True}, [],
    ),
    "not because a view says so": ({"mapping": marked()}, []),
    "not where the API server still has it": (
        {"mapping": marked(), "removal": Removal(gone=False, released=False)}, [],
    ),
    "not while a claim needs it": (
        {"mapping": marked(), "removal": gone(), "wanted": True}, [],
    ),
    "not while released data are in it": (
        {"mapping": marked(), "removal": gone(released=True)}, [],
    ),
    "what is kept is re-recorded once confirmed": (
        {"mapping": marked("old"), "removal": gone(released=True), "confirmed": True},
        [("mark", "app")],
    ),
    "what is kept without a record gets none": (
        {"mapping": mapping(), "removal": gone(released=True), "confirmed": True}, [],
    ),
    "one that is being deleted is waited for": (
        {"mapping": deleting(marked("old")), "app_namespace": DEV, "wanted": True,
         "removal": gone(), "confirmed": True}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "steps"), SAID.values(), ids=SAID.keys())
def test_mappings(facts, steps):
    assert done(decide(seen(**facts))) == steps


def test_a_mapping_is_made_as_the_original_makes_it():
    ((step,),) = [t.steps for t in decide(seen(app_namespace=DEV, wanted=True)).tasks]
    assert isinstance(step, Create)
    assert step.manifest == {
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "kind": "APIServiceNamespace",
        "metadata": {
            "name": "dev",
            "namespace": SPACE,
            "annotations": {
                "klutchctl.dev/app-cluster-uid": "app",
                "klutchctl.dev/app-namespace-uid": "uid-of-dev",
            },
        },
        "spec": {},
    }


LEAVING = {
    "its app namespace is not seen": ({"mapping": marked()}, True),
    "without mapping there is nothing to read": ({}, False),
    "nor where the app namespace is there": ({"mapping": marked(), "app_namespace": DEV}, False),
    "unless it is another one": (ANOTHER, True),
    "or may be": (UNKNOWN, True),
    "nor while it is ending": ({"mapping": marked(), "app_namespace": ENDING}, False),
    "nor where the mapping goes already": ({"mapping": deleting(marked())}, False),
    "nor while a claim needs it": ({"mapping": marked(), "wanted": True}, False),
}


@pytest.mark.parametrize(("facts", "expected"), LEAVING.values(), ids=LEAVING.keys())
def test_what_has_to_be_read_anew(facts, expected):
    assert leaving(seen(**facts)) is expected


KEPT = {
    "released data are told, and looked at again": ({"removal": gone(released=True)}, 1, True),
    "what could not be read is looked at again": ({}, 0, True),
    "a view that is behind catches up": ({"removal": Removal(gone=False, released=True)}, 0, False),
}


@pytest.mark.parametrize(("facts", "notes", "again"), KEPT.values(), ids=KEPT.keys())
def test_what_is_kept(facts, notes, again):
    decision = decide(seen(mapping=marked(), **facts))
    assert (len(decision.notes), decision.again is not None) == (notes, again)


MAPPINGS = st.sampled_from(
    [None, mapping(), marked(), marked("old"), deleting(marked()), ended(marked()),
     orphan(marked()), marked(namespace="old")]
)  # fmt: skip
NAMESPACES = st.sampled_from([None, DEV, ENDING, PHASED])
REMOVALS = st.none() | st.builds(
    Removal, gone=st.booleans(), released=st.booleans(), brought=st.booleans()
)
LOOKS = st.builds(
    seen,
    mapping=MAPPINGS,
    app_namespace=NAMESPACES,
    wanted=st.booleans(),
    ended=st.booleans(),
    occupied=st.booleans(),
    terms=st.sampled_from([Terms(API_SERVICE_NAMESPACE.resource), MEANT]),
    confirmed=st.booleans(),
    confirmed_uid=st.sampled_from(["", "uid-of-dev", "third"]),
    vouched=st.booleans(),
    removal=REMOVALS,
)


@given(LOOKS)
def test_what_must_be_so_for_a_mapping_to_go(look):
    if ("delete",) in done(decide(look)):
        assert (look.removal.gone, look.removal.released) == (True, False)
        if look.app_namespace is not None:
            recorded = annotations_of(look.mapping).get(keys.APP_NAMESPACE_UID)
            assert recorded == "old" or look.mapping in (ended(marked()), orphan(marked()))
            assert not look.removal.brought
            assert not look.occupied
            return
        assert look.app_namespace is None
        assert not look.occupied
        meant = look.terms == MEANT and keys.ORPHANED in annotations_of(look.mapping)
        assert look.ended or keys.APP_NAMESPACE_DELETED in annotations_of(look.mapping) or meant
        assert not look.wanted


@given(LOOKS)
def test_only_a_person_overwrites_another_cluster(look):
    if look.mapping == marked("old") and not look.confirmed:
        assert ("mark", "app") not in done(decide(look))


@given(LOOKS)
def test_a_second_look_at_what_was_done_does_nothing_more(look):
    match done(decide(look)):
        case [("mark", uid)]:
            after = seen(
                mapping=marked(uid), app_namespace=look.app_namespace, confirmed=look.confirmed,
                wanted=look.wanted, removal=look.removal, terms=look.terms,
            )  # fmt: skip
            assert ("mark", uid) not in done(decide(after))


HOSTILE = [{}, {"metadata": 5}, {"metadata": {"annotations": [1]}}, {"status": "Terminating"}]


@pytest.mark.parametrize("odd", HOSTILE)
def test_hostile_objects(odd):
    assert decide(seen(app_namespace=odd, mapping=marked())) == NOTHING
    assert len(decide(seen(app_namespace=DEV, mapping=odd, vouched=True)).tasks) == 1
    assert len(decide(seen(mapping=odd, removal=gone())).tasks) == 1


# Which service namespace an app namespace has, as mappings come, change and go.


class World:
    def __init__(self) -> None:
        self.store = Store(API_SERVICE_NAMESPACE)
        self.mappings = Mappings(self.store, SPACE, Store(NAMESPACE))
        self.reported: list[str] = []
        self.mappings.follow(self.reported.append)

    def says(self, app: str, service: str, **metadata: Any) -> None:
        held: Any = live_like(mapping(app), **metadata)
        self.store.put({**held, "status": {"namespace": service}})

    @property
    def pairs(self) -> dict[str, str]:
        return {app: self.mappings.service(app) for app in self.mappings.all()}


@pytest.fixture
def world() -> World:
    return World()


def test_a_mapping_that_goes_is_no_home(world: World) -> None:
    world.says("dev", "s-dev")
    world.says("dev", "s-dev", deletionTimestamp="2026-06-01T12:00:00Z")
    assert world.pairs == {}


def test_two_mappings_do_not_share_a_service_namespace(world: World) -> None:
    world.says("dev", "shared")
    world.says("prod", "shared")
    world.says("test", "shared")
    assert world.pairs == {"dev": "shared"}
    world.says("prod", "s-prod")
    assert world.pairs == {"dev": "shared", "prod": "s-prod"}
    world.reported.clear()
    world.says("dev", "s-dev")
    assert world.pairs == {"dev": "s-dev", "prod": "s-prod", "test": "shared"}
    assert world.reported == ["dev", "test"]

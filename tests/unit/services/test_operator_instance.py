"""What the example operator decides about a Postgresql."""

import pytest

from postgresql_operator.instance import Seen, decide, is_ready
from postgresql_operator.wire import CLAIM
from postgresql_server.works import Deprovision, Provision
from reconciler.core import conditions
from reconciler.core.decision import Patch
from reconciler.core.manifest import get_map
from tests.unit.services.objects import CLUSTER, DATABASE, NOW, PLACE, Gist, gist, instance, live

OTHER_UID = "11111111-2222-3333-4444-555555555556"


def seen(live, *, exists=False, **who):
    return Seen(CLUSTER, live, place=PLACE, exists=exists, **who)


def new(**how):
    return instance(phase="", **how)


def leaving(policy="WhenUnbound", **how):
    return instance(deleting=True, **how) | {"spec": {"deletionPolicy": policy}}


PROVISIONED: Gist = (["Provision"], [], "Ready", {"Provisioned": "True"})
GOES: Gist = (["Deprovision"], ["release Postgresql"], "", {})
STAYS: Gist = ([], [], "Deleting", {"Released": "StillBound"})
CASES = {
    "a new object is held before anything is made for it": (
        seen(new(held=False)),
        ([], ["hold Postgresql"], "", {}),
    ),
    "what is held gets its database": (seen(new()), PROVISIONED),
    "a database from before a crash is completed": (seen(new(), exists=True), PROVISIONED),
    "a database that is there is stated anew": (seen(instance(), exists=True), PROVISIONED),
    "a database that was there is not made again empty": (
        seen(instance()),
        ([], [], "Failed", {"Provisioned": "DatabaseLost"}),
    ),
    "the database of an object that had the same name is not its own": (
        seen(instance(uid=OTHER_UID), exists=False),
        PROVISIONED,
    ),
    "an unbound database goes": (seen(leaving(), exists=True), GOES),
    "a bound one stays": (seen(leaving(), exists=True, holders=["web"]), STAYS),
    "a policy that nobody knows is the careful one": (
        seen(leaving("Whenever"), holders=["web"]),
        STAYS,
    ),
    "one that is being dumped stays": (
        seen(leaving(), exists=True, dumping=["nightly"]),
        ([], [], "Deleting", {"Released": "StillDumping"}),
    ),
    "one that is gone cannot be dumped": (seen(leaving(), dumping=["nightly"]), GOES),
    "nor can one that was never ready": (
        seen(leaving(uid=OTHER_UID), exists=True, dumping=["nightly"]),
        GOES,
    ),
    "Immediate does not wait": (
        seen(leaving("Immediate"), exists=True, holders=["web"], dumping=["nightly"]),
        GOES,
    ),
    "Retain lets go of the object alone": (
        seen(leaving("Retain"), exists=True, holders=["web"]),
        ([], ["release Postgresql"], "", {}),
    ),
    "one that others hold is none of our business": (seen(leaving(held=False)), ([], [], "", {})),
}


@pytest.mark.parametrize(("facts", "want"), CASES.values(), ids=CASES.keys())
def test_decide(facts, want):
    assert gist(decide(facts, now=NOW)) == want


def test_the_database_is_named_after_the_uid_and_tells_whose_it_is():
    (work,) = decide(seen(new()), now=NOW).works
    assert work == Provision(DATABASE, 20, "Postgresql shop/orders", new=True)


def test_only_what_was_never_there_is_made():
    (work,) = decide(seen(instance(), exists=True), now=NOW).works
    assert isinstance(work, Provision)
    assert not work.new


def test_exactly_its_own_database_is_deleted():
    assert decide(seen(leaving()), now=NOW).works == (Deprovision(DATABASE),)


def test_an_event_names_the_bindings_that_hold_it():
    (note,) = decide(seen(leaving(), holders=["web", "batch"]), now=NOW).decision.notes
    assert (note.type, note.reason) == ("Warning", "StillBound")
    assert note.message.endswith("batch, web")


def test_of_many_bindings_it_names_some():
    holders = [f"app-{number:02}" for number in range(12)]
    (note,) = decide(seen(leaving(), holders=holders), now=NOW).decision.notes
    assert note.message.endswith("app-08, app-09 and 2 more")


def claim(*, deleting=True, **status):
    return live(CLAIM, "orders", OTHER_UID, deleting=deleting, held=False, status=status)


def passed_on(whole, holders=("web",)):
    """Return what a claim's conditions are to be, None for no write."""
    found = decide(seen(leaving(), holders=holders, claim=whole), now=NOW).decision
    steps = [step for task in found.tasks for step in task.steps]
    if not steps:
        return None
    (patch,) = steps
    assert isinstance(patch, Patch)
    assert (patch.ref.kind, patch.subresource) == (CLAIM, "status")
    assert patch.body["metadata"] == {"uid": OTHER_UID, "resourceVersion": "7"}
    return get_map(patch.body, "status")["conditions"]


def test_a_claim_that_is_being_deleted_says_what_that_waits_for():
    """Crossplane brings no status up any more by then."""
    going = {"type": "Ready", "status": "False", "reason": "Deleting", "lastTransitionTime": "x"}
    said = passed_on(claim(conditions=[going]))
    assert said[0] == going
    assert (said[1]["type"], said[1]["status"], said[1]["reason"]) == (
        "Released",
        "False",
        "StillBound",
    )
    assert said[1]["message"].endswith("these ServiceBindings are deleted: web")
    assert passed_on(claim(conditions=said)) is None
    again = passed_on(claim(conditions=said), holders=("batch",))
    assert conditions.parse(again)[1].message.endswith(": batch")


def test_a_claim_that_stays_hears_nothing_of_it():
    assert passed_on(claim(deleting=False)) is None
    assert passed_on(None) is None


def test_it_is_reported_once_that_it_is_ready():
    assert [note.reason for note in decide(seen(new()), now=NOW).decision.notes] == ["Provisioned"]
    assert decide(seen(instance(), exists=True), now=NOW).decision.notes == ()


READY = {
    "nothing is not ready": (None, False),
    "what was not provisioned is not": (new(), False),
    "what is ready is": (instance(), True),
    "what goes, and is still in use, is": (instance(phase="Deleting", deleting=True), True),
    "a copied status is not": (instance(uid=OTHER_UID), False),
    "what lost its database is not": (instance(phase="Failed"), False),
}


@pytest.mark.parametrize(("live", "want"), READY.values(), ids=READY.keys())
def test_is_ready(live, want):
    assert is_ready(live) is want

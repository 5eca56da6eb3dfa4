"""What follows for bindings: each row of the design's table of bindings (service-broker.md 4)."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.decisions import record as records_of
from bind.osb.decisions.record import PRESENT
from bind.osb.decisions.view import InstanceView
from reconciler.api.osb import BROKER_RECORD
from reconciler.core import keys
from reconciler.core.refs import SECRET
from tests.support import osb_faults
from tests.support.osb_bindings import World, catalogue
from tests.support.osb_faults import Fault
from tests.support.osb_turns import BINDING_KIND, INSTANCE_KIND
from tests.support.osb_wire import Verb

ASYNC: frozenset[Verb] = frozenset({"bind", "unbind"})


def bound(offered: Any = None, *, is_async: bool = False, **spec: Any) -> World:
    world = World(offered)
    if is_async:
        world.broker.modes.asynchronous = ASYNC
    world.claim(**spec)
    world.run(minutes=3)
    assert world.logs_in()
    return world


def asked(world: World, verb: str) -> list[dict[str, Any]]:
    return [entry.body for entry in world.broker.journal if entry.verb == verb]


def request(world: World, wish: str = "1") -> None:
    world.edit(
        BINDING_KIND,
        "web",
        lambda live: live["spec"].setdefault("rotation", {}).update(request=wish),
    )


# None, and the instance is provisioned and idle: PUT.


def test_a_claim_is_bound_for_its_service_namespace() -> None:
    world = bound(parameters={"role": "reader"})
    (body,) = asked(world, "bind")
    assert body["bind_resource"] == {"app_guid": "s1"}
    assert body["parameters"] == {"role": "reader"}
    assert body["context"]["namespace"] == "shop"
    assert world.records()[0].id == world.live(BINDING_KIND, "web")["metadata"]["uid"]  # type: ignore[index]
    assert world.condition("Ready") == ("True", "")
    assert world.status("phase") == "Ready"
    assert world.status("binding") == {"name": "web-creds"}
    assert world.status("bindingID") == world.records()[0].id
    assert world.events == ["Bound"]


def with_state(state: records_of.State) -> Callable[[InstanceView], InstanceView]:
    return lambda view: replace(view, records=(replace(view.records[0], state=state),))


def with_live(**parts: Any) -> Callable[[InstanceView], InstanceView]:
    return lambda view: replace(view, live={**(view.live or {}), **parts})


def with_broker(**facts: Any) -> Callable[[InstanceView], InstanceView]:
    def change(view: InstanceView) -> InstanceView:
        assert view.broker is not None
        return replace(view, broker=replace(view.broker, **facts))

    return change


NOT_PROVISIONED = {"conditions": [{"type": "Provisioned", "status": "False"}]}
DELETING = {"name": "orders", "deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("otherwise", "reason"),
    [
        (lambda view: replace(view, live=None), "Pending"),
        (lambda view: replace(view, records=()), "Pending"),
        (with_state("Intended"), "Pending"),
        (with_state("Leaving"), "Pending"),
        (with_live(status=NOT_PROVISIONED), "Pending"),
        (with_live(metadata=DELETING), "Pending"),
        (lambda view: replace(view, place=None), "Pending"),
        (with_broker(catalogue=None), "Pending"),
        (with_broker(closed="it does not answer"), "Pending"),
        (lambda view: replace(view, broker=None), "NoServiceBroker"),
    ],
)
def test_nothing_is_bound_before_all_is_there(
    otherwise: Callable[[InstanceView], InstanceView], reason: str
) -> None:
    world = World()
    world.otherwise = otherwise
    world.claim()
    world.run(minutes=3)
    assert world.condition("Bound") == ("False", reason)
    assert (world.records(), world.broker.journal) == ([], [])
    world.otherwise = lambda view: view
    world.run(minutes=3)
    assert world.logs_in()


# 409, or 200 without credentials: GET; else unbind, next number.


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("fault", [osb_faults.says(409), osb_faults.says(200)])
def test_what_is_there_already_is_read_or_else_replaced(fault: Fault, reads: bool) -> None:
    world = World(catalogue(bindings_retrievable=reads))
    world.broker.faults.add("bind", replace(fault, processed=True), times=1)
    world.claim()
    world.run(minutes=3)
    assert world.logs_in()
    assert world.states() == [(int(not reads), PRESENT)]
    assert list(world.broker.inventory.bindings) == [world.records()[0].id]
    asked_for = (world.broker.count("bind"), world.broker.count("fetch-binding"))
    assert asked_for == ((1, 1) if reads else (2, 0))


# request, every, expiry: next number.


def test_an_instance_that_was_lost_and_made_anew_has_its_bindings_made_anew() -> None:
    world = bound(catalogue(rotatable=True))
    world.closed = "it does not answer"
    world.lose_instance()
    assert not world.logs_in()
    world.run(minutes=1)
    assert world.condition("Valid") == ("False", "InstanceMissing")
    world.closed = ""
    world.run(minutes=10)
    assert world.condition("Valid") == ("True", "")
    assert world.logs_in()
    assert "predecessor_binding_id" not in asked(world, "bind")[1]
    world.run(hours=2)
    assert world.states() == [(1, PRESENT)]
    assert world.broker.count("bind") == 2


def test_equal_credentials_of_an_instance_that_was_made_anew_are_no_rotation() -> None:
    world = bound()
    same = {key: text for key, text in world.secret().items() if key not in ("type", "provider")}
    world.lose_instance()
    world.broker.faults.add("bind", osb_faults.says(201, {"credentials": same}, processed=True))
    world.run(minutes=1)
    assert world.states() == [(0, PRESENT), (1, PRESENT)]
    assert world.condition("Ready") == ("True", "")


def test_every_waits_for_the_overlap_of_the_rotation_before() -> None:
    world = bound(rotation={"every": "10m", "overlap": "1h"})
    world.run(hours=4)
    assert world.broker.count("bind") == 1 + 4
    assert len(world.broker.inventory.bindings) <= 2


@pytest.mark.parametrize(
    ("life", "renew_before", "due"),
    [
        (timedelta(hours=20), None, timedelta(hours=18)),  # a tenth before its end
        (timedelta(hours=20), timedelta(hours=5), timedelta(hours=13, minutes=30)),
        (timedelta(minutes=60), None, timedelta(minutes=50)),  # 10 minutes at least
        (timedelta(minutes=12), None, timedelta(minutes=6)),  # and half of a short life
    ],
)
def test_credentials_are_renewed_before_their_end(
    life: timedelta, renew_before: timedelta | None, due: timedelta
) -> None:
    world = World()
    world.broker.modes.life, world.broker.modes.renew_before = life, renew_before
    world.claim()
    begin = world.now
    world.run(seconds=30)
    world.run(seconds=(due - timedelta(minutes=1)).total_seconds())
    assert world.broker.count("bind") == 1
    world.run(minutes=2)
    assert world.broker.count("bind") == 2
    assert world.logs_in()
    made_at = world.records()[-1].made_at
    assert made_at is not None
    assert begin + due <= made_at < begin + due + timedelta(minutes=1)


# New credentials: same Secret, new data; the old ones leave after the overlap.


@pytest.mark.parametrize(
    ("rotation", "overlap"), [({}, timedelta(hours=1)), ({"overlap": "5m"}, timedelta(minutes=5))]
)
def test_both_credentials_log_in_during_the_overlap(
    rotation: dict[str, str], overlap: timedelta
) -> None:
    world = bound(rotation=rotation)
    first, uid = world.secret(), world.live(SECRET, "web-creds")["metadata"]["uid"]  # type: ignore[index]
    request(world)
    world.run(minutes=1)
    since = world.now
    assert world.broker.log_in(first)
    assert world.logs_in()
    assert world.live(SECRET, "web-creds")["metadata"]["uid"] == uid  # type: ignore[index]
    assert world.status("previous")["bindingID"] == world.records()[0].id
    world.run(seconds=(overlap - timedelta(minutes=2)).total_seconds())
    assert world.broker.log_in(first)
    world.run(minutes=3)
    assert not world.broker.log_in(first)
    assert world.logs_in()
    assert world.states() == [(1, PRESENT)]
    assert world.status("previous") is None
    assert world.status("rotatedAt") is not None
    assert since < world.now


def test_equal_credentials_keep_the_old_binding_until_others_replace_both() -> None:
    world = bound()
    world.broker.modes.same_credentials = True
    request(world)
    world.run(hours=5)
    assert world.events == ["Bound", "SameCredentials"]
    assert world.condition("Rotated") == ("False", "SameCredentials")
    every = {"rotation": {"request": "1", "every": "1h"}}
    world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(every))
    world.run(hours=5)
    assert world.states() == [(0, PRESENT), (1, PRESENT)]
    assert world.logs_in()
    world.broker.modes.same_credentials = False
    world.edit(BINDING_KIND, "web", lambda live: live["spec"]["rotation"].update(request="2"))
    world.run(minutes=90)
    assert PRESENT in world.states()[-1]
    assert world.states()[0][0] > 1
    assert world.logs_in()


# A rotation fails: the old stays, Rotated False. Expired: Valid False.


def test_a_rotation_that_failed_goes_on_slowly_and_succeeds_at_last() -> None:
    world = bound(rotation={"every": "1h"})
    world.broker.modes.failing["bind"] = 6
    world.run(hours=6)
    assert world.condition("Rotated") == ("True", "")
    assert world.broker.count("bind") >= 8
    assert world.logs_in()


def test_credentials_past_their_end_are_said_to_be_invalid() -> None:
    world = World()
    world.broker.modes.life = timedelta(minutes=60)
    world.claim()
    world.run(minutes=5)
    assert world.condition("Valid") == ("True", "")
    world.broker.faults.add("bind", osb_faults.refuses(400))
    world.run(minutes=60)
    assert world.condition("Valid") == ("False", "Expired")
    assert world.condition("Ready")[0] == "False"


# Secret lost or edited: GET, else rotate without overlap.


def lose(world: World) -> None:
    world.delete(SECRET, "web-creds")


def edit(world: World) -> None:
    value = base64.b64encode(b"mine").decode()
    world.edit(SECRET, "web-creds", lambda live: live["data"].update(password=value))


def take_a_key(world: World) -> None:
    world.edit(SECRET, "web-creds", lambda live: live["data"].pop("port"))


@pytest.mark.parametrize("harm", [lose, edit, take_a_key])
def test_a_secret_gets_its_credentials_back(harm: Callable[[World], None]) -> None:
    world = bound()
    first = world.secret()
    harm(world)
    world.run(minutes=6)
    assert world.secret() == first
    assert world.broker.count("bind") == 1
    assert world.condition("Bound") == ("True", "")
    assert world.events == ["Bound", "SecretRestored"]


def test_a_gateway_does_not_make_a_binding_unknown() -> None:
    world = bound(catalogue(rotatable=True))
    lose(world)
    world.broker.faults.add("fetch-binding", osb_faults.gateway(404), times=2)
    world.run(minutes=8)
    assert world.states() == [(0, PRESENT)]
    assert world.logs_in()


# Deleted: DELETE both, confirmed: Secret, Record, finalizer.


def test_old_credentials_that_the_broker_keeps_are_named() -> None:
    world = bound(rotation={"overlap": "0s"})
    world.broker.faults.add("unbind", osb_faults.refuses(400, "", "not today"), times=5)
    request(world)
    world.run(minutes=9)
    assert world.condition("Rotated") == ("Unknown", "NotDeleted")
    assert world.condition("Ready")[0] == "True"
    intents = [one["spec"].get("intent", {}) for one in world.objects.all(BROKER_RECORD)]
    assert not any("secretDigest" in one for one in intents)  # of which the CRD knows nothing
    world.run(hours=1)
    assert world.condition("Rotated") == ("True", "")


def test_an_unbind_that_is_not_confirmed_keeps_no_other_binding_from_its_rotation() -> None:
    world = bound()
    world.claim("job")
    world.run(minutes=3)
    world.broker.faults.add("unbind", osb_faults.refuses(400, "BadRequest", "not today"))
    world.delete(BINDING_KIND, "job")
    world.run(minutes=10)
    request(world)
    world.run(minutes=20)
    assert world.condition("Rotated") == ("True", "")


def test_a_crd_that_is_deleted_unbinds_nothing_unless_it_is_confirmed() -> None:
    world = bound()
    world.crd_is_deleting = True
    world.delete(BINDING_KIND, "web")
    world.run(hours=1)
    assert world.logs_in()
    assert world.condition("DeletesAllowed") == ("False", "MassDeletion")
    world.confirms = True
    world.run(minutes=3)
    assert world.broker.inventory.bindings == {}
    assert world.live(BINDING_KIND, "web") is None


def delete_instance(world: World, policy: str) -> None:
    world.edit(INSTANCE_KIND, "orders", lambda live: live["spec"].update(deletionPolicy=policy))
    world.delete(INSTANCE_KIND, "orders")


def test_an_instance_that_is_deleted_at_once_takes_its_bindings_along() -> None:
    world = bound()
    request(world)
    world.run(minutes=3)
    delete_instance(world, "Immediate")
    world.run(minutes=3)
    assert world.broker.inventory.bindings == {}
    assert world.records() == []
    assert world.secret() == {}
    assert world.condition("Bound") == ("False", "InstanceDeleted")
    world.delete(BINDING_KIND, "web")
    world.run(minutes=3)
    assert world.live(BINDING_KIND, "web") is None


# A claim that is absent: an orphan.


def tear_off(world: World) -> None:
    world.edit(BINDING_KIND, "web", lambda live: live["metadata"].update(finalizers=[]))
    world.delete(BINDING_KIND, "web")


@pytest.mark.parametrize(("wish", "left"), [(keys.ORPHAN_DEPROVISION, 0), (keys.ORPHAN_FORGET, 1)])
def test_a_named_wish_ends_an_orphan(wish: str, left: int) -> None:
    world = bound()
    tear_off(world)
    world.run(minutes=1)
    note = {keys.OSB_ORPHAN: wish}
    world.edit(
        BROKER_RECORD, world.records()[0].id, lambda live: live["metadata"].update(annotations=note)
    )
    world.run(minutes=3)
    assert world.records() == []
    assert len(world.broker.inventory.bindings) == left


def test_a_refused_bind_proves_nothing_of_one_before_a_crash() -> None:
    world = World()
    world.claim()
    world.broker.faults.add("bind", osb_faults.refuses(400), times=1)
    world.turn()  # the finalizer
    world.turn()  # the record
    world.ends_in_a_call()
    world.run(minutes=1)
    world.delete(BINDING_KIND, "web")
    world.run(minutes=1)
    assert (world.records(), world.broker.inventory.bindings) == ([], {})


def test_a_deletion_whose_finalizer_is_gone_is_none() -> None:
    world = bound()
    held = ["somebody.else/finalizer"]
    world.edit(BINDING_KIND, "web", lambda live: live["metadata"].update(finalizers=held))
    world.delete(BINDING_KIND, "web")
    world.run(minutes=3)
    assert world.states() == [(0, "Orphaned")]
    assert world.logs_in()


def test_all_ready_and_restarted_writes_nothing_and_calls_nothing() -> None:
    world = bound()
    request(world)
    world.run(hours=2)
    before, calls = json.dumps([str(one) for one in world.steps]), len(world.broker.journal)
    world.restart()
    world.run(hours=2)
    assert json.dumps([str(one) for one in world.steps]) == before
    assert len(world.broker.journal) == calls

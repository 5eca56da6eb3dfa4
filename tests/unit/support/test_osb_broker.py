"""The scripted broker notices what platforms do wrong, and is hostile where it was asked to be."""

from datetime import timedelta

import pytest

from tests.support import osb_catalogues, osb_faults
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_requests import BINDING, INSTANCE, Platform
from tests.support.osb_wire import MUTATING


@pytest.fixture
def broker() -> ScriptedBroker:
    plans = [osb_catalogues.plan("small", rotatable=True), osb_catalogues.plan("big")]
    return ScriptedBroker(osb_catalogues.catalogue(osb_catalogues.offering(plans=plans)))


@pytest.fixture
def platform(broker: ScriptedBroker) -> Platform:
    return Platform(broker)


def everything(platform: Platform) -> list[int]:
    """Do each thing once, properly; return the statuses."""
    done = [
        platform.provision(parameters={"a": 1}),
        platform.ask("GET"),
        platform.update(parameters={"a": 2}),
        platform.bind(parameters={}),
        platform.ask("GET", binding=BINDING),
        platform.bind("binding-2", predecessor_binding_id=BINDING),
        platform.ask("DELETE", binding=BINDING),
        platform.ask("DELETE", binding="binding-2"),
        platform.ask("DELETE"),
    ]
    return [one["status"] for one in done]


def test_a_platform_that_keeps_the_rules_is_not_blamed(broker, platform):
    assert everything(platform) == [201, 200, 200, 201, 200, 201, 200, 200, 200]
    assert broker.violations == []
    assert broker.inventory.is_empty


def without(part, key):
    def breaking(request):
        (request[part] or {}).pop(key, None)

    return breaking


def having(part, **members):
    def breaking(request):
        if request[part] is not None:
            request[part] |= members

    return breaking


BREACHES = {
    "no X-Broker-API-Version": without("headers", "X-Broker-API-Version"),
    "no X-Broker-API-Request-Identity": without("headers", "X-Broker-API-Request-Identity"),
    "Originating-Identity is not": having(
        "headers", **{"X-Broker-API-Originating-Identity": "kubernetes e30"}
    ),
    "no accepts_incomplete": without("query", "accepts_incomplete"),
    "without Content-Type": without("headers", "Content-Type"),
    "no service_id": lambda request: (
        without("query", "service_id")(request),
        without("body", "service_id")(request),
    ),
    "no plan_id": without("query", "plan_id"),
    "another plan_id": having("query", plan_id="another"),
    "no organization_guid": without("body", "organization_guid"),
    "no space_guid": without("body", "space_guid"),
    "no clusterid in context": having("body", context={"platform": "kubernetes"}),
    "parameters is no object": having("body", parameters=[]),
    "no previous_values": without("body", "previous_values"),
    "no bind_resource.app_guid": without("body", "bind_resource"),
    "parameters in a rotation": having("body", parameters={}),
    "maintenance_info for a plan": having("body", maintenance_info={"version": "1.0.0"}),
    "which 2.14 does not know": lambda request: (
        having("headers", **{"X-Broker-API-Version": "2.14"})(request),
        having("body", maintenance_info={"version": "1.0.0"})(request),
    ),
}


@pytest.mark.parametrize(("breach", "breaking"), BREACHES.items(), ids=BREACHES)
def test_each_breach_of_a_rule_is_noted(broker, platform, breach, breaking):
    platform.breaking = breaking
    everything(platform)
    assert any(breach in one for one in broker.violations), broker.violations


def test_what_depends_on_the_inventory_is_noted(broker, platform):
    platform.bind()
    assert "an instance that is not there" in broker.violations[-1]
    platform.provision()
    platform.bind()
    platform.ask("DELETE")
    assert "while bindings are there" in broker.violations[-1]
    platform.provision()
    platform.provision("instance-2")
    assert broker.inventory.doubles
    assert len(broker.violations) == 2


def test_flags_of_the_catalogue_are_kept(platform, broker):
    offering = broker.catalogue["services"][0]
    offering |= {"plan_updateable": False, "bindable": False, "instances_retrievable": False}
    platform.provision()
    platform.ask("GET")
    platform.update(plan_id=platform.other_plan)
    platform.bind()
    noted = "\n".join(broker.violations)
    for word in ("without instances_retrievable", "cannot be changed", "cannot be bound"):
        assert word in noted


def test_an_operation_is_polled_by_its_key_to_its_end(broker, platform):
    broker.modes.asynchronous = MUTATING
    begun = platform.provision()
    assert begun["status"] == 202
    assert platform.provision() == begun
    assert platform.ask("GET")["status"] == 404
    key = begun["operation"]
    states = [platform.ask("GET", poll=True, operation=key)["state"] for _ in range(2)]
    assert states == ["in progress", "succeeded"]
    gone = platform.ask("DELETE")
    polls = [platform.ask("GET", poll=True, operation=gone["operation"]) for _ in range(2)]
    assert [one["status"] for one in polls] == [200, 410]
    assert broker.inventory.is_empty
    assert broker.violations == []
    platform.provision()
    platform.ask("GET", poll=True, operation="another")
    platform.bind()
    assert [one.split(": ")[1] for one in broker.violations] == [
        "last_operation with another operation than was given",
        "a second operation while one is in progress",
    ]


def test_operations_take_time_by_the_clock_of_the_test():
    now = [0.0]
    broker = ScriptedBroker(now=lambda: now[0])
    broker.modes.asynchronous, broker.modes.takes = MUTATING, 60.0
    broker.modes.gives_operation = False
    platform = Platform(broker)
    assert platform.provision().keys() == {"status", "way", "dashboard_url"}
    platform.ask("GET", poll=True)
    assert platform.ask("GET", poll=True)["state"] == "in progress"
    now[0] = 60.0
    assert platform.ask("GET", poll=True)["state"] == "succeeded"
    assert platform.bind()["status"] == 202
    assert broker.violations == []


def test_what_fails_stays_until_it_is_deleted(broker, platform):
    broker.modes.asynchronous = frozenset({"provision"})
    broker.modes.failing["provision"] = 1
    key = platform.provision()["operation"]
    states = [platform.ask("GET", poll=True, operation=key)["state"] for _ in range(2)]
    assert states == ["in progress", "failed"]
    assert broker.inventory.instances[INSTANCE]["state"] == "failed"
    platform.ask("DELETE")
    assert broker.inventory.is_empty
    broker.modes.asynchronous = frozenset()
    broker.modes.failing["provision"] = 1
    assert [platform.provision()["status"] for _ in range(2)] == [500, 500]
    assert platform.ask("DELETE")["status"] == 200
    assert platform.provision()["status"] == 201
    assert broker.provisioned() == [INSTANCE]


def test_a_put_of_what_is_there_is_answered_as_asked_for(broker, platform):
    platform.provision()
    assert platform.provision()["status"] == 200
    assert platform.provision(parameters={"a": 1})["status"] == 409
    for status in (200, 201, 409):
        broker.modes.repeated = status
        assert platform.provision(parameters={"a": 1})["status"] == status
    broker.modes.repeated = 202
    again = platform.provision()
    assert again["status"] == 202
    assert platform.ask("GET", poll=True, operation=again["operation"])["state"] == "succeeded"
    assert len(broker.inventory.instances) == 1


@pytest.mark.parametrize("status", [200, 404, 410])
def test_a_delete_of_what_is_unknown_is_answered_as_asked_for(broker, platform, status):
    broker.modes.unknown_delete = status
    assert platform.ask("DELETE")["status"] == status


def test_faults_befall_so_many_requests_and_may_hide_that_they_were_carried_out(broker, platform):
    broker.faults.add("provision", osb_faults.hangs(processed=True), times=1)
    broker.faults.add("provision", osb_faults.says(500), times=1)
    assert platform.provision()["way"] == "hang"
    assert broker.inventory.instances
    broker.inventory.lose((INSTANCE, ""))
    assert platform.provision()["status"] == 500
    assert broker.inventory.is_empty
    assert platform.provision()["status"] == 201
    assert [one.status for one in broker.journal] == [0, 500, 201]


def test_maintenance_of_another_version_is_refused(broker, platform):
    plan = broker.catalogue["services"][0]["plans"][0]
    plan["maintenance_info"] = {"version": "2.0.0"}
    assert platform.provision(maintenance_info={"version": "1.0.0"})["status"] == 422
    assert platform.provision(maintenance_info={"version": "2.0.0"})["status"] == 201
    assert broker.violations == []


def test_credentials_log_in_while_their_binding_lives():
    now = [0.0]
    broker = ScriptedBroker(now=lambda: now[0])
    platform = Platform(broker)
    broker.modes.life, broker.modes.renew_before = timedelta(hours=1), timedelta(minutes=10)
    platform.provision()
    bound = platform.bind()
    assert bound["metadata"] == {
        "expires_at": "1970-01-01T01:00:00.000000Z",
        "renew_before": "1970-01-01T00:50:00.000000Z",
    }
    assert broker.log_in(bound["credentials"])
    assert not broker.log_in({**bound["credentials"], "password": "another"})
    now[0] = 3600.0
    assert not broker.log_in(bound["credentials"])
    now[0] = 0.0
    platform.ask("DELETE", binding=BINDING)
    assert not broker.log_in(bound["credentials"])


def test_a_stranger_is_refused_and_nothing_is_done(broker, platform):
    platform.breaking = having("headers", Authorization="Basic eDp5")
    assert platform.provision()["status"] == 401
    assert broker.inventory.is_empty

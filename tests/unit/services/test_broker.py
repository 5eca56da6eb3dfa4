"""What a call means for the example's broker, and the files that follow from its catalogue."""

import shutil
from dataclasses import replace

import pytest

from klutchctl import main
from klutchctl.entry import ExitCode
from postgresql_broker import instances
from postgresql_broker.catalogue import BIG, ENCODING, OFFERING, SESSIONS, SMALL
from postgresql_broker.instances import Binding, Change, Instance, Verb
from postgresql_broker.refusal import Refusal
from postgresql_server.works import Deprovision, Provision
from reconciler.core.secret import Secret
from tests.support.operated import SERVICES

MADE = Instance(
    "orders", OFFERING, SMALL, {SESSIONS: 3}, "shop/orders", Verb.CREATE, "1", done=True
)
BEING_MADE = replace(MADE, done=False)
BEING_CHANGED = replace(MADE, verb=Verb.UPDATE, plan=BIG, done=False)
GOING = replace(MADE, verb=Verb.DELETE, done=False)
BOUND = Binding("orders", "web", SMALL, {SESSIONS: 2}, app="shop")
KEY = Secret("a key")


def asked(**changed):
    """Return what a platform asks for: the very instance that is there, but for what differs."""
    usual = {"plan": SMALL, "parameters": {SESSIONS: 3}}
    return Change("orders", OFFERING, "2", **{**usual, **changed})


def refusal_of(decide, *arguments):
    """Return the status and the code of what is refused."""
    with pytest.raises(Refusal) as refused:
        decide(*arguments)
    return refused.value.status, refused.value.code


SAME = {"one that is there": MADE, "one that is being made": BEING_MADE}
REFUSED = {
    "another plan of the same id": (MADE, asked(plan=BIG), (409, "")),
    "other parameters of the same id": (MADE, asked(parameters={}), (409, "")),
    "one that goes": (GOING, asked(), (422, "ConcurrencyError")),
    "a plan that there is not": (None, asked(plan="none"), (400, "")),
    "too many sessions": (None, asked(parameters={SESSIONS: 6}), (400, "")),
    "no sessions": (None, asked(parameters={SESSIONS: 0}), (400, "")),
    "sessions that are no number": (None, asked(parameters={SESSIONS: True}), (400, "")),
    "an encoding that there is not": (None, asked(parameters={ENCODING: "EBCDIC"}), (400, "")),
    "a parameter that there is not": (None, asked(parameters={"size": 1}), (400, "")),
    "other maintenance": (None, asked(maintenance="9.0.0"), (422, "MaintenanceInfoConflict")),
    "an id that cannot be printed": (None, replace(asked(), instance="a\nb"), (400, "")),
}
NOT_UPDATED = {
    "one that there is not": (None, asked(), (404, "")),
    "one that goes": (GOING, asked(), (404, "")),
    "one that is being made": (BEING_MADE, asked(plan=BIG), (422, "ConcurrencyError")),
    "one that changes otherwise": (BEING_CHANGED, asked(plan=SMALL), (422, "ConcurrencyError")),
    "another service": (MADE, replace(asked(), service="other"), (400, "")),
    "another encoding": (MADE, asked(parameters={ENCODING: "LATIN1"}), (400, "")),
    "more sessions than the plan": (MADE, asked(parameters={SESSIONS: 6}), (400, "")),
    "other maintenance": (MADE, asked(maintenance="9.0.0"), (422, "MaintenanceInfoConflict")),
}


@pytest.mark.parametrize("known", SAME.values(), ids=SAME.keys())
def test_the_same_call_again_is_about_the_same_instance(known):
    assert instances.provision(known, asked()) is known


@pytest.mark.parametrize(("known", "change", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_provisioned(known, change, said):
    assert refusal_of(instances.provision, known, change) == said


def test_an_update_to_what_is_there_begins_nothing():
    assert instances.update(MADE, asked(plan="", parameters=None)) is MADE
    assert instances.update(BEING_CHANGED, asked(plan=BIG)) is BEING_CHANGED


@pytest.mark.parametrize(("known", "change", "said"), NOT_UPDATED.values(), ids=NOT_UPDATED.keys())
def test_what_is_not_updated(known, change, said):
    assert refusal_of(instances.update, known, change) == said


def test_an_instance_goes_also_while_it_is_being_made():
    for known in (MADE, BEING_MADE, BEING_CHANGED):
        going = instances.deprovision(known, 0, "2")
        assert (going.verb, going.done, going.operation) == (Verb.DELETE, False, "2")
    assert instances.deprovision(GOING, 0, "2") is GOING
    assert refusal_of(instances.deprovision, MADE, 1, "2") == (400, "")
    assert refusal_of(instances.deprovision, None, 0, "2") == (410, "")


def test_what_a_platform_sees_of_an_instance():
    assert instances.fetched(MADE) is MADE
    assert refusal_of(instances.fetched, BEING_CHANGED) == (422, "ConcurrencyError")
    for known in (None, BEING_MADE, GOING):
        assert refusal_of(instances.fetched, known) == (404, "")


def test_a_binding_is_of_the_plan_that_its_instance_has():
    wanted = replace(BOUND, plan="whatever the platform says")
    assert instances.bind(None, MADE, wanted) == BOUND
    assert instances.bind(BOUND, MADE, wanted) is BOUND


def test_what_is_not_bound():
    assert refusal_of(instances.bind, None, None, BOUND) == (400, "")
    assert refusal_of(instances.bind, None, GOING, BOUND) == (400, "")
    assert refusal_of(instances.bind, None, BEING_MADE, BOUND) == (422, "ConcurrencyError")
    assert refusal_of(instances.bind, BOUND, MADE, replace(BOUND, app="bank")) == (409, "")
    many = replace(BOUND, parameters={SESSIONS: 6})
    assert refusal_of(instances.bind, None, MADE, many) == (400, "")


def test_a_successor_has_what_its_predecessor_had():
    new = Binding("orders", "next", SMALL, {}, predecessor="web")
    assert instances.successor(BOUND, new) == replace(new, parameters=BOUND.parameters, app="shop")
    assert refusal_of(instances.successor, None, new) == (400, "")


def test_only_a_new_instance_makes_a_database():
    database = instances.database_of("orders")
    made = Provision(database, 3, "shop/orders", new=True, encoding="UTF8")
    assert instances.work_of(BEING_MADE) == made
    assert instances.work_of(BEING_CHANGED) == replace(made, new=False)
    assert instances.work_of(GOING) == Deprovision(database)


def test_a_password_follows_from_the_key_and_the_ids_alone():
    login = instances.login_of(BOUND, KEY)
    assert login == instances.login_of(replace(BOUND, plan=BIG), KEY)
    others = (replace(BOUND, id="worker"), replace(BOUND, instance="bills"))
    passwords = [instances.login_of(one, KEY).password for one in (BOUND, *others)]
    passwords.append(instances.login_of(BOUND, Secret("another key")).password)
    assert len({*passwords}) == 4
    assert all(len(one.reveal()) >= 40 for one in passwords)
    assert login.sessions == 2


@pytest.mark.parametrize("name", ["x" * 255, "ein Ünïcode", "a'; DROP"])
def test_names_in_postgresql_are_short_and_plain_whatever_ids_are(name):
    for text in (instances.database_of(name), instances.role_of(Binding(name, name, SMALL, {}))):
        assert len(text) < 64
        assert text.replace("_", "").isalnum()


OSB = SERVICES / "osb"


def test_they_are_what_the_saved_catalogue_makes(capsys):
    saved = ["--catalog", str(OSB / "catalog.json")]
    code = main.run(["catalog", str(OSB / "broker.yaml"), *saved, "--check"])
    output = capsys.readouterr()
    assert code == ExitCode.SUCCESS, output.out
    assert output.err == ""


def test_a_fleet_with_them_and_with_what_is_direct_is_valid(tmp_path, capsys):
    fleet = tmp_path / "fleet"
    shutil.copytree(SERVICES.parent, fleet, ignore=shutil.ignore_patterns("services"))
    for overlay in (SERVICES / "direct", OSB / "overlay"):
        shutil.copytree(overlay, fleet, dirs_exist_ok=True)
    shutil.copytree(OSB / "fleet", fleet / "templates", dirs_exist_ok=True)
    code = main.run(["validate", str(fleet)])
    assert code == ExitCode.SUCCESS, capsys.readouterr().out

"""The status of an APIServiceExport (protocol-konnector.md C.5, G 27)."""

from datetime import timedelta

import pytest

from konnector import CONTROL_PLANE
from konnector.space.decide import ExportView, export_status, is_connected
from reconciler.api import API_SERVICE_EXPORT
from reconciler.core.decision import NOTHING, status_patch
from reconciler.core.manifest import ref_of
from reconciler.core.times import format_time
from tests.support.json_values import NO_OBJECTS
from tests.support.space_objects import NOW, ago, condition, deleting, live

NAME = "databases.shop.example"
NAMES = {"plural": "databases", "kind": "Database", "shortNames": ["db"]}
TIME = format_time(NOW)
SYNCED = condition("ProviderInSync", "True")
ESTABLISHED = {
    "type": "Established",
    "status": "True",
    "reason": "InitialNamesAccepted",
    "message": "the initial names have been accepted",
    "lastTransitionTime": ago(hours=2),
}
CONFLICT = {
    "type": "NamesAccepted",
    "status": "False",
    "reason": "KindConflict",
    "message": "taken",
    "lastTransitionTime": ago(hours=2),
}


def export(*held, **status):
    whole = {**status, "conditions": list(held)}
    return live(API_SERVICE_EXPORT, NAME, namespace="cluster-a1", status=whole)


def binding(*held):
    return {"metadata": {"name": NAME}, "status": {"conditions": list(held)}}


def crd(*held):
    status = {"conditions": list(held), "acceptedNames": NAMES, "storedVersions": ["v1"]}
    return {"metadata": {"name": NAME}, "status": status}


IN_SYNC = binding(condition("SchemaInSync", "True"))


def written(now=NOW, **facts):
    look = ExportView(**{"export": export(SYNCED), **facts})
    ref = ref_of(CONTROL_PLANE, API_SERVICE_EXPORT, look.export)
    patch = status_patch(look.export, ref, export_status(look, now=now), failed=(), now=now)
    return None if patch is None else patch.body["status"]


def test_a_healthy_one_to_the_byte():
    """Section I, but that it becomes Ready (H16)."""
    assert written(binding=IN_SYNC, crd=crd(ESTABLISHED)) == {
        "acceptedNames": NAMES,
        "storedVersions": ["v1"],
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": TIME},
            {"type": "Connected", "status": "True", "lastTransitionTime": TIME},
            {"type": "ConsumerInSync", "status": "True", "lastTransitionTime": TIME},
            ESTABLISHED,
            SYNCED,
        ],
    }


def conditions_of(status):
    return {one["type"]: one for one in status["conditions"]}


def test_nobody_bound_it():
    status = written()
    reported = conditions_of(status)
    common = {"status": "False", "severity": "Info", "message": "No APIServiceBinding exists.",
              "lastTransitionTime": TIME}  # fmt: skip
    assert reported["Connected"] == {
        "type": "Connected",
        "reason": "APIServiceBindingNotFound",
        **common,
    }
    assert reported["ConsumerInSync"] == {"type": "ConsumerInSync", "reason": "NA", **common}
    assert "Ready" not in reported
    assert set(status) == {"conditions"}


def test_nothing_is_synced_any_more_for_one_that_goes():
    assert conditions_of(written(binding=IN_SYNC, syncing=False)) == conditions_of(written())


SAYS = {
    "nothing yet": (export(), False),
    "that it is": (export(condition("Connected", "True")), True),
    "nothing that counts, as it goes": (deleting(export(condition("Connected", "True"))), False),
}


@pytest.mark.parametrize(("held", "expected"), SAYS.values(), ids=SAYS.keys())
def test_what_it_says_of_the_connection(held, expected):
    assert is_connected(held) is expected


def test_a_binding_that_does_not_report():
    reported = conditions_of(written(binding=binding()))["ConsumerInSync"]
    assert (reported["severity"], reported["reason"], reported["message"]) == (
        "Info",
        "Unknown",
        "APIServiceBinding databases.shop.example in the consumer cluster does not have a "
        "SchemaInSync condition.",
    )


def test_a_ready_of_the_crd_is_not_the_exports():
    first = written(binding=IN_SYNC, crd=crd(ESTABLISHED))
    held = export(*first.pop("conditions"), **first)
    odd = crd(ESTABLISHED, condition("Ready", "False", "Odd"))
    assert written(NOW + timedelta(hours=1), export=held, binding=IN_SYNC, crd=odd) is None


def test_names_that_are_gone_go_and_nothing_else_is_written():
    first = written(binding=IN_SYNC, crd=crd(ESTABLISHED))
    first["acceptedNames"] = {**NAMES, "categories": ["shop"]}
    held = export(*first.pop("conditions"), **first)
    status = written(export=held, binding=IN_SYNC, crd=crd(ESTABLISHED))
    assert status == {"acceptedNames": {"categories": None}}


REPEATED = {
    "healthy": {"binding": IN_SYNC, "crd": crd(ESTABLISHED)},
    "not bound": {},
    "with a conflict": {"binding": IN_SYNC, "crd": crd(CONFLICT)},
    "a CRD that says nothing yet": {"binding": binding(), "crd": {"status": {}}},
}


@pytest.mark.parametrize("facts", REPEATED.values(), ids=REPEATED.keys())
def test_the_second_look_writes_nothing(facts):
    first = written(**facts)
    held = export(*first.pop("conditions"), **first)
    assert written(NOW + timedelta(hours=1), **facts, export=held) is None


def test_one_that_goes_is_left_alone():
    assert export_status(ExportView(export=deleting(export())), now=NOW) == NOTHING


HOSTILE = [*NO_OBJECTS, {"conditions": 7, "acceptedNames": [], "storedVersions": {}}]


@pytest.mark.parametrize("odd", HOSTILE, ids=repr)
def test_odd_values_never_raise(odd):
    written(crd={"status": odd}, binding={"status": odd, "metadata": odd})
    written(export={**export(), "status": odd}, crd=crd(ESTABLISHED))

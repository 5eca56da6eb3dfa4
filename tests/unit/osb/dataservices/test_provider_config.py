"""When a ProviderConfig is looked at, what its status says then, and what holds it."""

from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.provider_config import Seen, answered, next_step
from reconciler.blueprints.offering.messages import HttpRequest
from reconciler.core import keys
from reconciler.core.manifest import finalizers_of
from tests.support import dataservices as objects
from tests.support.dataservices import NOW, after

HEAD = HttpRequest("HEAD", "/instances")
OWN = HttpRequest("HEAD", "/h")
CATALOGUE = HttpRequest("GET", "/v2/catalog")


def live(text="spec: {url: 'https://b'}", **metadata):
    return objects.managed(kinds.PROVIDER_CONFIG, text, **{"finalizers": [keys.IN_USE]} | metadata)


def checked(seconds, *, well):
    status = f"{{lastCheckTime: '{objects.ago(seconds)}', lastStatus: {str(well).lower()}}}"
    return live(f"spec: {{url: 'https://b'}}\nstatus: {{health: {status}}}")


def step(of, **more) -> Any:
    return next_step(Seen("cp", of, NOW, **more))


def test_what_is_used_is_held():
    fresh = live(finalizers=[])
    assert finalizers_of(after(fresh, step(fresh))) == [keys.IN_USE]
    leaving = live(deletionTimestamp=objects.ago(1))
    used = after(leaving, step(leaving, users=2))
    assert (finalizers_of(used), used["status"]["users"]) == ([keys.IN_USE], 2)
    assert finalizers_of(after(leaving, step(leaving))) == []


DUE = [
    (live(), True),
    (checked(179, well=True), False),
    (checked(180, well=True), True),
    (checked(29, well=False), False),
    (checked(30, well=False), True),
    (checked(-9999, well=True), False),
]


@pytest.mark.parametrize(("of", "is_due"), DUE)
def test_when_it_is_looked_at(of, is_due):
    then = step(of, users=3)
    assert (then == HEAD) == is_due
    if not is_due:
        assert timedelta() < then.again <= timedelta(minutes=3)
        assert then.fields == {"users": 3}


ANSWERS = [
    ("200", "", HEAD, 200, (True, "Available")),
    ("404, and the catalogue is asked", "", HEAD, 404, CATALOGUE),
    ("405, and the catalogue is asked", "", HEAD, 405, CATALOGUE),
    ("the catalogue", "", CATALOGUE, 200, (True, "Available")),
    ("no catalogue either", "", CATALOGUE, 404, (False, "HTTP 404")),
    ("401", "", HEAD, 401, (False, "HTTP 401")),
    ("a path of its own", "healthCheckEndpoint: h", OWN, 404, (False, "HTTP 404")),
    ("a backup manager", "serviceType: backupmanager", HEAD, 404, (False, "HTTP 404")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_", "spec", "ask", "status", "wanted"), ANSWERS, ids=[a[0] for a in ANSWERS]
)
def test_an_answer(_, spec, ask, status, wanted):
    of = live(f"spec: {{url: 'https://b', {spec}}}")
    then: Any = answered(Seen("cp", of, NOW), ask, status, "")
    if isinstance(wanted, HttpRequest):
        assert then == wanted
        return
    health = after(of, then)["status"]["health"]
    assert (health["lastStatus"], health["lastMessage"]) == wanted
    assert then.again == (timedelta(minutes=3) if wanted[0] else timedelta(seconds=30))


def test_events_are_of_changes_only():
    for before, status, reasons in (
        (live(), 200, ["CheckSuccess"]),
        (checked(999, well=True), 200, []),
        (checked(999, well=True), 500, ["CheckFailure"]),
        (checked(999, well=False), 500, []),
    ):
        then: Any = answered(Seen("cp", before, NOW), HEAD, status, "")
        assert [note.reason for note in then.notes] == reasons

"""For whom the work in a space is done, and what that is worth in the queue."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bind import program
from bind.cluster_binding.decide import STATES, state_of
from bind.informers import Informers, party_of, trimmed_namespace
from bind.osb import informers as views
from bind.osb.informers import Places
from bind.program import spaces
from reconciler.api import CLUSTER_BINDING
from reconciler.blueprints.objects import build
from reconciler.controller.metrics import Metrics
from reconciler.controller.queue import WorkQueue
from reconciler.core import keys, names
from reconciler.core.refs import ObjectKey
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.kube.turns import Party
from tests.support.fake_clock import FakeClock
from tests.support.space_objects import NOW, ago, cluster_binding, deleting

ISSUER = "https://id.example.com"


def namespace(name: str = "s1", *, by: str = keys.MANAGER_BACKEND, **said: Any) -> Any:
    """Return a Namespace whose annotations one manager wrote; `fleet` is a label."""
    labels = {key: value for key, value in said.items() if key != "notes"}
    notes = said.get("notes", {})
    written: Any = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in notes}}}
    entry = {"manager": by, "operation": "Update", "fieldsV1": written}
    metadata = {
        "name": name,
        "labels": {f"klutchctl.dev/{key}": value for key, value in labels.items()},
        "annotations": notes,
        "managedFields": [entry],
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def identity(subject: str, cluster: str = "c1", issuer: str = ISSUER) -> dict[str, str]:
    return {keys.IDENTITY: f"{subject}#{cluster}", keys.ISSUER: issuer}


def of_author(author: str) -> Any:
    labels = {keys.APP_CLUSTER_BINDING_NAMESPACE: author, keys.APP_CLUSTER_BINDING_NAME: "orders"}
    return {"metadata": {"name": names.CLUSTER_BINDING, "namespace": "s1", "labels": labels}}


ANN = f"identity {ISSUER} ann"
OWNERS = {
    "a fleet": (namespace(fleet="acme"), None, "fleet acme"),
    "a fleet, before whoever bound it": (
        namespace(fleet="acme", notes=identity("ann")),
        None,
        "fleet acme",
    ),
    "a fleet that let it go": (
        namespace(fleet="acme", notes={keys.RELEASED: "x", **identity("ann")}),
        None,
        ANN,
    ),
    "a person": (namespace(notes=identity("ann")), None, ANN),
    "of another cluster": (namespace(notes=identity("ann", "c2")), None, ANN),
    "whose name has the sign": (
        namespace(notes=identity("ann#c1")),
        None,
        f"identity {ISSUER} ann#c1",
    ),
    "of another issuer": (
        namespace(notes=identity("ann", issuer="https://evil.example")),
        None,
        "identity https://evil.example ann",
    ),
    "somebody who only says so": (
        namespace(by="kubectl-annotate", notes=identity("ann")),
        None,
        "space s1",
    ),
    "an AppClusterBinding": (namespace(), of_author("dev"), "namespace dev"),
    "nobody that is known": (namespace(), None, "space s1"),
    "a space that is not seen yet": (None, None, "space s1"),
}


@pytest.mark.parametrize(("live", "binding", "owner"), OWNERS.values(), ids=OWNERS)
def test_owners(live: Any, binding: Any, owner: str) -> None:
    trimmed = None if live is None else trimmed_namespace(live)
    assert party_of("s1", trimmed, binding) == Party(owner, "s1")


# Fifty spaces of one owner, each as its Namespace and ClusterBinding say.
FIFTY = {
    "of a fleet": lambda n: (namespace(f"s{n}", fleet="acme"), None),
    "of a person": lambda n: (namespace(f"s{n}", notes=identity("ann", f"c{n}")), None),
    "of a namespace": lambda n: (namespace(f"s{n}"), of_author("dev")),
}


@pytest.mark.parametrize("made", FIFTY.values(), ids=FIFTY)
async def test_an_owner_of_fifty_spaces_has_every_second_turn(made: Any) -> None:
    nowhere = KubeCluster(Connection("control-plane", "https://control-plane.invalid"))
    informers = Informers(nowhere, control_plane_mode=True)
    informers.namespaces.put(namespace("other", notes=identity("bob")))
    for n in range(50):
        live, binding = made(n)
        informers.namespaces.put(live)
        if binding is not None:
            binding["metadata"]["namespace"] = f"s{n}"
            informers.cluster_bindings.put(build(CLUSTER_BINDING, "cluster") | binding)
    requests: Any = SimpleNamespace(recents=[informers.recent(informers.requests)])
    party = partial(program._party_of, informers, "serviceexportrequest", requests)
    queue = WorkQueue[ObjectKey](FakeClock(), party=party)
    for n in range(50):
        for number in range(4):
            queue.enqueue(ObjectKey(f"s{n}", f"r{number}"))
    for number in range(3):
        queue.enqueue(ObjectKey("other", f"r{number}"))
    taken = [(await queue.take()).namespace for _ in range(6)]
    assert taken == ["s0", "other", "s1", "other", "s2", "other"]
    queue.close()
    wide: Any = {
        "metadata": {"namespace": "s0", "name": "r1"},
        "spec": {"parameters": [{}] * 40_000},
    }
    informers.requests.put(wide)
    assert [party(ObjectKey("s0", f"r{number}")).wide for number in range(3)] == [
        False,
        True,
        False,
    ]
    await nowhere.close()


async def test_of_a_flooded_app_cluster_binding_klutch_bind_knows_its_name() -> None:
    async with KubeCluster(Connection("control-plane", "https://control-plane.invalid")) as nowhere:
        view = Informers(nowhere, control_plane_mode=True).app_cluster_bindings
        flood: Any = {"apiExports": [{}] * 10**6}
        view.put({"metadata": {"namespace": "dev", "name": "orders"}, "spec": flood})
        assert view.stub("dev", "orders")


async def test_a_flooded_cluster_binding_is_no_obstacle_to_klutch_osb() -> None:
    async with KubeCluster(Connection("control-plane", "https://control-plane.invalid")) as nowhere:
        informers = views.Informers(nowhere, "klutch-bind", Metrics())
        flood: Any = {"conditions": [{}] * 10**6}
        informers.cluster_bindings.put({**of_author("dev"), "status": flood})
        assert Places(informers).party("s1") == Party("namespace dev", "s1")


def beating(last, interval="5m0s"):
    return cluster_binding(lastHeartbeatTime=last, heartbeatInterval=interval)


ROWS = {
    "no beat yet": (cluster_binding(), "pending"),
    "between beats": (beating(ago(minutes=4)), "connected"),
    "two beats missed": (beating(ago(minutes=11)), "silent"),
    "a beat from the future": (beating(ago(minutes=-11)), "silent"),
    "it goes": (deleting(beating(ago(minutes=4))), "deleting"),
}


@pytest.mark.parametrize(("binding", "want"), ROWS.values(), ids=ROWS)
def test_the_state_of_a_space(binding, want):
    assert state_of(binding, NOW) == want


def test_a_space_counts_once_and_no_more_when_it_is_gone():
    registry = CollectorRegistry()
    counts = spaces(registry)

    def shown():
        values = {one: registry.get_sample_value("klutch_spaces", {"state": one}) for one in STATES}
        return {state: value for state, value in values.items() if value}

    for state in ("pending", "connected", "connected", "silent"):
        counts.note("a", state)
    counts.note("b", "connected")
    assert shown() == {"silent": 1, "connected": 1}
    counts.note("b", None)
    counts.note("b", None)
    assert shown() == {"silent": 1}
    counts.clear()
    assert shown() == {}

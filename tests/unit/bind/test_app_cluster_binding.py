"""One AppClusterBinding from its creation on: what is made, in which order, and what is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bind.app_cluster_binding.facts import Terms
from reconciler import api
from reconciler.core import keys, names
from reconciler.core.decision import Patch
from reconciler.core.manifest import get
from reconciler.core.normalize import normalize
from reconciler.core.refs import NAMESPACE, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from tests.support import kubeconfigs
from tests.support.wire_objects import SERVER_FIELDS
from tests.unit.bind.app_cluster_world import (
    DATABASES,
    LABELS,
    SPACE,
    TERMS,
    World,
    b64,
    inside,
    secret,
)

RECORDED = list(
    yaml.safe_load_all(Path(__file__).with_name("data").joinpath("app_cluster.yaml").read_text())
)
CONNECTOR = names.CONTROL_PLANE_CONNECTOR


def bare(manifest: Any) -> Any:
    """What people and controllers state; not what a server fills in, nor Secret values."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in SERVER_FIELDS}
    known = {**normalize(manifest), "metadata": metadata}
    if manifest["kind"] == "Secret":
        known["data"] = sorted(manifest["data"])
    if manifest["kind"] != "AppClusterBinding":
        known.pop("status", None)
    return known


def untimed(manifest: Any) -> Any:
    status = manifest.get("status", {})
    held = [{k: v for k, v in c.items() if k != "lastTransitionTime"} for c in status["conditions"]]
    return {**manifest, "status": {"conditions": held}}


def test_what_is_made_is_what_the_original_made():
    world = World(finalizers=[])
    world.terms = replace(world.terms, all_overrides=True)
    world.serve()
    made = {(kind.kind, name): one for (kind, place, name), one in world.objects.items()}
    made["Secret", "shop-kubeconfig"] = world.get(SECRET, "shop-kubeconfig")
    # Of ours alone, so that a later AppClusterBinding of that name does not get the space.
    space = made["Namespace", SPACE]
    assert space["metadata"].pop("annotations") == {keys.APP_CLUSTER_BINDING_UID: "uid-1"}
    for original in RECORDED:
        ours = made.pop((original["kind"], original["metadata"]["name"]))
        if original["kind"] == "AppClusterBinding":
            assert bare(untimed(ours)) == bare(untimed(original))
        else:
            assert bare(ours) == bare(original), original["kind"]
    assert {kind for kind, _ in made} == {"APIServiceExportTemplate"}


def test_a_second_look_writes_nothing():
    world = World(spec={"konnector": {"deploy": True}})
    assert world.serve() > 0
    assert world.serve() == 0


def test_the_first_thing_is_the_finalizer_and_nothing_else():
    (task,) = World(finalizers=["other"]).look().tasks
    (step,) = task.steps
    assert isinstance(step, Patch)
    assert get(step.body, "metadata", "finalizers") == ["other", keys.APP_CLUSTER_BINDING_CLEANUP]
    assert get(step.body, "metadata", "resourceVersion")


def test_it_is_not_ready_before_its_space_is_made():
    conditions = {one.type: one.status for one in World().look().conditions}
    assert conditions == {"SecretValid": "True", "KonnectorDeployed": "False"}


def test_every_write_tells_which_condition_says_that_it_failed():
    world = World(spec={"konnector": {"deploy": True}})
    tasks = [*world.look().tasks]
    world.put(NAMESPACE, {"metadata": {"name": SPACE}})
    world.put(api.CLUSTER_BINDING, inside("cluster"))
    tasks.extend(world.look().tasks)
    reported = [task.failure.type for task in tasks if task.failure is not None]
    assert len(reported) == len(tasks) == 10
    assert set(reported) == {
        "APIServiceBindingsReady",
        "BindingSpaceReady",
        "ExportsReady",
        "KonnectorDeployed",
    }


def exec_user(**user: Any) -> Any:
    return {"kubeconfig": b64(kubeconfigs.document(user=user))}


USED = {
    "none": (None, "Error KubeconfigSecretNotFound", "Kubeconfig secret team-a/shop-kubeconfig"),
    "no key": ({"data": {"other": "eA=="}}, "Error KubeconfigSecretInvalid", '"kubeconfig" string'),
    "an empty key": ({"data": {"kubeconfig": ""}}, "Error KubeconfigSecretInvalid", "is missing"),
    "no base64": ({"data": {"kubeconfig": "%"}}, "Error KubeconfigSecretInvalid", "base64"),
    "garbage": ({"data": {"kubeconfig": "AAECAw=="}}, "Error KubeconfigSecretInvalid", "invalid"),
    "a text": ({"data": {"kubeconfig": b64("x")}}, "Error KubeconfigSecretInvalid", "invalid"),
    "no such context": (
        {"data": {"kubeconfig": b64(kubeconfigs.document(**{"current-context": "x"}))}},
        "Error KubeconfigSecretInvalid",
        "x",
    ),
    "a command": (
        {
            "data": exec_user(
                exec={"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}
            )
        },
        "Error KubeconfigSecretInvalid",
        "exec would run a command",
    ),
    "a token file": (
        {"data": exec_user(tokenFile="/etc/passwd")},
        "Error KubeconfigSecretInvalid",
        "tokenFile would send a file",
    ),
    "a kubeconfig": ({}, "True", ""),
}


@pytest.mark.parametrize(("source", "want", "part"), USED.values(), ids=USED)
def test_a_kubeconfig_is_hostile_until_it_was_read(source, want, part):
    world = World()
    world.remove(SECRET, "shop-kubeconfig", "team-a")
    if source is not None:
        world.put(SECRET, secret(**source))
    world.serve()
    assert world.conditions()["SecretValid"] == want
    assert part in world.message("SecretValid")
    assert (world.get(NAMESPACE, SPACE) is None) is (want != "True")


OTHER = kubeconfigs.document(user={"token": "another"})
MIRRORED = {
    "other content": {"data": {"kubeconfig": b64(OTHER)}},
    "another key beside it": {"data": {"password": "eA=="}},
    "another type": {"type": "example.com/kubeconfig"},
    "immutable, with other content": {"immutable": True, "data": {"kubeconfig": b64(OTHER)}},
    "without our labels": {"metadata": {"labels": dict.fromkeys(LABELS)}},
}


@pytest.mark.parametrize("drift", MIRRORED.values(), ids=MIRRORED)
def test_the_mirrored_secret_is_repaired(drift):
    world = World()
    world.serve()
    want = bare(world.get(SECRET, "shop-kubeconfig"))
    world.change(SECRET, "shop-kubeconfig", drift)
    world.serve()
    assert bare(world.get(SECRET, "shop-kubeconfig")) | {"immutable": None} == want | {
        "immutable": None
    }
    source = world.get(SECRET, "shop-kubeconfig", "team-a")
    assert world.get(SECRET, "shop-kubeconfig")["data"] == source["data"]


def test_only_the_referenced_key_is_mirrored():
    world = World()
    world.change(SECRET, "shop-kubeconfig", {"data": {"password": "eA=="}}, "team-a")
    world.serve()
    assert list(world.get(SECRET, "shop-kubeconfig")["data"]) == ["kubeconfig"]


def test_labels_of_others_stay():
    world = World()
    world.serve()
    for kind, name in ((SECRET, "shop-kubeconfig"), (api.CLUSTER_BINDING, "cluster")):
        mine = {"team": "x", keys.APP_CLUSTER_BINDING_NAME: None}
        world.change(kind, name, {"metadata": {"labels": mine}})
    world.serve()
    for kind, name in ((SECRET, "shop-kubeconfig"), (api.CLUSTER_BINDING, "cluster")):
        assert world.get(kind, name)["metadata"]["labels"] == {**LABELS, "team": "x"}


DRIFT = {
    "rules": (ROLE, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    "subjects": (ROLE_BINDING, {"subjects": []}),
    "role": (ROLE_BINDING, {"roleRef": {"name": "cluster-admin", "kind": "ClusterRole"}}),
}


@pytest.mark.parametrize(("kind", "drift"), DRIFT.values(), ids=DRIFT)
def test_rights_are_repaired(kind, drift):
    world = World()
    world.serve()
    want = bare(world.get(kind, CONNECTOR))
    world.change(kind, CONNECTOR, drift)
    world.serve()
    assert bare(world.get(kind, CONNECTOR)) == want


def test_one_failure_does_not_keep_the_others():
    world = World()
    world.serve()
    for kind, name in ((SERVICE_ACCOUNT, names.BINDER), (ROLE, CONNECTOR)):
        world.remove(kind, name)
    world.remove(api.API_SERVICE_BINDING, "databases.shop.example")
    tasks = world.look().tasks
    assert [len(task.steps) for task in tasks] == [1, 1, 1]


GRANT = {keys.ALLOW_APP_CLUSTER_BINDING: "team-a/shop"}
NOT_GRANTED = "Error KubeconfigSecretNotGranted"
GRANTS: dict[str, tuple[Any, Terms, str]] = {
    "nothing says so": ({}, TERMS, NOT_GRANTED),
    "granted": (GRANT, TERMS, "True"),
    "granted to another": ({keys.ALLOW_APP_CLUSTER_BINDING: "team-a/x"}, TERMS, NOT_GRANTED),
    "the backend allows all": (
        {},
        Terms(control_plane="cp", konnector_image="", allow_cross_namespace_secrets=True),
        "True",
    ),
}


@pytest.mark.parametrize(("annotations", "terms", "want"), GRANTS.values(), ids=GRANTS)
def test_a_secret_of_another_namespace(annotations, terms, want):
    ref = {"namespace": "team-b", "name": "theirs", "key": "kubeconfig"}
    world = World(spec={"kubeconfigSecretRef": ref})
    world.terms = terms
    source = secret("team-b", "theirs")
    source["metadata"]["annotations"] = annotations
    world.put(SECRET, source)
    world.serve()
    assert world.conditions()["SecretValid"] == want
    assert (world.get(SECRET, "theirs") is not None) is (want == "True")


def test_whether_anothers_secret_exists_is_not_reported():
    ref = {"namespace": "team-b", "name": "theirs", "key": "kubeconfig"}
    reported = []
    for there in (True, False):
        world = World(spec={"kubeconfigSecretRef": ref})
        if there:
            world.put(SECRET, secret("team-b", "theirs"))
        world.serve()
        reported.append((world.conditions(), world.message("SecretValid")))
    assert reported[0] == reported[1]
    assert "klutchctl.dev/allow-app-cluster-binding=team-a/shop" in reported[0][1]


def test_a_space_keeps_the_name_of_its_secret():
    ref = {"namespace": "team-a", "name": "new", "key": "kubeconfig"}
    world = World()
    world.serve()
    world.change(api.APP_CLUSTER_BINDING, "shop", {"spec": {"kubeconfigSecretRef": ref}}, "team-a")
    world.put(SECRET, secret(name="new", data={"kubeconfig": b64(OTHER)}))
    world.serve()
    assert world.get(SECRET, "new") is None
    assert world.get(SECRET, "shop-kubeconfig")["data"] == {"kubeconfig": b64(OTHER)}
    assert world.conditions() == {"SecretValid": "True", "KonnectorDeployed": "True"}


LETTERS = "a" * 50
NAMED = {"too long": LETTERS, "with a dot": "shop.example"}


@pytest.mark.parametrize("name", NAMED.values(), ids=NAMED)
def test_a_name_that_cannot_be_is_reported_at_once(name):
    world = World(name=name)
    world.serve()
    assert world.conditions()["BindingSpaceReady"] == "Error BindingSpaceNameInvalid"
    assert not [key for key in world.objects if key[0] == NAMESPACE]


def test_a_released_one_is_quiet():
    world = World()
    world.serve()
    spec = {"apiExports": [], "konnector": {"deploy": False}}
    marks = {"annotations": {keys.RELEASED: "2026-06-01T00:00:00Z"}}
    world.change(api.APP_CLUSTER_BINDING, "shop", {"spec": spec, "metadata": marks}, "team-a")
    world.remove(SECRET, "shop-kubeconfig", "team-a")
    world.serve()
    ready = world.app_cluster_binding["status"]["conditions"][0]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    assert world.serve() == 0
    assert world.get(NAMESPACE, SPACE)
    assert world.get(SECRET, "shop-kubeconfig")
    assert world.get(api.API_SERVICE_BINDING, "databases.shop.example") is None


def test_who_comes_back_finds_the_space_as_it_was_left():
    world = World()
    world.serve()
    world.change(NAMESPACE, SPACE, {"metadata": {"annotations": {keys.RELEASED: "x"}}})
    world.serve()
    notes = world.get(NAMESPACE, SPACE)["metadata"]["annotations"]
    assert notes == {keys.APP_CLUSTER_BINDING_UID: "uid-1"}


def test_an_export_needs_only_its_template():
    world = World(spec={"apiExports": [{"group": " shop.example ", "resource": "databases "}]})
    world.serve()
    assert world.get(api.API_SERVICE_EXPORT_REQUEST, "appclusterbinding-shop-databases-de5c2691")
    world.remove(api.API_SERVICE_EXPORT_TEMPLATE, "databases", "platform")
    world.serve()
    assert world.conditions()["APIServiceBindingsReady"] == "Error APIServiceExportTemplateNotFound"
    assert DATABASES["resource"] in world.message("APIServiceBindingsReady")

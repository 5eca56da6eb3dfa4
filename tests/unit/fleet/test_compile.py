"""Which objects a fleet wants, by what is live and what clusters share.

Those of a first apply are in golden/expected/objects.*.yaml.
"""

import base64
import random
from dataclasses import replace

import pytest
import yaml

from reconciler.core import keys
from reconciler.core import manifest as m
from reconciler.core.live import Address
from reconciler.core.names import label_problem
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.fleet.compile import cluster_objects, desired, unit_objects
from reconciler.fleet.values import DeletionPolicy, Guards, Konnector, Mode, Rbac
from reconciler.fleet.wanted import default_placement
from tests.support.fleets import app_cluster, claim, control_plane, fleet, unit

BACKEND_MADE = [control_plane(mode=Mode.APP_CLUSTER_BINDING)]
DEPLOYED = Konnector(deploy=True, image="registry.example/konnector:1.0.0")
SPACE = "cluster-2inszxysw5"


def one(objects, kind, place=""):
    """Return the manifest of the only object of a kind, whose namespace and name end so."""
    (found,) = (w for w in objects if w.ref.kind.kind == kind and w.ref.object.endswith(place))
    return found.manifest


def delegated(**changes):
    return fleet(control_planes=BACKEND_MADE, **changes)


def test_without_deploy_there_is_no_konnector():
    assert 7 not in {wanted.step for wanted in desired(fleet())}


def test_no_place_in_the_files_goes_into_an_object():
    for of in (fleet(), delegated()):
        for wanted in desired(of):
            assert "yaml" not in str(wanted.manifest)


# The space


def objects_with(of, **known):
    cluster = of.clusters["shop"]
    placement = replace(default_placement(of, cluster), **known)
    units = [of.units[key] for key in sorted(of.units)]
    found = [*cluster_objects(of, cluster, placement, units=units)]
    for each in units:
        found += unit_objects(of, each, placement, claims=each.claims)
    return found


def test_a_space_that_another_made_keeps_its_identity_and_names():
    found = objects_with(
        fleet(),
        space="cluster-7fk2q",
        kubeconfig_namespace="cluster-7fk2q",
        kubeconfig_name="theirs",
        consumer_secret="kubeconfig-x8t4d",
        identity="",
        cluster_binding={"providerPrettyName": "Shop Inc"},
        cluster_uid="6f1c",
    )
    space = one(found, "Namespace", "cluster-7fk2q")
    assert "example-backend.klutch.anynines.com/identity" not in m.annotations_of(space)
    assert m.get(one(found, "ClusterBinding"), "spec") == {
        "providerPrettyName": "Shop Inc",
        "kubeconfigSecretRef": {"name": "theirs", "key": "kubeconfig"},
    }
    assert m.get(one(found, "APIServiceBinding"), "spec", "kubeconfigSecretRef", "name") == (
        "kubeconfig-x8t4d"
    )
    assert one(found, "Secret", "cluster-7fk2q/theirs")


PRETTY = {
    "the document's": ("Acme EU", {"providerPrettyName": "Shop Inc"}, "Acme EU"),
    "the live one": ("", {"providerPrettyName": "Shop Inc"}, "Shop Inc"),
    "the control plane's name": ("", {}, "eu"),
}


@pytest.mark.parametrize(("written", "live", "want"), PRETTY.values(), ids=PRETTY.keys())
def test_pretty_name(written, live, want):
    found = objects_with(
        fleet(control_planes=[control_plane(pretty_name=written)]), cluster_binding=live
    )
    assert m.get(one(found, "ClusterBinding"), "spec", "providerPrettyName") == want


def test_bindings_of_klutch_1_5_are_cluster_scoped():
    (binding,) = (
        wanted
        for wanted in objects_with(fleet(), bindings_cluster_scoped=True)
        if wanted.ref.kind.kind == "APIServiceBinding"
    )
    assert binding.ref.namespace == ""
    assert "namespace" not in binding.manifest["metadata"]


# Kubeconfigs

OWN = Address("https://10.0.0.1:6443", "OWN", "kubernetes")
REACHED = {
    "by our own access": ({}, OWN, ("https://10.0.0.1:6443", "OWN", "kubernetes")),
    "as the files say": (
        {"endpoint": "https://cp.example", "ca": "FILE"},
        OWN,
        ("https://cp.example", "FILE", None),
    ),
    "an endpoint alone": (
        {"endpoint": "https://cp.example"},
        OWN,
        ("https://cp.example", "OWN", None),
    ),
    "all in the files": (
        {"endpoint": "https://cp.example", "ca": "FILE"},
        None,
        ("https://cp.example", "FILE", None),
    ),
    "no address is known": ({"ca": "FILE"}, None, None),
    "no CA is known": ({"endpoint": "https://cp.example"}, None, None),
}


def reached(secret):
    """Return (server, CA, TLS name), namespace and token of a kubeconfig Secret, if known."""
    data = m.get_text(secret, "data", "kubeconfig")
    if data == m.KNOWN_AFTER_APPLY:
        return None
    read = yaml.safe_load(base64.b64decode(data))
    cluster = read["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    where = (cluster["server"], ca, cluster.get("tls-server-name"))
    return where, read["contexts"][0]["context"]["namespace"], read["users"][0]["user"]["token"]


@pytest.mark.parametrize(("written", "address", "want"), REACHED.values(), ids=REACHED.keys())
def test_where_kubeconfigs_lead(written, address, want):
    known = {"address": address, "token": Secret("a.b.c")}
    direct = objects_with(fleet(control_planes=[control_plane(**written)]), **known)
    for place in (f"{SPACE}/kubeconfig", "klutch-bind/kubeconfig-2insz"):
        secret = one(direct, "Secret", place)
        assert reached(secret) == (None if want is None else (want, SPACE, "a.b.c"))
    back = objects_with(delegated(clusters=[app_cluster(**written)]), **known)
    secret = one(back, "Secret", "shop-kubeconfig")
    assert reached(secret) == (None if want is None else (want, "klutch-bind", "a.b.c"))


def test_without_a_token_a_kubeconfig_is_known_after_apply():
    secret = one(objects_with(fleet(), address=OWN), "Secret", f"{SPACE}/kubeconfig")
    assert m.get(secret, "data") == {"kubeconfig": m.KNOWN_AFTER_APPLY}


def test_no_repr_shows_a_token():
    found = objects_with(fleet(), address=OWN, token=Secret("canary-token"))
    encoded = m.get_text(one(found, "Secret", f"{SPACE}/kubeconfig"), "data", "kubeconfig")
    assert encoded not in repr(found)
    assert "canary-token" not in repr(found)
    assert "canary" not in repr(
        replace(default_placement(fleet(), app_cluster()), token=Secret("canary"))
    )


# Requests and bindings


def annotations(**changes):
    return m.annotations_of(one(desired(fleet(units=[unit(**changes)])), "APIServiceBinding"))


def test_parameters_are_reported_by_a_digest():
    one_way = annotations(parameters={"a": 1, "b": 2})[keys.PARAMETERS]
    assert annotations(parameters={"b": 2, "a": 1.0})[keys.PARAMETERS] == one_way
    assert annotations(parameters={"a": 1})[keys.PARAMETERS] != one_way
    assert keys.PARAMETERS not in annotations()


@pytest.mark.parametrize("policy", DeletionPolicy)
def test_deletion_policy(policy):
    assert annotations(deletion_policy=policy) == {"klutchctl.dev/deletion-policy": policy.value}


@pytest.mark.parametrize("of", [fleet(), delegated()], ids=["Direct", "AppClusterBinding"])
def test_claims_have_one_order_and_say_which_are_required(of):
    claims = (claim(), claim("configmaps"))
    for ordered in (claims, claims[::-1]):
        placement = default_placement(of, of.clusters["shop"])
        found = unit_objects(of, unit(), placement, claims=ordered, required=[claims[1]])
        stated = m.get_maps(one(found, "APIServiceBinding"), "spec", "permissionClaims")
        assert [(each["resource"], each["required"]) for each in stated] == [
            ("configmaps", True),
            ("secrets", False),
        ]


# AppClusterBinding mode


def test_what_the_files_do_not_name_stays_listed():
    found = objects_with(delegated(), unmanaged=frozenset({GroupResource("a.example", "zebras")}))
    assert m.get(one(found, "AppClusterBinding"), "spec", "apiExports") == [
        {"group": "a.example", "resource": "zebras"},
        {"group": "shop.example", "resource": "databases"},
    ]


def test_a_live_app_cluster_binding_keeps_its_place_and_secret():
    found = objects_with(
        delegated(),
        app_cluster_binding=("team-a", "old"),
        kubeconfig_namespace="team-b",
        kubeconfig_name="theirs",
    )
    manifest = one(found, "AppClusterBinding", "team-a/old")
    assert m.get(manifest, "spec", "kubeconfigSecretRef", "namespace") == "team-b"
    assert one(found, "Secret", "team-b/theirs")
    assert m.labels_of(one(found, "APIServiceBinding")) == keys.app_cluster_binding_labels(
        "team-a", "old"
    )


LEAVING = {
    "the cluster is released": (DeletionPolicy.RELEASE, DeletionPolicy.DELETE, "Release"),
    "one unit is not to be deleted": (DeletionPolicy.DELETE, DeletionPolicy.RELEASE, "Release"),
    "nothing may leave": (DeletionPolicy.BLOCK, DeletionPolicy.BLOCK, "Block"),
    "all agree": (DeletionPolicy.DELETE, DeletionPolicy.DELETE, "Delete"),
}


@pytest.mark.parametrize(("cluster", "of_unit", "want"), LEAVING.values(), ids=LEAVING.keys())
def test_deleting_an_app_cluster_binding_takes_consent_of_all(cluster, of_unit, want):
    units = [unit(deletion_policy=of_unit), unit(resource=("a.example", "zebras"))]
    units[1] = replace(units[1], deletion_policy=of_unit)
    of = delegated(units=units, guards=Guards(on_cluster_leave=cluster))
    manifest = one(desired(of), "AppClusterBinding")
    assert m.annotations_of(manifest)["klutchctl.dev/deletion-policy"] == want


def test_the_backend_accepts_for_us_only_where_all_is_accepted():
    manifest = one(objects_with(delegated(), accepts_all_offered=True), "AppClusterBinding")
    assert m.annotations_of(manifest)["klutchctl.dev/accept-claims"] == "Template"


# Rights


def test_rejected_claims_give_no_right():
    def rules(accepted):
        units = [unit(claims=(claim(accepted=accepted),))]
        of = fleet(clusters=[app_cluster(konnector=DEPLOYED)], units=units)
        return m.get(one(desired(of), "ClusterRole"), "rules")

    def makes_any_secret(rules):
        of_any = [rule for rule in rules if "resourceNames" not in rule]
        return any(one["resources"] == ["secrets"] and "create" in one["verbs"] for one in of_any)

    assert makes_any_secret(rules(True))
    assert not makes_any_secret(rules(False))


@pytest.mark.parametrize("planes", [[control_plane()], BACKEND_MADE], ids=["Direct", "ACB"])
def test_full_rights_only_where_asked_for(planes):
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    for rbac in Rbac:
        spec = replace(DEPLOYED, rbac=rbac)
        of = fleet(control_planes=planes, clusters=[app_cluster(konnector=spec)])
        rules = m.get(one(desired(of), "ClusterRole"), "rules")
        assert (rules == everything) == (rbac is Rbac.FULL)


def test_only_a_konnector_that_can_do_with_minimal_rights_is_confined():
    """The original's needs all, and nothing tells whom its image runs as."""
    pod = ("spec", "template", "spec")
    for rbac in Rbac:
        of = fleet(clusters=[app_cluster(konnector=replace(DEPLOYED, rbac=rbac))])
        (found,) = (w for w in desired(of) if w.ref.kind.kind == "Deployment")
        (container,) = m.get_maps(found.manifest, *pod, "containers")
        assert ("securityContext" in container) == (rbac is Rbac.MINIMAL)
        assert found.compared is not None
        (compared,) = m.get_maps(found.compared, *pod, "containers")
        assert compared == {"name": "konnector", "image": DEPLOYED.image}


# Several clusters


def test_what_clusters_share_comes_once():
    of = delegated(clusters=[app_cluster("a"), app_cluster("b")], units=[])
    places = [w.ref.object for w in desired(of) if w.ref.cluster != w.cluster]
    assert places.count("Namespace klutch-fleet") == 1
    assert [w.ref.object for w in desired(of, clusters=["b"])].count("Namespace klutch-fleet") == 1


def test_one_cluster_alone():
    of = fleet(clusters=[app_cluster("a"), app_cluster("b")], units=[unit("a"), unit("b")])
    assert desired(of, clusters=["b"]) == tuple(w for w in desired(of) if w.cluster == "b")
    assert {w.cluster for w in desired(of, clusters=["b"])} == {"b"}


def test_the_order_of_the_files_does_not_matter():
    names = [f"c{number}" for number in range(5)]
    units = [unit(name, ("shop.example", kind)) for name in names for kind in ("queues", "stores")]
    made = []
    for seed in range(5):
        shuffled = random.Random(seed)
        made.append(
            desired(
                fleet(
                    clusters=map(app_cluster, shuffled.sample(names, k=len(names))),
                    units=shuffled.sample(units, k=len(units)),
                )
            )
        )
    assert all(one == made[0] for one in made)


def test_every_name_is_valid_and_spaces_differ():
    names = ["a", "a-b", "a-b-c", "x" * 40]
    of = fleet(clusters=map(app_cluster, names), units=[])
    spaces = {default_placement(of, of.clusters[name]).space for name in names}
    assert len(spaces) == len(names)
    assert [label_problem(space) for space in spaces] == [""] * len(names)

"""Derived names, with every vector of the protocol."""

import pytest

from reconciler.core import keys, names

VECTORS = {
    "resource": (names.resource_name("databases", "shop.example"), "databases.shop.example"),
    "resource of the core group": (names.resource_name("pods", ""), "pods"),
    "direct identity": (names.direct_identity("prod", "shop-eu"), "klutchctl:prod/shop-eu"),
    "direct space": (names.direct_space("prod", "shop-eu"), "cluster-cxzzvzq75p"),
    "kubeconfig of a direct space": (
        names.kubeconfig_secret("cluster-abcde12345"),
        "kubeconfig-abcde",
    ),
    "kubeconfig of a short space": (names.kubeconfig_secret("cluster-7fk2q"), "kubeconfig-7fk2q"),
    "AppClusterBinding space": (
        names.app_cluster_binding_space("default", "control-plane-test"),
        "klutch-bind-default-control-plane-test",
    ),
    "konnector Deployment": (names.konnector_deployment("shop-app"), "konnector-shop-app"),
    "legacy ClusterRole": (
        names.legacy_konnector_cluster_role("team-a", "shop-app"),
        "klutch-konnector-team-a-shop-app",
    ),
    "kubeconfig beside an AppClusterBinding": (
        names.app_cluster_kubeconfig_secret("shop-eu"),
        "shop-eu-kubeconfig",
    ),
    "ClusterRole of a space": (
        names.space_cluster_role("klutch-bind-team-a-shop-app"),
        "klutch-binder-klutch-bind-team-a-shop-app",
    ),
    "service namespace": (
        names.service_namespace("klutch-bind-x7k2p", "team-a"),
        "klutch-bind-x7k2p-team-a",
    ),
    "copy of a cluster-scoped object": (
        names.copy_name("kube-bind-zlp9m", "example-foo"),
        "kube-bind-zlp9m-example-foo",
    ),
    "claim of that copy": (
        names.claim_name("kube-bind-zlp9m", "kube-bind-zlp9m-example-foo"),
        "example-foo",
    ),
    "no claim behind another prefix": (names.claim_name("a", "b-x"), None),
    "no claim behind a longer space": (names.claim_name("ab", "abc-x"), None),
    "no claim behind nothing": (names.claim_name("a", "a-"), None),
    "a claim named like its space": (names.claim_name("a", "a-a-a"), "a-a"),
    "request": (
        names.export_request("my-binding", "postgresql"),
        "appclusterbinding-my-binding-postgresql-2ee91e53",
    ),
    "another request": (
        names.export_request("my-binding", "mangodbs"),
        "appclusterbinding-my-binding-mangodbs-e35fb3e0",
    ),
    "a request that is cut": (
        names.export_request(
            "a-very-long-app-cluster-binding-name", "postgresqlinstances.anynines.com"
        ),
        "appclusterbinding-a-very-long-app-cluster--postgresqli-ba21c4c1",
    ),
    "a request of names without usable characters": (
        names.export_request("---", ""),
        "appclusterbinding-binding-export-811c9dc5",
    ),
    "a request of names in capitals": (
        names.export_request("-My__Binding-", "A..b"),
        "appclusterbinding-my-binding-a-b-8681d1ae",
    ),
    "lock": (names.lock_lease("prod"), "klutchctl-prod"),
    "labels of an AppClusterBinding": (
        keys.app_cluster_binding_labels("team-a", "shop-app"),
        {
            "klutch.anynines.com/appclusterbinding-name": "shop-app",
            "klutch.anynines.com/appclusterbinding-namespace": "team-a",
        },
    ),
}


@pytest.mark.parametrize(("got", "want"), VECTORS.values(), ids=VECTORS.keys())
def test_vectors(got, want):
    assert got == want


def test_the_name_of_an_app_cluster_bindings_space_is_ambiguous():
    one = names.app_cluster_binding_space("a", "b-c")
    assert one == names.app_cluster_binding_space("a-b", "c")


LABELS = {
    "a name": ("a-1", ""),
    "one character": ("a", ""),
    "63 characters": ("a" * 63, ""),
    "64 characters": ("a" * 64, "has 64 characters"),
    "empty": ("", "is not made of"),
    "a dash first": ("-a", "is not made of"),
    "a dash last": ("a-", "is not made of"),
    "a dot": ("a.b", "is not made of"),
    "a capital": ("A", "is not made of"),
    "a line break at the end": ("a\n", "is not made of"),
}


SUBDOMAINS = {
    "labels with dots": ("databases.shop.example", ""),
    "253 characters": ("a" * 253, ""),
    "254 characters": ("a" * 254, "has 254 characters"),
    "two dots": ("a..b", "is not made of"),
    "a dot last": ("a.", "is not made of"),
    "empty": ("", "is not made of"),
}


PROBLEMS = [
    *((names.label_problem, *row) for row in LABELS.values()),
    *((names.subdomain_problem, *row) for row in SUBDOMAINS.values()),
]


@pytest.mark.parametrize(("problem_of", "name", "why"), PROBLEMS)
def test_what_is_no_name(problem_of, name, why):
    problem = problem_of(name)
    assert why in problem
    assert bool(problem) == bool(why)


RESERVED = ["kube-system", "kube-public", "kube-node-lease", "kube-x", "klutch-bind", "own"]


@pytest.mark.parametrize("namespace", RESERVED)
def test_namespaces_of_the_cluster_itself(namespace):
    assert names.is_reserved(namespace, "own")
    assert not names.is_reserved(namespace, "") or namespace != "own"


@pytest.mark.parametrize("namespace", ["team-a", "kubernetes", "klutch-bind-x", ""])
def test_namespaces_of_developers(namespace):
    assert not names.is_reserved(namespace, "own")
    assert not names.is_reserved(namespace, "")

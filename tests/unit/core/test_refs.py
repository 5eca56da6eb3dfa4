"""Identity of kinds and objects, as people and API servers write it."""

import pytest

from reconciler.core import refs
from reconciler.core.refs import CLUSTER_ROLE, CONFIG_MAP, DEPLOYMENT, NAMESPACE, Kind, Ref

TEXTS = {
    "core apiVersion": (CONFIG_MAP.api_version, "v1"),
    "apiVersion with a group": (DEPLOYMENT.api_version, "apps/v1"),
    "core resource": (CONFIG_MAP.resource, "configmaps"),
    "resource with a group": (CLUSTER_ROLE.resource, "clusterroles.rbac.authorization.k8s.io"),
    "kind": (str(DEPLOYMENT), "Deployment"),
    "namespaced object": (str(Ref("shop", CONFIG_MAP, "ns", "x")), "shop: ConfigMap ns/x"),
    "cluster-scoped object": (str(Ref("shop", NAMESPACE, "", "x")), "shop: Namespace x"),
    "list": (Ref("shop", NAMESPACE, "", "").object, "Namespace list"),
    "list in a namespace": (
        Ref("shop", CONFIG_MAP, "ns", "").object,
        "ConfigMap list in namespace ns",
    ),
}


@pytest.mark.parametrize(("got", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_texts(got, want):
    assert got == want


def test_refs_are_keys_and_have_an_order():
    one, same = Ref("a", CONFIG_MAP, "n", "x"), Ref("a", CONFIG_MAP, "n", "x")
    assert {one: 1}[same] == 1
    later = [
        Ref("a", CONFIG_MAP, "n", "y"),
        Ref("a", CONFIG_MAP, "o", "a"),
        Ref("b", NAMESPACE, "", ""),
    ]
    assert sorted([*reversed(later), one]) == [one, *later]


def test_kinds_differ_by_version():
    assert Kind("g", "v1", "K", "ks") != Kind("g", "v2", "K", "ks")


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(refs).values() if isinstance(each, Kind)],
    ids=str,
)
def test_well_known_kinds_are_plural_in_lower_case(kind):
    assert kind.plural == (kind.kind.lower() + "s").replace("ys", "ies")

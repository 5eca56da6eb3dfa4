"""Identity of kinds and objects as people and API servers write it; of lives, a uid (law 6)."""

import pytest

from reconciler.core import keys, refs
from reconciler.core.identity import Life, compare, of_mark
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
LIVES = {
    "the recorded one": ("a", "a", False, Life.SAME),
    "made again under its name": ("b", "a", False, Life.ANOTHER),
    "of a time without uids": ("a", "", False, Life.UNKNOWN),
    "without uid, though all were stamped": ("a", "", True, Life.ANOTHER),
    "stamped": ("a", "a", True, Life.SAME),
    "not read": ("", "a", False, Life.UNKNOWN),
    "not read, though all were stamped": ("", "a", True, Life.UNKNOWN),
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
    "kind", [each for each in vars(refs).values() if isinstance(each, Kind)], ids=str
)
def test_well_known_kinds_are_plural_in_lower_case(kind):
    assert kind.plural == (kind.kind.lower() + "s").replace("ys", "ies")


@pytest.mark.parametrize(("found", "recorded", "stamped", "life"), LIVES.values(), ids=LIVES)
def test_a_life_is_known_by_its_uid(found: str, recorded: str, stamped: bool, life: Life) -> None:
    marked = {"metadata": {"annotations": {keys.CLAIM_UID: recorded}}} if recorded else None
    assert compare(found, recorded, stamped=stamped) is life
    assert of_mark(found, marked, keys.CLAIM_UID, stamped=stamped) is life

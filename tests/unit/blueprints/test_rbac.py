"""What konnectors may do: on the control plane (protocol-bind.md B.5, F21), and in app clusters."""

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from reconciler.blueprints import rbac
from reconciler.blueprints.rbac import Claimed, minimal, minimal_inside
from reconciler.core import keys
from reconciler.core.manifest import get_texts
from reconciler.core.refs import NAMESPACE, GroupResource
from tests.support.space_objects import CONFIG_MAPS, SECRETS, SPACE, crd, export, live, space

SHOP = "shop.example"
EVERYTHING = ["get", "list", "watch", "update", "patch", "delete", "create"]


def test_rules_are_sorted_and_none_is_there_twice_whatever_the_order_of_exports():
    exports = [
        export(crd("queues"), claims=[SECRETS]),
        export(crd("databases"), claims=[CONFIG_MAPS, SECRETS, SECRETS]),
    ]
    kinds = [("", "configmaps"), ("", "secrets"), (SHOP, "databases"), (SHOP, "queues")]
    want = [{"apiGroups": [group], "resources": [one], "verbs": EVERYTHING} for group, one in kinds]
    for order in itertools.permutations(exports):
        assert rbac.space_rules(order) == want


def test_a_space_without_exports_gives_nothing():
    assert rbac.space_role(space(), [])["rules"] == []


def test_what_is_cluster_scoped_goes_with_its_space():
    owner = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": SPACE,
        "uid": f"uid-of-{SPACE}",
        "controller": True,
    }
    for made in (rbac.space_role(space(), []), rbac.binding_everywhere(space())):
        assert made["metadata"] == {"name": f"klutch-binder-{SPACE}", "ownerReferences": [owner]}


MINUTE = timedelta(minutes=1)
AT_HOME = {"klutch.anynines.com/api-service-namespace": f"{SPACE}/dev"}
OF_PRESENT = AT_HOME | {keys.SPACE_UID: f"uid-of-{SPACE}"}
OF_FORMER = AT_HOME | {keys.SPACE_UID: "former"}
RIGHTS = rbac.binding_in_service_namespace(SPACE, "left")
EVERYWHERE: Any = rbac.binding_everywhere(live(NAMESPACE, SPACE, metadata={"uid": "former"}))
NEW = {"kind": "Namespace", "metadata": {"name": SPACE}}


def home(notes, name="left", age=MINUTE):
    return live(NAMESPACE, name, age=age, metadata={"annotations": notes})


LEFT = {
    "a service namespace": (NEW, [home(OF_FORMER)], [], "confirm-space=former "),
    "one without a uid": (NEW, [home(AT_HOME)], [], "confirm-space=none "),
    "one of another life": (space(), [home(OF_FORMER)], [], "confirm-space=former "),
    "one without a uid that is older": (
        space(), [home(AT_HOME, age=100 * MINUTE)], [], "confirm-space=none ",
    ),
    "a RoleBinding, wherever it is": (NEW, [], [RIGHTS], "RoleBinding left/klutch-binder"),
    "also beside a space that lives": (space(), [], [RIGHTS], "RoleBinding left/klutch-binder"),
    "a ClusterRoleBinding": (
        NEW, [], [EVERYWHERE], f"ClusterRoleBinding klutch-binder-{SPACE}",
    ),
    "one of another life's": (
        space(), [], [EVERYWHERE], f"ClusterRoleBinding klutch-binder-{SPACE}",
    ),
    "nothing": (NEW, [], [], ""),
    "what is another space's": (
        NEW,
        [home({"klutch.anynines.com/api-service-namespace": f"{SPACE}-b/dev"})],
        [rbac.binding_in_service_namespace(f"{SPACE}-b", "left")],
        "",
    ),
    "what a person gave to it": (
        space(annotations={keys.CONFIRM_SPACE: "former"}), [home(OF_FORMER)], [RIGHTS], "",
    ),
    "its own, where its account was lost": (
        space(), [home(OF_PRESENT)],
        [RIGHTS, rbac.binding_in_space(SPACE), rbac.binding_everywhere(space())], "",
    ),
    "its own, from before uids": (space(), [home(AT_HOME)], [RIGHTS], ""),
}  # fmt: skip


@pytest.mark.parametrize(("of", "namespaces", "bindings", "named"), LEFT.values(), ids=LEFT)
def test_what_an_earlier_space_of_a_name_left(of, namespaces, bindings, named):
    """S1: an account of that name would have it."""
    said = rbac.left_over(of, namespaces, bindings)
    assert (named in said) if named else not said


def test_a_konnector_may_handle_what_is_its_own_and_no_more():
    role: Any = rbac.binder_role()
    allowed = {
        (rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"]) for rule in role["rules"]
    }
    own = "klutch.anynines.com"
    look, handle = {"get", "list", "watch"}, set(EVERYTHING)
    assert allowed == {
        (own, "apiserviceexportrequests"): handle,
        ("", "namespaces"): {"get"},
        ("", "secrets"): look,
        (own, "clusterbindings"): look,
        (own, "clusterbindings/status"): {"get", "patch", "update"},
        (own, "apiserviceexports"): look,
        (own, "apiserviceexports/status"): {"get", "patch", "update"},
        (own, "apiservicenamespaces"): handle,
    }


BOUND = [
    GroupResource("shop.example", "databases"),
    GroupResource("shop.example", "queues"),
    GroupResource("b.example", "things"),
]
CLAIMED = [
    Claimed("", "secrets", down=True),
    Claimed("", "configmaps", down=False),
    Claimed("c.example", "keys", down=False),
    Claimed("c.example", "keys", down=True),
]


def allowed(rules: Sequence[Any], verb, group, resource, name=""):
    return any(
        verb in rule["verbs"]
        and group in rule["apiGroups"]
        and resource in rule["resources"]
        and ("resourceNames" not in rule or name in rule["resourceNames"])
        for rule in rules
    )


CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
OWN = "klutch.anynines.com"
MAY = {
    "watch namespaces": ("watch", "", "namespaces"),
    "create a CRD": ("create", *CRDS),
    "update its own CRDs": ("patch", *CRDS, "databases.shop.example"),
    "create instances, where they are born on the control plane": (
        "create", "shop.example", "databases",
    ),
    "finalize instances": ("patch", "b.example", "things"),
    "write statuses": ("patch", "shop.example", "queues/status"),
    "create what comes down": ("create", "", "secrets"),
    "annotate what goes up": ("patch", "", "configmaps"),
    "create what goes both ways": ("create", "c.example", "keys"),
    "tell what happens": ("create", "events.k8s.io", "events"),
    "install the CRD of bindings": ("patch", *CRDS, f"apiservicebindings.{OWN}"),
    "write a binding's status": ("patch", OWN, "apiservicebindings/status"),
    "drop its finalizer from a binding": ("patch", OWN, "apiservicebindings"),
    "mirror the kubeconfig": ("patch", "", "secrets", "kubeconfig-abc"),
    "make the kubeconfig again": ("create", "", "secrets", "kubeconfig-abc"),
    "hold its lease": ("patch", "coordination.k8s.io", "leases", "klutch-bind"),
}  # fmt: skip
MAY_NOT = {
    "write namespaces": ("patch", "", "namespaces"),
    "delete another CRD": ("delete", *CRDS, "certificates.cert-manager.io"),
    "delete what goes up": ("delete", "", "configmaps"),
    "delete the CRD of bindings": ("delete", *CRDS, f"apiservicebindings.{OWN}"),
    "delete bindings": ("delete", OWN, "apiservicebindings"),
    "see another kind": ("get", "apps", "deployments"),
    "take another lease": ("patch", "coordination.k8s.io", "leases", "kube-scheduler"),
}


@pytest.fixture
def rules():
    return [*minimal(BOUND, CLAIMED), *minimal_inside("kubeconfig-abc")]


@pytest.mark.parametrize("right", MAY.values(), ids=MAY.keys())
def test_may(rules, right):
    assert allowed(rules, *right)


@pytest.mark.parametrize("right", MAY_NOT.values(), ids=MAY_NOT.keys())
def test_may_not(rules, right):
    assert not allowed(rules, *right)


def test_nothing_is_replaced_whole(rules):
    assert not [rule for rule in rules if "update" in rule["verbs"]]


def test_without_claims_no_secret_but_its_own_is_seen():
    rules = [*minimal(BOUND, []), *minimal_inside("kubeconfig-abc")]
    assert not allowed(rules, "get", "", "secrets", "anything")
    assert not allowed(rules, "create", "", "secrets")


def test_nothing_bound_is_nothing_written():
    assert not any("delete" in get_texts(rule, "verbs") for rule in minimal([], []))


def test_the_order_of_what_is_bound_does_not_matter():
    made = {
        str(minimal(bound, claimed))
        for bound in itertools.permutations(BOUND)
        for claimed in itertools.permutations(CLAIMED)
    }
    assert len(made) == 1

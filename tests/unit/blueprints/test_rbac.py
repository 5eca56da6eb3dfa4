"""What konnectors may do on the control plane (protocol-bind.md B.5, F21)."""

import itertools
from typing import Any

from reconciler.blueprints import rbac
from tests.support.space_objects import CONFIG_MAPS, SECRETS, SPACE, crd, export, space

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

"""The clusters of a fleet repository, as far as a sandbox needs them."""

import re

import pytest

from klutchctl.sandbox import state
from klutchctl.sandbox.state import Role, Wanted
from reconciler.core.errors import ConfigError
from tests.support.worlds import fleet_of

FLEET = """
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Fleet
metadata: {name: acme}
"""
PLANE = """
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: ControlPlane
metadata: {name: eu}
spec: {access: {kubeconfigContext: cp-eu}, mode: Direct}
"""
SHOP = """
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {name: shop}
spec: {access: {kubeconfigContext: shop-1}, controlPlane: eu}
"""


def test_clusters_and_their_roles():
    assert state.of_fleet(fleet_of(fleet=FLEET + SHOP + PLANE)) == (
        Wanted("cp-eu", Role.CONTROL_PLANE),
        Wanted("shop-1", Role.APP_CLUSTER),
    )


PROBLEMS = {
    "another way of access": (
        FLEET + PLANE.replace("kubeconfigContext: cp-eu", "inCluster: true"),
        "fleet.yaml:9:18: eu is not reached by a kubeconfig context",
    ),
    "one context twice": (
        FLEET + PLANE + SHOP.replace("shop-1", "cp-eu"),
        "the context 'cp-eu' is that of eu already",
    ),
    "no control plane": (FLEET, "the fleet has no ControlPlane document"),
}


@pytest.mark.parametrize(("text", "says"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_where_a_sandbox_cannot_stand_in(text, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        state.of_fleet(fleet_of(fleet=text))

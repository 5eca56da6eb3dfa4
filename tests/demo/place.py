"""The sandbox of the demo: its clusters, and where people sign in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox import credentials, lifecycle
from klutchctl.sandbox.addons import keycloak
from klutchctl.sandbox.state import KeycloakPorts, Layout, Member, State
from reconciler.core import names
from reconciler.kube.client import KubeCluster

NAME: Final = "demo"
FLEET: Final = "fleet-example"
DIRECT: Final = f"{FLEET}/services/direct"  # what binds the operator's own kinds, too
BROKER: Final = f"{FLEET}/services/osb"  # what a service broker offers, and what binds that
# What binds more: kinds of the operator, a composite resource of Crossplane 2.x, kinds of a broker.
OVERLAYS: Final = (DIRECT, f"{FLEET}/services/namespaced", f"{BROKER}/overlay")
SHOP: Final = "shop-eu-1"
OTHER: Final = "shop-eu-2"
PIPELINE: Final = "ci-eu-1"  # in no file of the fleet
TEAM: Final = "team-a"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo happens."""

    layout: Layout

    @property
    def reach(self) -> tuple[str, str]:
        """The option by which klutchctl finds the clusters."""
        return "--kubeconfig", str(self.layout.kubeconfig)

    @property
    def changed_fleet(self) -> Path:
        """A copy of the fleet, with the changes that the demo makes. It goes with the sandbox."""
        return self.layout.root / FLEET

    def plane(self) -> KubeCluster:
        """Return the control plane, as its administrator sees it."""
        return KubeCluster(credentials.connection(self.layout, self._members()[0]))

    def app_cluster(self, context: str) -> KubeCluster:
        """Return an app cluster, as its administrator sees it."""
        (found,) = [one for one in self._members() if one.context == context]
        return KubeCluster(credentials.connection(self.layout, found))

    @property
    def has_a_front_door(self) -> bool:
        """Whether there is a Keycloak, so that people and machines can sign in."""
        return self._state().keycloak is not None

    def catalogue(self) -> str:
        """Say where a person finds what is offered, and who that may be."""
        facts = keycloak.facts(self.layout, self._keycloak())
        return f"{facts['door']}/ as alice, whose password is in {facts['alicePasswordFile']}"

    def machine(self) -> Sequence[str]:
        """Return the door's URL, and the options of a machine that signs in and binds there."""
        facts = keycloak.facts(self.layout, self._keycloak())
        return (
            facts["door"],
            *("--client-id", facts["machineClientID"]),
            *("--client-secret-file", facts["machineClientSecretFile"]),
            *("--resource", "postgresqlinstances.anynines.com"),
            *("--resource", "servicebindings.anynines.com"),
            *("--claims", "required", "--accept", "secrets", "--skip-konnector"),
        )

    def _members(self) -> Sequence[Member]:
        """Return the clusters, the control plane first."""
        return self._state().members

    def _keycloak(self) -> KeycloakPorts:
        ports = self._state().keycloak
        assert ports is not None
        return ports

    def _state(self) -> State:
        state = lifecycle.load(self.layout)
        assert state is not None
        return state


def space_of(cluster: str) -> str:
    return names.direct_space("acme", cluster)


def home_of(cluster: str) -> str:
    """Return the service namespace of the team's app namespace in an app cluster."""
    return names.service_namespace(space_of(cluster), TEAM)

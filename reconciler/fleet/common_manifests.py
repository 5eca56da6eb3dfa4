"""The parts of the objects of both modes: marks, rights, claims, the way to a cluster.

Translates fleet values into what blueprints take. Refuses to know which objects there are.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from reconciler.blueprints import objects, rbac
from reconciler.blueprints.objects import Marks, ownership_labels
from reconciler.blueprints.rbac import Claimed
from reconciler.core import keys
from reconciler.core.manifest import JSON, KNOWN_AFTER_APPLY, Manifest
from reconciler.core.refs import Ref
from reconciler.fleet.values import (
    AppCluster,
    Claim,
    ControlPlane,
    DeletionPolicy,
    Fleet,
    Owner,
    Rbac,
    Unit,
    unit_policies_text,
)
from reconciler.fleet.wanted import KubeconfigSource, Placement


def ownership(
    fleet: Fleet, cluster: str, *, binding: str = "", annotations: Mapping[str, str] | None = None
) -> Marks:
    """Return the labels of what we create or adopt, and annotations."""
    return Marks(ownership_labels(fleet.name, cluster, binding=binding), annotations or {})


def provenance(cluster: AppCluster, placement: Placement) -> dict[str, str]:
    """Return the annotations by which a cluster is found without its document (mapping.md 1)."""
    uid = KNOWN_AFTER_APPLY if placement.cluster_uid is None else placement.cluster_uid
    return {keys.APP_CLUSTER_UID: uid, keys.ACCESS: str(cluster.access)}


def deletion_policy(policy: DeletionPolicy) -> dict[str, str]:
    """Return the annotation `deletion-policy`: all that is left to know once a Binding is gone.

    `Block` stands there too, so that the unit is held (mapping.md 9). To a konnector or backend
    all but `Delete` is Release: what is blocked is not deleted either.
    """
    return {keys.DELETION_POLICY: policy.value}


def policies_of_units(units: Mapping[str, DeletionPolicy]) -> dict[str, str]:
    """Return the annotation `unit-policies`: what each Binding said, for when it is gone.

    What is not named is Release, and so is all of an object without the annotation.
    """
    special = {
        name: policy for name, policy in units.items() if policy is not DeletionPolicy.RELEASE
    }
    return {keys.UNIT_POLICIES: unit_policies_text(special)} if special else {}


def kubeconfig_source(
    target: ControlPlane | AppCluster, placement: Placement, token: Ref
) -> KubeconfigSource:
    """Return what the kubeconfig that leads to `target` is made of once `token` is filled."""
    return KubeconfigSource(token, target.endpoint, target.ca, placement.address)


def kubeconfig_secret(
    place: tuple[str, str], source: KubeconfigSource, placement: Placement, marks: Marks
) -> Manifest:
    """Return the Secret at `place` (namespace, name) as far as it is known before an apply."""
    address, token = source.address(), placement.token
    if address is None or token is None:
        return objects.kubeconfig_secret(*place, content=None, marks=marks)
    content = objects.kubeconfig(address, token, namespace=source.token.namespace)
    return objects.kubeconfig_secret(*place, content=content, marks=marks)


def konnector_rules(cluster: AppCluster, units: Iterable[Unit]) -> tuple[Manifest, ...] | None:
    """Return what a konnector of these units may do in the app cluster; None for all."""
    if cluster.konnector.rbac is Rbac.FULL:
        return None
    listed = list(units)
    bound = [unit.key.service for unit in listed]
    return rbac.minimal(bound, [kind for unit in listed for kind in claimed(unit)])


def claimed(unit: Unit) -> tuple[Claimed, ...]:
    """Return the kinds that the accepted permission claims of a unit name."""
    return tuple(
        Claimed(claim.group, claim.resource, down=claim.owner is Owner.PROVIDER)
        for claim in unit.claims
        if claim.accepted
    )


def wire_claims(claims: Sequence[Claim], required: Collection[Claim]) -> list[Manifest]:
    """Return claims as an APIServiceBinding holds them (mapping.md 6), in one order."""
    ordered = sorted(claims, key=_rank)
    return [_wire_claim(claim, required=claim in required) for claim in ordered]


def _rank(claim: Claim) -> tuple[object, ...]:
    kind = (claim.group, claim.resource, claim.version, claim.owner)
    return (*kind, claim.names, claim.namespaces, claim.labels, claim.accepted)


def _wire_claim(claim: Claim, *, required: bool) -> Manifest:
    selector: dict[str, JSON] = {
        "names": sorted(claim.names),
        "namespaces": sorted(claim.namespaces),
        "owner": claim.owner.value,
    }
    if claim.labels:
        selector["labelSelectors"] = [dict(labels) for labels in sorted(claim.labels)]
    return {
        "group": claim.group,
        "resource": claim.resource,
        "version": claim.version,
        "required": required,
        "selector": selector,
        "state": "Accepted" if claim.accepted else "Rejected",
    }

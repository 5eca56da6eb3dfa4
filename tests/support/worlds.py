"""Clusters as plain values, for tests of planning: what is there, and what an apply would add."""

from dataclasses import dataclass, field
from typing import Any

from reconciler import api
from reconciler.core import keys, manifest, names, refs
from reconciler.core.live import Address, ClusterState, Live, Unavailable, instances
from reconciler.core.manifest import Manifest
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load
from reconciler.fleet.values import Fleet
from reconciler.planning import planner
from reconciler.planning.changes import Action, Change, Plan

KINDS = {
    (kind.api_version, kind.kind): kind
    for kind in (
        api.APP_CLUSTER_BINDING,
        api.CLUSTER_BINDING,
        api.API_SERVICE_EXPORT,
        api.API_SERVICE_EXPORT_REQUEST,
        api.API_SERVICE_EXPORT_TEMPLATE,
        api.API_SERVICE_BINDING,
        api.API_SERVICE_NAMESPACE,
        refs.NAMESPACE,
        refs.SECRET,
        refs.SERVICE_ACCOUNT,
        refs.DEPLOYMENT,
        refs.CRD,
        refs.CLUSTER_ROLE,
        refs.CLUSTER_ROLE_BINDING,
    )
}
ADDRESS = Address("https://127.0.0.1:6443", "a CA")
POSTGRES = "postgresqlinstances.anynines.com"


def fleet_of(**files: str) -> Fleet:
    """Return the fleet of these files; `fleet` is fleet.yaml. Problems fail the test."""
    named = {f"{name.replace('__', '/')}.yaml": text.encode() for name, text in files.items()}
    fleet, problems = load(Snapshot(files=named, revision=""))
    assert fleet is not None, problems
    return fleet


def crd(name: str) -> dict[str, Any]:
    return {"apiVersion": refs.CRD.api_version, "kind": refs.CRD.kind, "metadata": {"name": name}}


def template(resource: str, claims: list[Any] | None = None) -> dict[str, Any]:
    plural, _, group = resource.partition(".")
    return {
        "apiVersion": api.API_SERVICE_EXPORT_TEMPLATE.api_version,
        "kind": api.API_SERVICE_EXPORT_TEMPLATE.kind,
        "metadata": {"name": plural, "namespace": "platform"},
        "spec": {
            "APIServiceSelector": {"group": group, "resource": plural},
            "permissionClaims": claims or [],
        },
    }


def offering(*resources: str, claims: list[Any] | None = None) -> list[Manifest]:
    """Return what a control plane needs to offer these resources."""
    return [made for name in resources for made in (crd(name), template(name, claims))]


# What notes a kubeconfig on a control plane, and in an app cluster.
_CARRIERS = (
    (api.CLUSTER_BINDING.kind, api.APP_CLUSTER_BINDING.kind),
    (api.API_SERVICE_BINDING.kind,),
)


@dataclass
class World:
    """One control plane and app clusters; objects by kind, namespace and name."""

    control_plane: list[Manifest] = field(default_factory=list)
    clusters: dict[str, list[Manifest]] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    in_use: dict[str, dict[str, int]] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)  # spaces without a heartbeat
    blind: bool = False  # whoever plans may not read Secrets
    unreadable: set[tuple[str, str]] = field(default_factory=set)  # Secrets, for an apply too
    plane: str = "eu"
    _count: int = 0
    _issued: dict[refs.Ref, int] = field(default_factory=dict)

    def live(self, fleet: Fleet) -> Live:
        seen = {
            name: self._seen(name, self.uids.get(name, f"uid-{name}"), objects)
            for name, objects in self.clusters.items()
        }
        known = {
            manifest.get_text(one, "metadata", "labels", keys.CLUSTER) for one in self.control_plane
        }
        return Live(
            control_planes={self.plane: self._seen(self.plane, "cp", self.control_plane)},
            clusters={name: one for name, one in seen.items() if name in fleet.clusters},
            leaving={
                name: one
                for name, one in seen.items()
                if name in known and name not in fleet.clusters
            },
        )

    def plan(self, fleet: Fleet) -> Plan:
        return planner.plan(fleet, self.live(fleet))

    def apply(self, plan: Plan) -> None:
        """Do the creates and updates of a plan, and what a backend and a konnector add."""
        for change in plan.changes:
            if change.action in (Action.CREATE, Action.UPDATE, Action.ADOPT) and change.after:
                self._put(change)
        self._settle()

    def objects(self, cluster: str) -> list[Manifest]:
        return (
            self.control_plane if cluster.startswith("control-plane/") else self.clusters[cluster]
        )

    def remove(self, cluster: str, kind: refs.Kind, name: str) -> Manifest:
        objects = self.objects(cluster)
        (found,) = [
            one for one in objects if one["kind"] == kind.kind and manifest.name_of(one) == name
        ]
        objects.remove(found)
        return found

    def _put(self, change: Change) -> None:
        objects = self.objects(change.ref.cluster)
        ref = change.ref
        place = (ref.kind.kind, ref.namespace, ref.name)
        there = {(one["kind"], *manifest.identity_of(one)): one for one in objects[::-1]}
        held = there.get(place)
        if held is not None:
            objects.remove(held)
        self._count += 1
        assert change.after is not None
        made: Manifest = manifest.put(change.after, f"uid-{self._count}", "metadata", "uid")
        if held is not None and change.action is Action.ADOPT:
            made = held
            for field in ("labels", "annotations"):
                both = {
                    **manifest.get_map(held, "metadata", field),
                    **manifest.get_map(change.after, "metadata", field),
                }
                made = manifest.put(made, both, "metadata", field)
        elif change.ref.kind == api.APP_CLUSTER_BINDING:
            fields: Manifest = {"f:spec": {"f:apiExports": {}}}
            wrote: Manifest = {
                "manager": keys.MANAGER_CLI,
                "operation": "Apply",
                "fieldsV1": fields,
            }
            made = manifest.put(made, [wrote], "metadata", "managedFields")
        objects.append(self._filled(change, made, held))

    def _filled(self, change: Change, made: Manifest, held: Manifest | None) -> Manifest:
        """Put into a Secret what a cluster, or an apply, would."""
        if change.ref.kind != refs.SECRET or change.action is Action.ADOPT:
            return made
        source = change.wanted.kubeconfig if change.wanted else None
        if source is None:
            token = self._token(change.ref)
            return manifest.put(made, {"token": token, "ca.crt": api.ca_digest("a CA")}, "data")
        own = None if held is None else api.kubeconfig_facts_of(held)
        address = source.fallback or Address("", "")
        facts = api.KubeconfigFacts(
            source.server or (own.server if own else address.server),
            api.ca_digest(source.ca or address.ca) if source.ca or not own else own.ca_digest,
            "",
            source.token.namespace,
            manifest.get_text(self.get(source.token), "data", "token"),
        )
        wrote: Manifest = {
            "manager": keys.MANAGER_CLI,
            "operation": "Apply",
            "fieldsV1": {"f:data": {"f:kubeconfig": {}}},
        }
        made = manifest.put(made, [wrote], "metadata", "managedFields")
        return manifest.put(made, api.kubeconfig_value(facts), "data", names.KUBECONFIG)

    def _token(self, ref: refs.Ref) -> str:
        """Issue a token; each is another one."""
        space = ref.namespace if ref.cluster.startswith("control-plane/") else ""
        self._issued[ref] = count = self._issued.get(ref, 0) + 1
        return api.token_digest(f"token of {space}" + (f", {count}" if count > 1 else ""))

    def get(self, ref: refs.Ref) -> Manifest:
        return next(
            one
            for one in self.objects(ref.cluster)
            if one["kind"] == ref.kind.kind
            and manifest.identity_of(one) == (ref.namespace, ref.name)
        )

    def _settle(self) -> None:
        exports = [
            (manifest.name_of(one), manifest.namespace_of(one))
            for one in self.control_plane
            if one["kind"] == api.API_SERVICE_EXPORT_REQUEST.kind
        ]
        for name, namespace in exports:
            metadata = {"name": name, "namespace": namespace, "uid": f"export-{namespace}-{name}"}
            kind = api.API_SERVICE_EXPORT
            made: Manifest = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": metadata,
            }
            if made not in self.control_plane:
                self.control_plane.append(made)
        self.note()

    def note(self) -> None:
        """Note what the kubeconfigs are, as an apply does that wrote them."""
        salts = {
            manifest.namespace_of(one): manifest.uid_of(one)
            for one in self.control_plane
            if one["kind"] == api.CLUSTER_BINDING.kind
        }
        for objects in (self.control_plane, *self.clusters.values()):
            secrets = {manifest.identity_of(one): one for one in objects if one["kind"] == "Secret"}
            for index, one in enumerate(objects):
                in_app = objects is not self.control_plane
                if one["kind"] not in _CARRIERS[in_app] or keys.FLEET not in manifest.labels_of(
                    one
                ):
                    continue
                reference = manifest.get_map(one, "spec", "kubeconfigSecretRef")
                namespace = manifest.get_text(reference, "namespace") or manifest.namespace_of(one)
                secret = secrets.get((namespace, manifest.get_text(reference, "name")))
                facts = None if secret is None else api.kubeconfig_facts_of(secret)
                if facts is None:
                    continue
                salt = salts.get(facts.namespace, "") if in_app else manifest.uid_of(one)
                note = api.credential_note(facts, salt)
                objects[index] = manifest.put(one, note, "metadata", "annotations", keys.CREDENTIAL)

    def _seen(self, name: str, uid: str, objects: list[Manifest]) -> ClusterState | Unavailable:
        if name in self.unseen:
            return Unavailable("no answer in time", "look at the network")
        by_kind: dict[refs.Kind, list[Manifest]] = {}
        for one in objects:
            by_kind.setdefault(KINDS[(str(one["apiVersion"]), str(one["kind"]))], []).append(one)
        by_kind.setdefault(refs.SECRET, [])
        if self.blind:
            del by_kind[refs.SECRET]
        counts = {}
        for resource, count in self.in_use.get(name, {}).items():
            plural, _, group = resource.partition(".")
            counts[instances(group, plural)] = count
        return ClusterState(
            uid=uid,
            address=ADDRESS,
            objects=by_kind,
            in_use=counts,
            silent=frozenset(self.silent),
            unreadable=frozenset(self.unreadable),
        )

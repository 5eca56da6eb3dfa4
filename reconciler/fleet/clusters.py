"""Control planes and app clusters of a fleet, from their documents and the CA files they name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.core import names
from reconciler.core.manifest import fill
from reconciler.core.origin import Origin
from reconciler.core.problems import Problem, Severity
from reconciler.core.tree import Tree
from reconciler.fleet import certificates, documents, forms, substitute
from reconciler.fleet.documents import ClusterDocument, ControlPlaneDocument, FleetDocument
from reconciler.fleet.forms import Document
from reconciler.fleet.parse import Written
from reconciler.fleet.scene import Scene
from reconciler.fleet.substitute import Scope
from reconciler.fleet.values import Access, AppCluster, ControlPlane, Konnector, Mode, Rbac

# Of 63 characters, what `-<namespace of the app cluster>` needs at the least (mapping.md 8).
_ROOM: Final = 20


@dataclass(frozen=True, slots=True)
class CaFiles:
    """The files that `caFile` names. `used` are the paths that were asked for."""

    tree: Tree
    used: set[str] = field(default_factory=set)

    def read(self, path: str | None, written: Written, problems: list[Problem]) -> str:
        """Return the certificates in the file, or "" without one or with a problem."""
        if path is None:
            return ""
        origin = written.at("spec", "caFile")
        content = self.tree.files.get(path)
        if content is None:
            problems.append(self._missing(path, origin))
            return ""
        self.used.add(path)
        try:
            return certificates.read(content)
        except certificates.NotCertificates as error:
            problems.append(Problem(origin, error.code, f"{path} {error}"))
            return ""

    def _missing(self, path: str, origin: Origin) -> Problem:
        unread = self.tree.unread.get(path)
        if unread is not None:
            return Problem(origin, unread.code, f"{path} {unread.message}", unread.hint)
        hint = "Paths are relative to the file that is read first"
        return Problem(origin, "missing-file", f"{path} does not exist", hint)


def control_plane(
    document: Document[ControlPlaneDocument], ca_files: CaFiles, problems: list[Problem]
) -> ControlPlane:
    """Return the control plane that the document describes."""
    spec = document.model.spec
    return ControlPlane(
        name=document.name,
        origin=document.origin,
        access=_access(spec.access),
        mode=Mode(spec.mode),
        endpoint=spec.endpoint or "",
        ca=ca_files.read(spec.ca_file, document.written, problems),
        namespace=spec.namespace,
        pretty_name=spec.pretty_name or "",
        template_namespaces=tuple(sorted(spec.template_namespaces)),
    )


def app_cluster(
    document: Document[ClusterDocument],
    defaults: documents.KonnectorDefaults,
    *,
    ca_files: CaFiles,
    scene: Scene,
    problems: list[Problem],
) -> AppCluster | None:
    """Return the app cluster, or None where its control plane is not known."""
    spec, written = document.model.spec, document.written
    ca = ca_files.read(spec.ca_file, written, problems)
    konnector = _konnector(spec.konnector, defaults, written, problems)
    home = scene.control_planes.get(spec.control_plane)
    if home is None:
        origin = written.at("spec", "controlPlane")
        code = "unknown-control-plane"
        problems.extend(scene.unknown("ControlPlane", spec.control_plane, origin, code))
        return None
    named = spec.app_cluster_binding
    return AppCluster(
        name=document.name,
        origin=document.origin,
        labels=document.model.metadata.labels,
        access=_access(spec.access),
        control_plane=spec.control_plane,
        identity=spec.identity or "",
        endpoint=spec.endpoint or "",
        ca=ca,
        konnector=konnector,
        suspended=spec.suspend.reason if spec.suspend else None,
        app_cluster_binding=(named.namespace or home.namespace, named.name or document.name),
        adopt=spec.adopt.space if spec.adopt else "",
    )


def konnector_defaults(
    fleet: Document[FleetDocument], scope: Scope, problems: list[Problem]
) -> documents.KonnectorDefaults | None:
    """Return Fleet.spec.konnector for the cluster of `scope`, or None and problems."""
    node = fleet.written.node_at("spec", "konnector")
    if node is None or not substitute.has_references(node):
        return fleet.model.spec.konnector
    return forms.late(node, documents.KonnectorDefaults, scope=scope, problems=problems)


def _konnector(
    own: documents.Konnector,
    defaults: documents.KonnectorDefaults,
    written: Written,
    problems: list[Problem],
) -> Konnector:
    image = own.image or defaults.image or ""
    if own.deploy and not image:
        origin = written.at("spec", "konnector", "deploy")
        hint = "Write spec.konnector.image here or in the Fleet; there is no built-in image"
        message = "a konnector is to be deployed and no image is named"
        problems.append(Problem(origin, "no-konnector-image", message, hint))
    return Konnector(
        deploy=own.deploy,
        image=image,
        rbac=Rbac(own.rbac or defaults.rbac or Rbac.MINIMAL),
        overrides=fill(own.overrides, defaults.overrides),
    )


def _access(access: documents.Access) -> Access:
    secret = access.secret_ref
    return Access(
        context=access.kubeconfig_context or "",
        secret=None if secret is None else (secret.name, secret.key),
        in_cluster=bool(access.in_cluster),
    )


def check_together(scene: Scene) -> Iterable[Problem]:
    """Yield what is wrong with clusters that are each right alone."""
    clusters = sorted(scene.clusters.values(), key=lambda one: one.origin)
    yield from _same_access(clusters)
    yield from _same_space(clusters, scene)
    for cluster in clusters:
        yield from _space_name(cluster, scene)


def _same_access(clusters: Sequence[AppCluster]) -> Iterable[Problem]:
    seen: dict[object, AppCluster] = {}
    for cluster in clusters:
        # A Secret is looked up on the control plane, so there may be two of one name.
        home = cluster.control_plane if cluster.access.secret else ""
        for key in filter(None, [(home, cluster.access), cluster.identity]):
            first = seen.setdefault(key, cluster)
            if first is not cluster:
                what = "identity" if key == cluster.identity else "access"
                message = f"{cluster.name} has the {what} of Cluster {first.name}"
                yield Problem(cluster.origin, "duplicate-access", f"{message} ({first.origin})")


def _same_space(clusters: Sequence[AppCluster], scene: Scene) -> Iterable[Problem]:
    seen: dict[tuple[str, str], AppCluster] = {}
    for cluster in clusters:
        space = _space(cluster, scene)
        first = seen.setdefault((cluster.control_plane, space), cluster) if space else cluster
        if first is not cluster:
            message = f"{cluster.name} and Cluster {first.name} would share the space {space}"
            hint = "Give one of them another spec.appClusterBinding"
            yield Problem(cluster.origin, "duplicate-space", message, hint)


def _space_name(cluster: AppCluster, scene: Scene) -> Iterable[Problem]:
    room = names.MAX_LABEL - len(_space(cluster, scene))
    if room < 0:
        message = f"the binding space would have {names.MAX_LABEL - room} characters"
        hint = f"{names.MAX_LABEL} are allowed; choose shorter names"
        yield Problem(cluster.origin, "space-name-too-long", message, hint)
    elif room < _ROOM:
        message = f"{room} characters remain for the names of namespaces in {cluster.name}"
        hint = f"Fewer than {_ROOM} are seldom enough; choose a shorter name"
        yield Problem(cluster.origin, "long-space-name", message, hint, Severity.WARNING)


def _space(cluster: AppCluster, scene: Scene) -> str:
    """Return the space that a backend makes for the cluster, or "" in Direct mode."""
    if scene.control_planes[cluster.control_plane].mode is Mode.DIRECT:
        return ""
    return names.app_cluster_binding_space(*cluster.app_cluster_binding)

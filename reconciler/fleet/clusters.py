"""Resolves control planes and app clusters from their documents, and reads their CA files."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.core import names
from reconciler.core.errors import Origin, Problem, Severity
from reconciler.core.manifest import fill
from reconciler.fleet import models, parsing, wording
from reconciler.fleet.base_model import StrictModel
from reconciler.fleet.files import Snapshot
from reconciler.fleet.models import ClusterDocument, ControlPlaneDocument, FleetDocument
from reconciler.fleet.parsing import Document, RawDocument, Scope
from reconciler.fleet.reference_index import ReferenceIndex
from reconciler.fleet.values import Access, AppCluster, ControlPlane, Konnector, Mode, Rbac

# Of 63 characters, what `-<namespace of the app cluster>` needs at the least (mapping.md 8).
_ROOM: Final = 20


@dataclass(frozen=True, slots=True)
class CaFiles:
    """The files that `caFile` names. `used` are the paths that were asked for."""

    snapshot: Snapshot
    used: set[str] = field(default_factory=set)

    def read(self, path: str | None, document: RawDocument, problems: list[Problem]) -> str:
        """Return the certificates in the file, or "" without one or with a problem."""
        if path is None:
            return ""
        origin = document.at("spec", "caFile")
        content = self.snapshot.files.get(path)
        if content is None:
            problems.append(self._missing(path, origin))
            return ""
        self.used.add(path)
        try:
            return read_certificates(content)
        except NotCertificates as error:
            problems.append(Problem(origin, error.code, f"{path} {error}"))
            return ""

    def _missing(self, path: str, origin: Origin) -> Problem:
        unread = self.snapshot.unread.get(path)
        if unread is not None:
            return Problem(origin, unread.code, f"{path} {unread.message}", unread.hint)
        hint = "Paths are relative to the file that is read first"
        return Problem(origin, "missing-file", f"{path} does not exist", hint)


def control_plane(
    document: Document[ControlPlaneDocument], ca_files: CaFiles, problems: list[Problem]
) -> ControlPlane:
    spec = document.model.spec
    return ControlPlane(
        name=document.name,
        origin=document.origin,
        ca=ca_files.read(spec.ca_file, document, problems),
        **{**_stated(spec), "access": _access(spec.access), "mode": Mode(spec.mode)},
    )


def _stated(spec: StrictModel) -> dict[str, Any]:
    """Return the plain fields that a spec states, under the names that its value gives to them.

    Without `caFile`, whose content counts, and mappings, which the caller translates.
    """
    return {
        name: tuple(sorted(value)) if isinstance(value, list) else value
        for name, value in spec
        if value is not None and name != "ca_file" and not isinstance(value, StrictModel)
    }


def app_cluster(
    document: Document[ClusterDocument],
    defaults: models.KonnectorDefaults,
    *,
    ca_files: CaFiles,
    references: ReferenceIndex,
    problems: list[Problem],
) -> AppCluster | None:
    """Return the app cluster, or None where its control plane is not known."""
    spec = document.model.spec
    ca = ca_files.read(spec.ca_file, document, problems)
    konnector = _konnector(spec.konnector, defaults, document, problems)
    plane = references.control_planes.get(spec.control_plane)
    if plane is None:
        origin = document.at("spec", "controlPlane")
        problems.extend(references.unknown("ControlPlane", spec.control_plane, origin))
        return None
    named = spec.app_cluster_binding
    return AppCluster(
        name=document.name,
        origin=document.origin,
        labels=document.model.metadata.labels,
        access=_access(spec.access),
        ca=ca,
        konnector=konnector,
        suspended=spec.suspend.reason if spec.suspend else None,
        app_cluster_binding=(named.namespace or plane.namespace, named.name or document.name),
        adopt=spec.adopt.space if spec.adopt else "",
        **_stated(spec),
    )


def konnector_defaults(
    fleet: Document[FleetDocument], scope: Scope, problems: list[Problem]
) -> models.KonnectorDefaults | None:
    """Return Fleet.spec.konnector for the cluster of `scope`, or None and problems."""
    node = fleet.node_at("spec", "konnector")
    if node is None or not (values := parsing.copied(node)):
        return fleet.model.spec.konnector
    if values > 1000:  # which each cluster gets
        problems.append(wording.too_large(node.origin))
        return None
    return parsing.late(node, models.KonnectorDefaults, scope=scope, problems=problems)


def _konnector(
    own: models.Konnector,
    defaults: models.KonnectorDefaults,
    document: RawDocument,
    problems: list[Problem],
) -> Konnector:
    image = own.image or defaults.image or ""
    if own.deploy and not image:
        origin = document.at("spec", "konnector", "deploy")
        hint = "Write spec.konnector.image here or in the Fleet; there is no built-in image"
        message = "a konnector is to be deployed and no image is named"
        problems.append(Problem(origin, "no-konnector-image", message, hint))
    return Konnector(
        deploy=own.deploy,
        image=image,
        rbac=Rbac(own.rbac or defaults.rbac or Rbac.MINIMAL),
        overrides=fill(own.overrides, defaults.overrides),
    )


def _access(access: models.Access) -> Access:
    secret = access.secret_ref
    return Access(
        context=access.kubeconfig_context or "",
        secret=None if secret is None else (secret.name, secret.key),
        in_cluster=bool(access.in_cluster),
    )


def check_together(references: ReferenceIndex) -> Iterable[Problem]:
    """Yield the problems of clusters that are each right alone."""
    clusters = sorted(references.clusters.values(), key=lambda cluster: cluster.origin)
    yield from _same_access(clusters)
    yield from _same_space(clusters, references)
    for cluster in clusters:
        yield from _space_name(cluster, references)


def _same_access(clusters: Sequence[AppCluster]) -> Iterable[Problem]:
    seen: dict[object, AppCluster] = {}
    for cluster in clusters:
        # A Secret is looked up on the control plane, so there may be two of one name.
        place = cluster.control_plane if cluster.access.secret else ""
        for key in filter(None, [(place, cluster.access), cluster.identity]):
            first = seen.setdefault(key, cluster)
            if first is not cluster:
                shared = "identity" if key == cluster.identity else "access"
                message = f"{cluster.name} has the {shared} of Cluster {first.name}"
                yield Problem(cluster.origin, "duplicate-access", f"{message} ({first.origin})")


def _same_space(clusters: Sequence[AppCluster], references: ReferenceIndex) -> Iterable[Problem]:
    seen: dict[tuple[str, str], AppCluster] = {}
    for cluster in clusters:
        space = _space(cluster, references)
        first = seen.setdefault((cluster.control_plane, space), cluster) if space else cluster
        if first is not cluster:
            message = f"{cluster.name} and Cluster {first.name} would share the space {space}"
            hint = "Give one of them another spec.appClusterBinding"
            yield Problem(cluster.origin, "duplicate-space", message, hint)


def _space_name(cluster: AppCluster, references: ReferenceIndex) -> Iterable[Problem]:
    room = names.MAX_LABEL - len(_space(cluster, references))
    if room < 0:
        message = f"the binding space would have {names.MAX_LABEL - room} characters"
        hint = f"{names.MAX_LABEL} are allowed; choose shorter names"
        yield Problem(cluster.origin, "space-name-too-long", message, hint)
    elif room < _ROOM:
        message = f"{room} characters remain for the names of namespaces in {cluster.name}"
        hint = f"Fewer than {_ROOM} are seldom enough; choose a shorter name"
        yield Problem(cluster.origin, "long-space-name", message, hint, Severity.WARNING)


def _space(cluster: AppCluster, references: ReferenceIndex) -> str:
    """Return the space that a backend makes for the cluster, or "" in Direct mode."""
    if references.control_planes[cluster.control_plane].mode is Mode.DIRECT:
        return ""
    return names.app_cluster_binding_space(*cluster.app_cluster_binding)


_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END \1-----"
)


class NotCertificates(Exception):
    """`code` and `str()` name the content of a file that has none; nothing of it is quoted."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def read_certificates(content: bytes) -> str:
    """Return the certificates as PEM text, without the text between them.

    Raises NotCertificates.
    """
    if b"PRIVATE KEY" in content:
        message = "contains a private key; a repository never contains credentials"
        raise NotCertificates("private-key", message)
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    blocks = list(_BLOCK.finditer(text))
    if not blocks or text.count("-----BEGIN ") != len(blocks):
        raise NotCertificates("not-certificates", "contains no PEM certificates")
    if not all(block[1] == "CERTIFICATE" and _is_sequence(block[2]) for block in blocks):
        message = "contains a PEM block that is not a certificate"
        raise NotCertificates("not-certificates", message)
    return "".join(f"{line.strip()}\n" for block in blocks for line in block[0].splitlines())


def _is_sequence(text: str) -> bool:
    """Return whether the text is base64 of one DER SEQUENCE (X.690 8.1), as certificates are."""
    try:
        der = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return False
    if len(der) < 2 or der[0] != 0x30:
        return False
    if der[1] < 0x80:
        return len(der) == 2 + der[1]
    size = der[1] & 0x7F
    return len(der) == 2 + size + int.from_bytes(der[2 : 2 + size], "big")

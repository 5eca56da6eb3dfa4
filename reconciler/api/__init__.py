"""The kinds of Klutch: names, fields, and readers of their manifests.

Accessors are tolerant, like the readers of `core.manifest`: an absent field reads as empty.

Kinds (protocol-bind A): an APIServiceBinding is named `plural.group`, like the CRD and its export;
there is one ClusterBinding in each binding space, named `cluster`. An export says group, names,
scope and versions in the words of its CRD: what reads a CustomResourceDefinition reads exports too.

Kubeconfigs in Secrets: `observe` puts the facts in the place of the value as soon as it is read, so
that a plan made from a snapshot compares exactly what a live one does. Does not know YAML and
certificates.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import orjson

from reconciler.core import conditions, field_set, keys, manifest, names
from reconciler.core.conditions import FALSE, Condition
from reconciler.core.keys import API_VERSION, KLUTCH_GROUP, TEMPLATE_GROUP
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource, Kind, ObjectKey
from reconciler.core.times import moment, span

# Klutch up to 1.5.0 serves it cluster-scoped: the live CRD decides which path is right.
API_SERVICE_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceBinding", "apiservicebindings"
)
APP_CLUSTER_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "AppClusterBinding", "appclusterbindings"
)
# Each writes what the source says; of anybody else it is known that he chose the way himself.
_MIRRORING: Final = (keys.MANAGER_CLI, keys.MANAGER_BIND, *sorted(keys.KONNECTORS))


def listed_resource(listed: manifest.Manifest) -> GroupResource:
    """Return the resource in one item of spec.apiExports; blanks around it do not count (C.6)."""
    return GroupResource(
        manifest.get_text(listed, "group").strip(), manifest.get_text(listed, "resource").strip()
    )


def listed_resources(app_cluster_binding: manifest.Manifest) -> frozenset[GroupResource]:
    return frozenset(
        map(listed_resource, manifest.get_maps(app_cluster_binding, "spec", "apiExports"))
    )


CLUSTER_BINDING: Final = Kind(KLUTCH_GROUP, API_VERSION, "ClusterBinding", "clusterbindings")
INTERVAL: Final = timedelta(minutes=5)  # of heartbeats, where the konnector does not say (A.6)
# After so long without a heartbeat nobody counts on a konnector any more (mapping.md 3, 9).
SILENCE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The time of the last one, and the interval of the konnector; None: it names none.

    The konnector writes both itself, so neither proves anything in its favour.
    """

    time: datetime
    interval: timedelta | None

    @property
    def timeout(self) -> timedelta:
        """The greatest age of a heartbeat: a konnector that misses two counts as stopped (A.10)."""
        return 2 * (self.interval or INTERVAL)


class Liveness(Enum):
    """The state of a space's konnector, by its heartbeat."""

    NEVER = "never"  # no konnector has been there
    ALIVE = "alive"
    SILENT = "silent"
    AHEAD = "ahead"  # it is from the future: a clock is wrong, or somebody lies


def heartbeat_of(cluster_binding: manifest.Manifest | None) -> Heartbeat | None:
    """Return the last heartbeat, or None where there was none."""
    time = moment(manifest.get_text(cluster_binding, "status", "lastHeartbeatTime"))
    if time is None:
        return None
    interval = span(manifest.get_text(cluster_binding, "status", "heartbeatInterval"))
    return Heartbeat(time, interval or None)


def liveness(
    heartbeat: Heartbeat | None,
    now: datetime,
    *,
    timeout: timedelta,
    ahead: timedelta | None = None,
) -> Liveness:
    """Return whether a konnector lives at the time `now`, by its heartbeat.

    One of more than `timeout` ago is too old; one of more than `ahead` in the future, where that
    is given, is no sign of life either.
    """
    if heartbeat is None:
        return Liveness.NEVER
    age = now - heartbeat.time
    if ahead is not None and age < -ahead:
        return Liveness.AHEAD
    return Liveness.ALIVE if age <= timeout else Liveness.SILENT


API_SERVICE_EXPORT: Final = Kind(KLUTCH_GROUP, API_VERSION, "APIServiceExport", "apiserviceexports")
API_SERVICE_EXPORT_REQUEST: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceExportRequest", "apiserviceexportrequests"
)
API_SERVICE_EXPORT_TEMPLATE: Final = Kind(
    TEMPLATE_GROUP, API_VERSION, "APIServiceExportTemplate", "apiserviceexporttemplates"
)
API_SERVICE_NAMESPACE: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceNamespace", "apiservicenamespaces"
)


def permission_claims_of(offer: manifest.Manifest) -> Sequence[manifest.Manifest]:
    """Return the permission claims that an export, or a template, offers."""
    return manifest.get_maps(offer, "spec", "permissionClaims")


def connected_of(export: manifest.Manifest | None) -> Condition | None:
    """Return the condition in which a konnector reports its sync; None where none ever came."""
    return conditions.get(export, conditions.CONNECTED)


def reports_sync(export: manifest.Manifest | None) -> bool:
    return conditions.get(export, conditions.CONNECTED, conditions.TRUE) is not None


def reports_end_of_sync(export: manifest.Manifest | None) -> bool:
    """Return whether a konnector reports that it has stopped, because the binding is gone."""
    connected = conditions.get(export, conditions.CONNECTED, conditions.FALSE)
    return connected is not None and connected.reason == conditions.BINDING_NOT_FOUND.reason


def offered_resource(template: manifest.Manifest) -> GroupResource:
    selector = manifest.get_map(template, "spec", "APIServiceSelector")
    return GroupResource(
        manifest.get_text(selector, "group"), manifest.get_text(selector, "resource")
    )


def by_resource(templates: Iterable[manifest.Manifest]) -> dict[GroupResource, manifest.Manifest]:
    """Return the template of each resource that counts: the first by namespace and name (B.3).

    A template that is being deleted offers nothing any more.
    """
    counting: dict[GroupResource, manifest.Manifest] = {}
    for template in sorted(templates, key=manifest.identity_of):
        if not manifest.is_deleting(template):
            counting.setdefault(offered_resource(template), template)
    return counting


def released_kinds(mapping: manifest.Manifest) -> frozenset[str]:
    """Return the resources of which released copies are, or were, behind a mapping."""
    text = manifest.annotations_of(mapping).get(keys.RELEASED_KINDS, "")
    return frozenset(filter(None, text.split(",")))


def served_versions(definition: manifest.Manifest) -> list[manifest.Manifest]:
    """Return the versions that are served, in their order."""
    versions = manifest.get_maps(definition, "spec", "versions")
    return [version for version in versions if manifest.get_bool(version, "served")]


def preferred_version(served: Sequence[manifest.Manifest]) -> str:
    """Return the version to read and write objects in, "" where none is served.

    That is the storage version, in which nothing is lost; where it is not served, the first that
    is, as in the original's konnector (C.6).
    """
    stored = [version for version in served if manifest.get_bool(version, "storage")]
    return manifest.get_text((stored or served or [{}])[0], "name")


def kind_of(definition: manifest.Manifest, version: str) -> Kind:
    return Kind(
        manifest.get_text(definition, "spec", "group"),
        version,
        manifest.get_text(definition, "spec", "names", "kind"),
        manifest.get_text(definition, "spec", "names", "plural"),
        namespaced=manifest.get_text(definition, "spec", "scope") != "Cluster",
    )


def is_established(crd: manifest.Manifest | None) -> bool:
    """Return whether the API server serves what a CRD defines."""
    return conditions.get(crd, "Established", conditions.TRUE) is not None


def is_from_konnector(crd: manifest.Manifest) -> bool:
    """Return whether any konnector made a CRD; of a restored one, its owner alone may tell."""
    return bool(binding_references(crd) or field_set.managers_of(crd) & keys.KONNECTORS)


def is_binding_reference(owner: manifest.Manifest) -> bool:
    group = manifest.get_text(owner, "apiVersion").partition("/")[0]
    binding = API_SERVICE_BINDING
    return (group, manifest.get_text(owner, "kind")) == (binding.group, binding.kind)


def binding_references(crd: manifest.Manifest) -> list[manifest.Manifest]:
    return list(filter(is_binding_reference, manifest.get_maps(crd, "metadata", "ownerReferences")))


SERVICE_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"
TOKEN_KEY: Final = "token"
CA_KEY: Final = "ca.crt"

_LENGTH: Final = 32
_NOTED: Final = 16


def secret_of(live: manifest.Manifest | None) -> ObjectKey:
    """Return the Secret whose kubeconfig an object refers to; a part that it leaves out is ""."""
    reference = manifest.get_map(live, "spec", "kubeconfigSecretRef")
    return ObjectKey(
        manifest.get_text(reference, "namespace"), manifest.get_text(reference, "name")
    )


def kubeconfig_content(secret: manifest.Manifest, key: str) -> bytes | str:
    """Return the kubeconfig under `key` ("": the usual one), or why there is none.

    The reason goes on a sentence that begins with the Secret's name.
    """
    key = key or names.KUBECONFIG
    text = manifest.get_text(secret, "data", key)
    if not text:
        return f'is missing "{key}" string key.'
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # also for text beyond ASCII
        return "has an invalid kubeconfig: it is not base64"


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """The current context of one kubeconfig. "" = the kubeconfig does not set it.

    `ca_digest` is that of `ca_digest`, `token_digest` that of `token_digest` below.
    """

    server: str
    ca_digest: str
    tls_server_name: str
    namespace: str
    token_digest: str

    def same_token(self, token: str) -> bool:
        """Return whether a token with the digest `token` is there, and this one. "" is no token."""
        return bool(token) and self.token_digest == token


@dataclass(frozen=True, slots=True)
class ServiceAccountFacts:
    """A service account token Secret that a cluster has filled, by the same digests."""

    ca_digest: str
    token_digest: str


def token_digest(token: str) -> str:
    """Return 32 hex digits that distinguish tokens, also of different objects and clusters.

    Unlike other values of Secrets, a token is not mixed with its object's uid: the copies of
    one token in two clusters have to be recognised as one. That gives nothing away, because
    tokens that Kubernetes issues hold a signature, far too much to be guessed from a digest.
    "" for "".
    """
    return _digest("token", token)


def ca_digest(pem: str) -> str:
    """Return 32 hex digits that distinguish CA bundles (PEM text, public). "" for ""."""
    return _digest("ca", " ".join(pem.split()))


def kubeconfig_value(facts: KubeconfigFacts) -> dict[str, manifest.JSON]:
    """Return the facts that stand in a Secret's data in place of the kubeconfig."""
    return {
        "server": facts.server,
        "ca": facts.ca_digest,
        "tls-server-name": facts.tls_server_name,
        "namespace": facts.namespace,
        "token": facts.token_digest,
    }


def credential_note(facts: KubeconfigFacts, uid: str) -> str:
    """Return the annotation `credential` of an object with this uid: server, namespace and token.

    The token stands in it as a digest that is salted with the uid (safety.md): it tells one token
    of the object from the next, and is of no use beside another object. On an APIServiceBinding it
    is the uid of the ClusterBinding, so that the kubeconfigs of both can be compared.
    """
    token = hashlib.sha256(f"klutchctl/v1{uid}{facts.token_digest}".encode()).hexdigest()
    return json.dumps({**kubeconfig_value(facts), "token": token[:_NOTED]}, sort_keys=True)


def noted_facts(annotation: str) -> KubeconfigFacts | None:
    """Return the facts in an annotation `credential`, or None where it is not of ours."""
    try:
        value = orjson.loads(annotation)
    except ValueError:
        return None
    return kubeconfig_facts_of({"data": {names.KUBECONFIG: value}})


def kubeconfig_facts_of(secret: manifest.Manifest) -> KubeconfigFacts | None:
    """Return the facts of the kubeconfig in a Secret, or None where there is no readable one.

    `secret` is as observed: with facts in the place of the kubeconfig.
    """
    value = manifest.get(secret, "data", names.KUBECONFIG)
    if not manifest.get_text(value, "server"):
        return None
    return KubeconfigFacts(
        server=manifest.get_text(value, "server"),
        ca_digest=manifest.get_text(value, "ca"),
        tls_server_name=manifest.get_text(value, "tls-server-name"),
        namespace=manifest.get_text(value, "namespace"),
        token_digest=manifest.get_text(value, "token"),
    )


def service_account_facts_of(secret: manifest.Manifest) -> ServiceAccountFacts | None:
    """Return the facts of an observed service account token Secret, or None until it is filled."""
    if manifest.get_text(secret, "type") != SERVICE_ACCOUNT_TOKEN:
        return None
    token, ca = (
        manifest.get_text(secret, "data", TOKEN_KEY),
        manifest.get_text(secret, "data", CA_KEY),
    )
    return ServiceAccountFacts(ca_digest=ca, token_digest=token) if token and ca else None


def _digest(purpose: str, text: str) -> str:
    if not text:
        return ""
    return hashlib.sha256(f"klutchctl/v1/{purpose}\n{text}".encode()).hexdigest()[:_LENGTH]


def is_mirrored(secret: Manifest) -> bool:
    """Return whether the kubeconfig in an app cluster's Secret is of klutchctl, or of a konnector.

    Another's may lead to the source's space by another way, chosen by those who know the app
    cluster's network.
    """
    written = field_set.owned(secret, *_MIRRORING)
    return field_set.has(written, field_set.place_of("data", names.KUBECONFIG))


def mirrored_facts(secret: Manifest, source: KubeconfigFacts | None) -> KubeconfigFacts | None:
    """Return the facts of an observed kubeconfig in an app cluster that its source decides.

    A way that another chose counts as that of the source.
    """
    facts = kubeconfig_facts_of(secret)
    if facts is None or source is None or is_mirrored(secret):
        return facts
    way = source.server, source.ca_digest, source.tls_server_name
    return KubeconfigFacts(*way, facts.namespace, facts.token_digest)


def reports_cut_off(binding: Manifest) -> bool:
    """Return whether the konnector of a binding reports that it cannot reach its control plane."""
    connected = conditions.get(binding, conditions.CONNECTED, FALSE)
    if connected is not None and connected.reason in conditions.CUT_OFF:
        return True
    return conditions.get(binding, conditions.HEARTBEATING, FALSE) is not None


def reports_refusal(binding: Manifest) -> bool:
    """Return whether the konnector of a binding reports that its token is not taken any more.

    The original's only repeats what the API server says.
    """
    refused = conditions.CONTROL_PLANE_REFUSES.reason
    connected = conditions.get(binding, conditions.CONNECTED, FALSE)
    if connected is not None and connected.reason == refused:
        return True
    beating = conditions.get(binding, conditions.HEARTBEATING, FALSE)
    return beating is not None and refused in beating.message

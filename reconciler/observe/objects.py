"""Trims live objects to the fields that a plan compares, without secrets and timestamps.

Pure. A snapshot and a live plan hold the same objects, because this happens to both.
"""

import base64
import binascii
import functools
import hashlib
from collections.abc import Callable
from typing import Final

import orjson

from reconciler import api
from reconciler.core import keys
from reconciler.core import manifest as m
from reconciler.core.documents import MAX_DEPTH
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CRD, SECRET, Kind
from reconciler.core.secret import LAST_APPLIED, redact
from reconciler.kube.kubeconfig import entries
from reconciler.kube.kubeconfig.profile import server_of

MANAGERS: Final = frozenset(
    {
        keys.MANAGER_CLI,
        keys.MANAGER_BIND,
        keys.MANAGER_BACKEND,
        keys.MANAGER_KONNECTOR,
        keys.MANAGER_ORIGINAL_KONNECTOR,
    }
)
# Of a kubeconfig. Anybody may call a Secret so, and YAML takes a second for 700 kB (trust.md T10).
MOST_BYTES: Final = 64 * 1024
TOO_DEEP: Final = "(nested too deeply)"

# The facts of a kubeconfig by the digest of its text, which holds a token. Each is read twice, on
# the control plane and in the app cluster, and by a watch again and again; YAML takes its time.
_KNOWN: Final[dict[bytes, api.KubeconfigFacts | None]] = {}
_MOST_KNOWN: Final = 4096
_SHARED: Final = 2048  # octets of a part that is kept once
_OF_OTHERS: Final = ("name", "deletionTimestamp")  # nothing more, so that all clusters' are equal
_OF_CRDS: Final = (*_OF_OTHERS, "uid")
_OF_OWNERS: Final = ("kind", "name", "uid")
_DROPPED: Final = ("resourceVersion", "selfLink")


def observed(kind: Kind, manifest: Manifest) -> Manifest:
    """Return an object as `core.live.ClusterState` holds it.

    What is nested deeper than `MAX_DEPTH` becomes `TOO_DEEP`: a tenant may write requests, and
    must not be able to exhaust those who walk through them.
    """
    return observing(kind)(manifest)


def observing(kind: Kind) -> Callable[[Manifest], Manifest]:
    """Return `observed` for objects of one kind: a list may hold very many."""
    typed: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind}
    if kind == CRD:
        return lambda manifest: _of_crd(m.get_map(manifest, "metadata"), typed)
    if kind == SECRET:
        return lambda manifest: _slim(redacted(manifest), typed)
    return lambda manifest: _slim(manifest, typed)


def _slim(kept: Manifest, typed: Manifest) -> Manifest:
    metadata = m.get_map(kept, "metadata")
    slim: dict[str, JSON] = {key: metadata[key] for key in metadata if key not in _DROPPED}
    if "managedFields" in slim:
        slim["managedFields"] = [
            m.drop(entry, "time")
            for entry in m.get_maps(metadata, "managedFields")
            if m.get_text(entry, "manager") in MANAGERS
        ]
    if LAST_APPLIED in m.get_map(metadata, "annotations"):
        slim["annotations"] = m.drop(m.get_map(metadata, "annotations"), LAST_APPLIED)
    parts = {key: _once(kept[key], MAX_DEPTH - 1) for key in kept if key != "metadata"}
    return {**parts, **typed, "metadata": {key: _once(slim[key], MAX_DEPTH - 2) for key in slim}}


def _once(part: JSON, depth: int) -> JSON:
    """Return an equal part within `depth`, where one is known: thousands of objects have it."""
    if type(part) is list and depth:
        return [_once(item, depth - 1) for item in part]
    if type(part) is not dict or not depth:
        return _bounded(part, depth)
    try:
        text = orjson.dumps(part)
    except TypeError:  # too deep to be written
        return _bounded(part, depth)
    return _known(text, depth) if len(text) <= _SHARED else _bounded(part, depth)


@functools.lru_cache(maxsize=2048)
def _known(text: bytes, depth: int) -> JSON:
    return _bounded(orjson.loads(text), depth)


def _of_crd(metadata: Manifest, typed: Manifest) -> Manifest:
    """Keep that it is there; of a konnector's CRD, the konnector and the space."""
    entries = m.get_maps(metadata, "managedFields")
    makers = {m.get_text(one, "manager") for one in entries} & keys.KONNECTORS
    ours = makers or m.get_text(metadata, "name").endswith(keys.KLUTCH_GROUP)
    kept = {key: metadata[key] for key in (_OF_CRDS if ours else _OF_OTHERS) if key in metadata}
    if makers:
        kept["managedFields"] = [{"manager": manager} for manager in sorted(makers)]
        kept["ownerReferences"] = [
            {key: owner[key] for key in _OF_OWNERS if key in owner}
            for owner in api.binding_references({"metadata": metadata})
        ]
    return m.get_map(_once({**typed, "metadata": kept}, MAX_DEPTH))


def export_body(kind: Kind, manifest: Manifest) -> Manifest:
    """Return an export without its versions: their schemas are long, and no plan compares them."""
    return m.drop(observed(kind, manifest), "spec", "versions")


def redacted(secret: Manifest) -> Manifest:
    """Return a Secret with digests in the place of its values (`core.secret.redact`).

    A kubeconfig becomes its facts, whatever its key. The token and the CA of a service account
    token Secret become digests that can be compared with those in kubeconfigs.
    """
    shown = redact(secret)
    data = {key: _decoded(value) for key, value in m.get_text_map(secret, "data").items()}
    facts: dict[str, JSON] = {
        key: api.kubeconfig_value(found)
        for key, value in data.items()
        if (found := kubeconfig_facts(value)) is not None
    }
    if m.get_text(secret, "type") == api.SERVICE_ACCOUNT_TOKEN:
        facts |= {
            key: digest(data[key].decode("latin-1"))
            for key, digest in ((api.TOKEN_KEY, api.token_digest), (api.CA_KEY, api.ca_digest))
            if key in data
        }
    return m.put(shown, {**m.get_map(shown, "data"), **facts}, "data") if facts else shown


def kubeconfig_facts(content: bytes) -> api.KubeconfigFacts | None:
    """Return the facts of a kubeconfig's current context, or None where it is not readable."""
    if len(content) > MOST_BYTES or b"current-context" not in content:
        return None
    digest = hashlib.sha256(content).digest()
    if digest not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[digest] = _parsed_facts(content)
    return _KNOWN[digest]


def _parsed_facts(content: bytes) -> api.KubeconfigFacts | None:
    try:
        profile = entries.profile(entries.parse(content, path="kubeconfig", folder=None), None)
        cluster = profile.cluster.fields
        ca = cluster.text("certificate-authority-data")
        return api.KubeconfigFacts(
            server=server_of(cluster),
            ca_digest=api.ca_digest(_decoded("".join(ca.split())).decode("latin-1")),
            tls_server_name=cluster.text("tls-server-name"),
            namespace=profile.context.fields.text("namespace"),
            token_digest=api.token_digest(
                profile.user.fields.text("token") if profile.user else ""
            ),
        )
    except ConfigError:
        return None


def _decoded(text: str) -> bytes:
    """Return the bytes of a base64 text; any other text stands for itself."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _bounded(value: JSON, depth: int) -> JSON:
    if isinstance(value, dict):
        if not depth:
            return TOO_DEEP
        return {key: _bounded(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item, depth - 1) for item in value] if depth else TOO_DEEP
    return value

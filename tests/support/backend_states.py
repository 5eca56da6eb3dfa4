"""What the backend has brought about for one tenant, as a text that two tellings share.

Uids, times, versions and tokens differ between tellings and stand as what they are of: a uid as
the object that bears it. So an owner that is gone shows as a difference.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.api.exports import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_NAMESPACE,
)
from reconciler.core import manifest, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster

# Of a writer that only disturbs.
HOSTILE: Final = "hostile.example/turn"
_KINDS: Final = (
    refs.NAMESPACE,
    refs.SERVICE_ACCOUNT,
    refs.SECRET,
    CLUSTER_BINDING,
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_NAMESPACE,
    APP_CLUSTER_BINDING,
    refs.ROLE,
    refs.ROLE_BINDING,
    refs.DEPLOYMENT,
    refs.CLUSTER_ROLE,
    refs.CLUSTER_ROLE_BINDING,
)
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_DROPPED: Final = ("resourceVersion", "generation", "creationTimestamp", "managedFields")
_TOKEN: Final = "kubernetes.io/service-account-token"

Found = Sequence[tuple[Kind, Manifest]]


async def found(cluster: Cluster, word: str) -> Found:
    """Return all objects that bear the word in their name or namespace."""
    listings = await asyncio.gather(*(cluster.list(kind) for kind in _KINDS))
    return [
        (kind, one)
        for kind, listing in zip(_KINDS, listings, strict=True)
        for one in listing.items
        if word in f"{manifest.namespace_of(one)} {manifest.name_of(one)}"
        # A control plane adds one to each new namespace, sooner or later.
        and (kind, manifest.name_of(one)) != (refs.SERVICE_ACCOUNT, "default")
    ]


async def end_state(cluster: Cluster, word: str) -> dict[str, str]:
    """Return the text of each of them by its place, without the word."""
    held = await found(cluster, word)
    uids = {manifest.uid_of(one): f"<{_title(kind, one)}>" for kind, one in held}

    def told(text: str) -> str:
        text = _UID.sub(lambda match: uids.get(match[0], "<what is gone>"), text)
        return _TIME.sub("<time>", text).replace(word, "<word>")

    return {told(_title(kind, one)): told(_text(kind, one)) for kind, one in held}


def refs_of(cluster: str, held: Found) -> list[Ref]:
    return [manifest.ref_of(cluster, kind, one) for kind, one in held]


def _title(kind: Kind, live: Manifest) -> str:
    return f"{kind.kind} {manifest.namespace_of(live)}/{manifest.name_of(live)}"


def _text(kind: Kind, live: Manifest) -> str:
    told: dict[str, Any] = json.loads(json.dumps(live))
    metadata = told["metadata"]
    for key in _DROPPED:
        metadata.pop(key, None)
    notes = {key: text for key, text in manifest.annotations_of(live).items() if key != HOSTILE}
    metadata |= {"annotations": notes, "deleting": manifest.is_deleting(live)}
    if kind == refs.SECRET and told.get("type") == _TOKEN:
        told["data"] = sorted(told.get("data", {}))
    return json.dumps(told, sort_keys=True)

"""Follows a source of Flux: reads the artifact that its status names, by digest.

Flux fetches, verifies and receives webhooks, and serves what it found within the cluster.
"""

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Final

from reconciler.core import conditions
from reconciler.core.conditions import FALSE, READY, TRUE, Condition
from reconciler.core.errors import ConfigError, Unfetched
from reconciler.core.manifest import Manifest, get, get_int, get_text
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.source import artifact
from reconciler.source.artifact import Gone, Pinned
from reconciler.source.following import Looked, Polled, SourceState
from reconciler.source.signature import Signature, Unverified, VerificationMode

_PLURALS: Final = {
    "GitRepository": "gitrepositories",
    "OCIRepository": "ocirepositories",
    "Bucket": "buckets",
    "ExternalArtifact": "externalartifacts",
}
_NAME: Final = re.compile("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ID: Final = re.compile("(?:(?:sha1|sha256):)?([0-9a-f]{40,64})")
_COMMIT: Final = "org.opencontainers.image.revision"  # of what `flux push artifact` packed


@dataclass(frozen=True, slots=True)
class FluxName:
    """The name of a source in the cluster of the controller."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind}/{self.namespace}/{self.name}"


def flux_name(text: str, *, where: str) -> FluxName:
    """Read [KIND/]NAMESPACE/NAME; the kind is else GitRepository. Raises ConfigError."""
    parts = text.split("/")
    kind, *names = parts if len(parts) == 3 else ("GitRepository", *parts)
    if kind not in _PLURALS or len(names) != 2 or not all(map(_NAME.fullmatch, names)):
        hint = f"Write [KIND/]NAMESPACE/NAME; KIND is one of {', '.join(_PLURALS)}"
        raise ConfigError("it names no source of Flux", where=where, hint=hint)
    return FluxName(Kind("source.toolkit.fluxcd.io", "v1", kind, _PLURALS[kind]), *names)


@dataclass(frozen=True, slots=True)
class FluxArtifact:
    """An archive that Flux serves. `revision` is the id of its commit, `note` as in Looked."""

    pinned: Pinned
    revision: str
    note: str = ""

    @property
    def mark(self) -> str:
        return f"{self.revision} {self.pinned.digest}"


def artifact_of(live: Manifest | None, name: FluxName, *, verified: bool) -> FluxArtifact:
    """Return the artifact that a source offers. Raises Unfetched, ConfigError and Unverified.

    One that is not Ready keeps its artifact, as while Git is away, and Flux goes on with that. It
    is of the old spec until the new generation was observed.
    """
    if live is None:
        raise Unfetched("it is not there", where=str(name))
    ready, verification = (
        conditions.current(live, kind) or Condition(kind, "") for kind in (READY, "SourceVerified")
    )
    detail = f": {ready.message}" if ready.message else ""
    why = verification.message or ready.message
    why = f"its newest form has to be Ready and SourceVerified. {why}"
    if verified and verification.status == FALSE:
        raise Unverified(f"{name}: {why}", revision="")
    found = get(live, "status", "artifact")
    url, digest, revision = (get_text(found, key) for key in ("url", "digest", "revision"))
    if not (url and digest):
        raise Unfetched(f"Flux has no artifact of it{detail}", where=str(name))
    whole = get_int(live, "status", "observedGeneration")  # an ExternalArtifact has none
    is_old = whole not in (None, get_int(live, "metadata", "generation"))
    if is_old or (not ready.status and conditions.get(live, READY)):
        raise Unfetched(f"Flux has not looked at its newest form yet{detail}", where=str(name))
    # What was verified is the commit that was looked at last: it is this one where all went well.
    if verified and {ready.status, verification.status} != {TRUE}:
        raise Unverified(f"{name}: {why}", revision="")
    pinned = artifact.pinned(f"{url}@{digest}", where=str(name))
    note = f"{name} is suspended in Flux" if get(live, "spec", "suspend") is True else ""
    # Revisions of Flux are main@sha1:ID, latest@sha256:ID or sha256:ID.
    revisions = (get_text(found, "metadata", _COMMIT), revision)
    ids = (_ID.fullmatch(one.rpartition("@")[2]) for one in revisions)
    return FluxArtifact(pinned, next((one[1] for one in ids if one is not None), revision), note)


class FluxSource(Polled):
    """The artifact of a source of Flux, whose status is read every `every` seconds.

    `folder` is where in it: "", or with "/" at the end. `verified`: Flux has to have verified it.
    """

    def __init__(
        self, cluster: Cluster, name: FluxName, *, folder: str, every: float, verified: bool
    ) -> None:
        self._cluster, self._name = cluster, name
        self._ref = Ref(cluster.name, name.kind, name.namespace, name.name)
        super().__init__(every)
        self._folder, self._verified = folder, verified
        self._given = self.looked = Looked()

    async def look(self, known: str) -> SourceState | None:
        """Return the files of the artifact. Raises ClusterErrors, too."""
        self._asked.clear()
        offered = await self._offered()
        if offered.mark == known:
            self.looked = replace(self._given, note=offered.note)
            return None
        try:
            content = await artifact.fetched(offered.pinned)
        except Gone:  # Flux keeps two for a minute: another one is there
            offered = await self._offered()
            content = await artifact.fetched(offered.pinned)
        return await asyncio.to_thread(self._read, offered, content)

    async def _offered(self) -> FluxArtifact:
        return artifact_of(await self._cluster.get(self._ref), self._name, verified=self._verified)

    def _read(self, offered: FluxArtifact, content: bytes) -> SourceState:
        where, revision = str(self._name), offered.revision
        self.looked = Looked(revision)
        top, folder = artifact.opened(content, where=where), self._folder
        self.looked = Looked(revision, artifact.tree_id(top, folder), offered.note)
        snapshot = artifact.snapshot(top, revision=revision, folder=folder, where=where)
        self._given = self.looked
        by = Signature(VerificationMode.HEAD, "flux", where) if self._verified else None
        return SourceState(offered.mark, replace(snapshot, revision=revision), by)

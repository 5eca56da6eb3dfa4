"""Applies objects to a cluster until each is accepted: CRDs first, then others.

Objects need others that come up meanwhile: a kind its CRD, a claim the controller that makes its
CRD, an object its namespace. No order is needed for that, only time.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from klutchctl.sandbox.state import Role
from klutchctl.sandbox.suite import Written
from reconciler.core import conditions
from reconciler.core import manifest as m
from reconciler.core.errors import ClusterError, HostError, NotServed, Origin, Rejected
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection

_CRDS: Final = {
    Role.CONTROL_PLANE: (*crds.CONTROL_PLANE, *crds.CONTROLLER),
    Role.APP_CLUSTER: crds.APP_CLUSTER,
}
_MANAGER: Final = "klutchctl"
_DEADLINE: Final = 120.0
_REFUSED_DEADLINE: Final = 20.0  # without a change of what is refused
_POLL: Final = 0.1
_XRD: Final = ("apiextensions.crossplane.io", "CompositeResourceDefinition")


@dataclass(slots=True)
class _Pending:
    """An object that has not stuck yet, and why."""

    written: Written
    reason: str = "was not tried"
    refused: bool = False


@dataclass(slots=True)
class _Kinds:
    """The kinds that the cluster serves, looked up once each."""

    cluster: Cluster
    known: dict[tuple[str, str], Kind] = field(
        default_factory=lambda: {(CRD.api_version, CRD.kind): CRD}
    )

    async def of(self, manifest: Manifest) -> Kind:
        """Return the kind of an object. Raises NotServed."""
        api_version, name = m.get_text(manifest, "apiVersion"), m.get_text(manifest, "kind")
        if (api_version, name) not in self.known:
            self.known[api_version, name] = await self._find(api_version, name)
        return self.known[api_version, name]

    async def _find(self, api_version: str, name: str) -> Kind:
        group, _, version = api_version.rpartition("/")
        for plural in (*_plurals(name), *await self._plurals_in(group)):
            with contextlib.suppress(NotServed):
                kind = await self.cluster.kind(group, version, plural)
                if kind.kind == name:
                    return kind
        absent = Kind(group, version, name, "")
        message = f"{self.cluster.name} does not serve {name} in {api_version}"
        raise NotServed(message, ref=Ref(self.cluster.name, absent, "", ""), verb="get")

    async def _plurals_in(self, group: str) -> list[str]:
        """Return the plurals of custom kinds, which may be anything."""
        names = (m.name_of(crd) for crd in (await self.cluster.list(CRD, metadata_only=True)).items)
        parts = (name.partition(".") for name in names)
        return [plural for plural, _, of in parts if of == group]


async def install_everywhere(clusters: Iterable[tuple[Connection, Role]]) -> None:
    """Install on each cluster the CRDs of its role. Raises the errors of all that failed."""
    async with asyncio.TaskGroup() as group:
        for connection, role in clusters:
            group.create_task(_connect_and_install(connection, role))


async def _connect_and_install(connection: Connection, role: Role) -> None:
    async with KubeCluster(connection) as cluster:
        await install(cluster, role)


async def install(cluster: Cluster, role: Role) -> None:
    """Apply the CRDs of `role`, and wait until all are served. Raises HostError."""
    await install_all(cluster, crds.load(*_CRDS[role]))


async def install_all(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    await apply(cluster, [Written(one, Origin("klutchctl")) for one in manifests])


async def apply(cluster: Cluster, objects: Sequence[Written], *, manager: str = _MANAGER) -> None:
    """Apply all, and wait until the definitions among them are served.

    What a fleet may own as well needs a `manager` of its own, beside that of klutchctl.

    Raises HostError with what does not stick: file, object and reason of each.
    """
    kinds = _Kinds(cluster)
    start = changed = time.monotonic()
    pending = [_Pending(one) for one in objects]
    while True:
        count, reasons = len(pending), [one.reason for one in pending]
        pending = [one for one in pending if not await _sticks(cluster, kinds, one, manager)]
        if not pending:
            return
        now = time.monotonic()
        if len(pending) < count or reasons != [one.reason for one in pending]:
            changed = now
        hopeless = all(one.refused for one in pending) and now - changed > _REFUSED_DEADLINE
        if hopeless or now - start > _DEADLINE:
            raise _failed(cluster, pending, now - start)
        await asyncio.sleep(_POLL)


async def _sticks(cluster: Cluster, kinds: _Kinds, pending: _Pending, manager: str) -> bool:
    manifest = pending.written.manifest
    try:
        kind = await kinds.of(manifest)
        if kind.namespaced and not m.namespace_of(manifest):
            manifest = m.put(manifest, "default", "metadata", "namespace")
        live = await cluster.apply(manifest, kind, manager=manager, force=True)
    except ClusterError as error:
        pending.reason = error.message
        pending.refused = isinstance(error, Rejected)
        return False
    missing = _missing_conditions(kind, live)
    pending.reason = f"is not {' and '.join(missing)}"
    pending.refused = False
    return not missing


def _missing_conditions(kind: Kind, live: Manifest) -> list[str]:
    """Return what a definition has to be, and is not yet."""
    wanted: list[str] = []
    if kind == CRD or (kind.group, kind.kind) == _XRD:
        wanted.append("Established")
    if (kind.group, kind.kind) == _XRD and m.get_text(live, "spec", "claimNames", "kind"):
        wanted.append("Offered")
    return [one for one in wanted if conditions.said(live, one, conditions.TRUE) is None]


def _plurals(kind: str) -> tuple[str, ...]:
    """Return what a kind may be called in paths: the rule of Kubernetes for kinds of its own."""
    word = kind.lower()
    if word.endswith("s"):
        return (f"{word}es", word)
    return (f"{word[:-1]}ies",) if word.endswith("y") else (f"{word}s",)


def _failed(cluster: Cluster, pending: Sequence[_Pending], seconds: float) -> HostError:
    lines = [
        f"\n  {one.written.origin}: {m.get_text(one.written.manifest, 'kind')}"
        f" {m.name_of(one.written.manifest)}: {one.reason}"
        for one in pending
    ]
    return HostError(
        f"{cluster.name} has not taken {len(pending)} objects after {seconds:.0f} s:"
        + "".join(lines),
        hint="Mend the files and run the command again; the logs of the services may tell more",
    )

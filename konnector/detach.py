"""`konnector detach`: frees the claims of a control plane that is gone for good (H33).

A finalizer keeps a claim until its copy is gone. Without the control plane, a person decides that.
This deletes nothing: claims, CRDs and Secrets stay.
"""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from konnector import APP_CLUSTER
from konnector.binding import crd, drain
from reconciler.api import API_SERVICE_BINDING
from reconciler.controller import flags
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names
from reconciler.core.decision import Patch, unfinalized
from reconciler.core.errors import ConfigError, Conflict, NotServed
from reconciler.core.manifest import Manifest, get_text, name_of, ref_of
from reconciler.core.refs import CRD, LEASE, Kind, Ref
from reconciler.core.times import moment
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.kubeconfig import load, search_paths

_TRIES: Final = 5  # for an object that changes between read and write
_ALIVE: Final = 60.0  # seconds after a renewal in which the lease's holder may still work


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed command line. `bindings` are names of APIServiceBindings; none: all."""

    kubeconfig: str | None = None
    context: str | None = None
    bindings: tuple[str, ...] = ()
    force: bool = False


def parse(arguments: Sequence[str]) -> Asked:
    """Parse these arguments. Raises ConfigError, and SystemExit(0) after --help."""
    parser = flags.Parser(
        "konnector detach",
        "Removes the konnector's finalizers from claims, after their control plane is gone for "
        "good. Then you can delete the claims. It deletes nothing. Stop the konnector first.",
        example="--context app-1 databases.example.org",
    )
    parser.add_argument("binding", nargs="*", help="APIServiceBindings, by name (default: all)")
    parser.add_argument(
        "--force", action="store_true", help="do it; without this, only list the objects"
    )
    parser.access("app cluster")
    given = parser.parse_args(list(arguments))
    return Asked(given.kubeconfig or None, given.context or None, tuple(given.binding), given.force)


async def run(
    asked: Asked, environ: Mapping[str, str], home: Path, *, out: TextIO = sys.stdout
) -> None:
    """Free the claims, or list them without `force`. Raises KlutchErrors."""
    paths = search_paths(asked.kubeconfig, environ=environ, home=home)
    way = load(paths, environ=environ, context=asked.context, name=APP_CLUSTER)
    async with KubeCluster(way, agent="konnector-detach") as app:
        await _refuse_beside_another(app)
        count = 0
        async for kind, live in _kept(app, asked.bindings):
            count += 1
            if asked.force:
                await _let_go(app, kind, live)
            subject = ref_of("", kind, live).object
            print(f"{'detached' if asked.force else 'would detach'}: {subject}", file=out)
        if not count:
            print("no object waits for a konnector", file=out)
        elif not asked.force:
            print(f"{count} objects; nothing was changed: add --force to do it", file=out)


async def _refuse_beside_another(app: Cluster) -> None:
    """Refuse to work against a konnector that would put the finalizers on again."""
    for namespace in (names.KLUTCH_NAMESPACE, names.KUBE_SYSTEM):
        lease = await app.get(Ref(app.name, LEASE, namespace, names.KONNECTOR_LEASE))
        renewed = moment(get_text(lease, "spec", "renewTime"))
        holder = get_text(lease, "spec", "holderIdentity")
        if holder and renewed and (SystemClock().now() - renewed).total_seconds() < _ALIVE:
            raise ConfigError(
                f"{holder} still works in this cluster",
                where="the konnector",
                hint=f"stop it first: kubectl -n {names.KLUTCH_NAMESPACE} scale deployment "
                f"{names.KONNECTOR} --replicas=0, and try again after a minute",
            )


async def _kept(app: Cluster, bindings: Sequence[str]) -> AsyncIterator[tuple[Kind, Manifest]]:
    """Yield the objects that a konnector keeps or marked: instances first, then their bindings."""
    served = await app.get(Ref(app.name, CRD, "", API_SERVICE_BINDING.resource))
    if served is None:
        return
    binding = crd.instance_kind(served)
    found = [
        one for one in (await app.list(binding)).items if not bindings or name_of(one) in bindings
    ]
    for name in sorted({*bindings, *map(name_of, found)}):
        body = await app.get(Ref(app.name, CRD, "", name))
        if body is None:
            continue
        kind = crd.instance_kind(body)
        try:
            instances = (await app.list(kind, metadata_only=True)).items
        except NotServed:
            continue
        for one in instances:
            if _patch(app, kind, one) is not None:
                yield kind, one
    for one in found:
        if _patch(app, binding, one) is not None:
            yield binding, one


async def _let_go(app: Cluster, kind: Kind, live: Manifest) -> None:
    """Write, and look again where somebody else wrote in between."""
    now: Manifest | None = live
    for left in reversed(range(_TRIES)):
        patch = None if now is None else _patch(app, kind, now)
        if patch is None:
            return
        try:
            await app.merge_patch(patch.ref, patch.body, manager=keys.MANAGER_KONNECTOR)
        except Conflict:
            if not left:
                raise
            now = await app.get(ref_of(app.name, kind, live), metadata_only=True)
        else:
            return


def _patch(app: Cluster, kind: Kind, live: Manifest) -> Patch | None:
    if kind.resource == API_SERVICE_BINDING.resource:
        return unfinalized(app.name, kind, live, keys.DRAIN)
    return drain.detached(kind, live)

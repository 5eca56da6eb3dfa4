"""The real Flux: its source-controller and kustomize-controller beside a test's control plane."""

import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klutchctl.sandbox import processes
from reconciler.core import conditions
from reconciler.core.manifest import Manifest, get_maps, get_text
from reconciler.core.refs import NAMESPACE, Kind, Ref
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.go_programs import built, healthy, install
from tests.support.observing import context
from tests.support.watching import Watcher, started

VERSION = "v1.9.6"
SPACE = "flux-system"
SOURCE = Kind("source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories")
KUSTOMIZATION = Kind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations")
SUCCEEDED, FAILED = "ReconciliationSucceeded", "HealthCheckFailed"
_ASK = "reconcile.fluxcd.io/requestedAt"
_CONTROLLERS = ("source-controller", "kustomize-controller")


@functools.cache
def programs() -> Path:
    """Return the folder of the executables, built now if need be."""
    modules = {name: f"github.com/fluxcd/{name}" for name in _CONTROLLERS}
    crds = tuple((module, "config/crd/bases") for module in modules.values())
    folder, packages = Path(__file__).parent / "flux", {**modules, "evaluate": "./evaluate"}
    return built(folder, "Flux", VERSION, packages, cache="pipelines", crds=crds)


@dataclass
class Flux:
    """A running Flux. `storage` has the artifacts that its source-controller serves."""

    live: LiveCluster
    storage: Path
    sources: Watcher

    def ref(self, kind: Kind, namespace: str, name: str = "fleet") -> Ref:
        return Ref(self.live.name, kind, namespace, name)

    async def state(self, kind: Kind, namespace: str, name: str = "fleet") -> Any:
        return await self.live.cluster.get(self.ref(kind, namespace, name)) or {}

    async def ready(self, kind: Kind, namespace: str, name: str = "fleet") -> tuple[str, str]:
        """Return status and message of the condition Ready, of the newest generation."""
        found = conditions.current(await self.state(kind, namespace, name), conditions.READY)
        return ("", "") if found is None else (found.status, found.message)

    async def apply(self, *manifests: Manifest) -> None:
        kinds = {kind.kind: kind for kind in (SOURCE, KUSTOMIZATION)}
        for one in manifests:
            kind = kinds[get_text(one, "kind")]
            await self.live.cluster.apply(one, kind, manager="tests", force=True)

    async def patch(self, kind: Kind, namespace: str, patch: Manifest) -> None:
        await self.live.cluster.merge_patch(self.ref(kind, namespace), patch, manager="someone")

    async def suspend(self, namespace: str) -> None:
        """Let no look at the source come or end any more: each mends the archive that is stored."""
        await self.patch(SOURCE, namespace, {"spec": {"suspend": True}})
        await self.sources.says("reconciliation is suspended")

    async def applied(
        self, namespace: str, commit: str, *, end: str = SUCCEEDED, name: str = "fleet"
    ) -> str:
        """Wait until a Kustomization has come to this end at a commit; return its message."""

        async def at() -> str:
            found = await self.state(KUSTOMIZATION, namespace, name)
            last = next(iter(get_maps(found, "status", "history")), {})
            assert get_text(last, "metadata", "revision").endswith(f"@sha1:{commit}"), found
            assert get_text(last, "lastReconciledStatus") == end, found
            status, message = await self.ready(KUSTOMIZATION, namespace, name)
            assert status == ("True" if end == SUCCEEDED else "False"), found  # no retry has begun
            return message

        return await eventually(at, within=180)

    async def reconciled(self, namespace: str, request: str) -> None:
        """Ask for a reconcile, as `flux reconcile kustomization` does, and wait for its end."""
        await self.patch(KUSTOMIZATION, namespace, {"metadata": {"annotations": {_ASK: request}}})

        async def handled() -> bool:
            found = await self.state(KUSTOMIZATION, namespace)
            ready, _ = await self.ready(KUSTOMIZATION, namespace)
            handled = get_text(found, "status", "lastHandledReconcileAt")
            return handled == request and ready == "True"

        await eventually(handled)


@asynccontextmanager
async def running(live: LiveCluster, folder: Path, authority: Path) -> AsyncIterator[Flux]:
    """Run both controllers for as long as the block lasts; `authority` is that of Git servers."""
    entry = programs()
    await install(live, entry, SOURCE, KUSTOMIZATION)
    space: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    await live.cluster.apply(space, NAMESPACE, manager="tests", force=True)
    kubeconfig, storage = folder / "flux-kubeconfig", folder / "artifacts"
    kubeconfig.write_bytes(context(live, "plane"))
    storage.mkdir()
    served, *probes = (f"127.0.0.1:{port}" for port in processes.free_ports(3))
    options = {
        "source-controller": (
            *(f"--storage-path={storage}", f"--storage-addr={served}"),
            f"--storage-adv-addr={served}",
        ),
        "kustomize-controller": ("--requeue-dependency=1s",),
    }
    environ = {
        "RUNTIME_NAMESPACE": SPACE,
        "KUBECONFIG": str(kubeconfig),
        "SSL_CERT_FILE": str(authority),
    }
    watchers: list[Watcher] = []
    async with AsyncExitStack() as stack:
        for (name, own), probe in zip(options.items(), probes, strict=True):
            usual = ("--metrics-addr=0", f"--health-addr={probe}", "--min-retry-delay=1s")
            command = (*own, *usual, "--log-encoding=console")
            way = started(command, environ, Watcher, str(entry / name))
            watchers.append(await stack.enter_async_context(way))
        await healthy(*(f"http://{probe}/readyz" for probe in probes))
        yield Flux(live, storage, watchers[0])

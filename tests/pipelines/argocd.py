"""The real Argo CD: its repo-server and application-controller beside a test's control plane."""

import base64
import functools
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from klutchctl.sandbox import processes
from klutchctl.sandbox.recipes import Patch
from reconciler.blueprints.objects import Marks, build
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SECRET, Kind, Ref
from tests.support import removal
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.go_programs import built, healthy, install
from tests.support.observing import context
from tests.support.watching import Watcher, started

VERSION = "v3.2.11"
SPACE = "argocd"
APPLICATION = Kind("argoproj.io", "v1alpha1", "Application", "applications")
PROJECT = Kind("argoproj.io", "v1alpha1", "AppProject", "appprojects")
SUCCEEDED, FAILED = "Succeeded", "Failed"
_MODULE = "github.com/argoproj/argo-cd/v3"
# No flag says on which address metrics are served: it would be every one of the machine.
_LOOPBACK = Patch(
    _MODULE, "controller/appcontroller.go", 'Sprintf("0.0.0.0:%d"', 'Sprintf("127.0.0.1:%d"'
)
_REFRESH = "argocd.argoproj.io/refresh"
_SETTINGS = ("cm", "rbac-cm", "gpg-keys-cm", "ssh-known-hosts-cm", "tls-certs-cm")


@functools.cache
def programs() -> Path:
    """Return the folder of argocd and of its kustomize, built now if need be."""
    folder = Path(__file__).parent / "argo"
    packages = {"argocd": f"{_MODULE}/cmd", "kustomize": "sigs.k8s.io/kustomize/kustomize/v5"}
    crds, patches = ((_MODULE, "manifests/crds"),), (_LOOPBACK,)
    return built(
        folder, "Argo CD", VERSION, packages, cache="pipelines", crds=crds, patches=patches
    )


@dataclass
class ArgoCD:
    """A running Argo CD, with its Applications in namespace argocd."""

    live: LiveCluster

    def ref(self, name: str) -> Ref:
        return Ref(self.live.name, APPLICATION, SPACE, name)

    async def state(self, name: str) -> Any:
        return await self.live.cluster.get(self.ref(name)) or {}

    async def apply(self, application: Manifest) -> None:
        await self.live.cluster.apply(application, APPLICATION, manager="tests", force=True)

    async def patch(self, name: str, patch: Manifest) -> None:
        await self.live.cluster.merge_patch(self.ref(name), patch, manager="someone")

    async def refresh(self, name: str) -> None:
        """Let it look at Git, as a webhook of the Git server does."""
        annotations = {_REFRESH: "normal", "tests.example/asked": str(time.monotonic())}
        await self.patch(name, {"metadata": {"annotations": annotations}})

    async def _asked(self, name: str, probe: Callable[[], Awaitable[Any]]) -> Any:
        """Let it look until a probe holds: it misses what is asked while it writes a status."""
        for left in reversed(range(9)):
            await self.refresh(name)
            try:
                return await eventually(probe, within=20)
            except AssertionError:
                if not left:
                    raise

    async def synced(self, name: str, commit: str, *, end: str = SUCCEEDED) -> Any:
        """Wait until the sync of a commit has come to this end; return what is said of it."""

        async def at() -> Any:
            found = (await self.state(name)).get("status", {})
            operation = found.get("operationState", {})
            said = operation.get("syncResult", {})
            assert {said.get("revision"), *said.get("revisions", ())} >= {commit}, found
            assert operation["phase"] == end, found
            return operation

        return await self._asked(name, at)

    async def at(self, name: str, commit: str, health: str) -> None:
        """Wait until it is synced to a commit, and seen in this health."""

        async def seen() -> bool:
            found = (await self.state(name)).get("status", {})
            sync = found.get("sync", {})
            assert sync.get("status") == "Synced", found
            assert {sync.get("revision"), *sync.get("revisions", ())} >= {commit}, found
            assert found["health"]["status"] == health, found
            return True

        await self._asked(name, seen)

    async def forget(self) -> None:
        """Take the Applications away, and leave what they made."""
        for one in (await self.live.cluster.list(APPLICATION, namespace=SPACE)).items:
            await self.patch(name_of(one), {"metadata": {"finalizers": None}})
            await removal.remove_manifest(self.live.cluster, APPLICATION, one)


async def _prepare(live: LiveCluster, entry: Path, settings: Mapping[str, Any]) -> None:
    """Make what the manifests of Argo CD make, as far as its controllers ask for it."""
    await install(live, entry, APPLICATION, PROJECT)
    marks = Marks(labels={"app.kubernetes.io/part-of": "argocd"})
    anything: Any = {
        "sourceRepos": ["*"],
        "destinations": [{"namespace": "*", "server": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    }
    secret = {"data": {"server.secretkey": base64.b64encode(b"of tests").decode()}}
    objects: list[tuple[Kind, Manifest]] = [
        (NAMESPACE, build(NAMESPACE, SPACE)),
        (PROJECT, build(PROJECT, "default", namespace=SPACE, spec=anything)),
        (SECRET, {**build(SECRET, "argocd-secret", namespace=SPACE, marks=marks), **secret}),
    ]
    for name in _SETTINGS:
        made = build(CONFIG_MAP, f"argocd-{name}", namespace=SPACE, marks=marks)
        objects.append((CONFIG_MAP, {**made, **(settings if name == "cm" else {})}))
    for kind, one in objects:
        await live.cluster.apply(one, kind, manager="tests", force=True)


@asynccontextmanager
async def running(
    live: LiveCluster, folder: Path, authority: Path, settings: Mapping[str, Any]
) -> AsyncIterator[ArgoCD]:
    """Run it for as long as the block lasts, with `settings` in ConfigMap argocd-cm.

    `authority` is that of the Git server at localhost.
    """
    redis = shutil.which("redis-server")
    if redis is None:
        pytest.skip("no redis-server, which is Debian's redis-server")
    entry, place = programs(), folder / "argocd"
    await _prepare(live, entry, settings)
    for name in ("tls", "ssh", "gpg", "plugins", "tmp", "home"):
        (place / name).mkdir(parents=True)
    (place / "kubeconfig").write_bytes(context(live, "plane"))
    shutil.copyfile(authority, place / "tls" / "localhost")
    cache, serves, serves_metrics, metrics = processes.free_ports(4)
    environ = {
        "KUBECONFIG": str(place / "kubeconfig"),
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "PATH": f"{entry}:{os.environ['PATH']}",
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_GNUPGHOME": str(place / "gpg"),
        "ARGOCD_TLS_DATA_PATH": str(place / "tls"),
        "ARGOCD_SSH_DATA_PATH": str(place / "ssh"),
        "ARGOCD_PLUGINSOCKFILEPATH": str(place / "plugins"),
    }
    at, kept = f"127.0.0.1:{cache}", ("--save", "", "--appendonly", "no", "--dir", str(place))
    commands: list[tuple[str, str, tuple[str, ...]]] = [
        (redis, "", ("--port", str(cache), "--bind", "127.0.0.1", *kept)),
        (
            str(entry / "argocd"),
            "argocd-repo-server",
            (
                *("--address", "127.0.0.1", "--port", str(serves), "--disable-tls"),
                *("--metrics-address", "127.0.0.1", "--metrics-port", str(serves_metrics)),
                *("--redis", at),
            ),
        ),
        (
            str(entry / "argocd"),
            "argocd-application-controller",
            (
                *("--namespace", SPACE, "--metrics-port", str(metrics), "--redis", at),
                *("--repo-server", f"127.0.0.1:{serves}", "--repo-server-plaintext"),
            ),
        ),
    ]
    async with AsyncExitStack() as stack:
        for program, name, options in commands:
            own = {**environ, "ARGOCD_BINARY_NAME": name}
            await stack.enter_async_context(started(options, own, Watcher, program))
        await healthy(*(f"http://127.0.0.1:{port}/healthz" for port in (serves_metrics, metrics)))
        made = ArgoCD(live)
        stack.push_async_callback(made.forget)
        yield made

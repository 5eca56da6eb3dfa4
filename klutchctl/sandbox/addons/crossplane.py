"""Runs Crossplane as processes beside the control plane, with a function and a provider."""

import base64
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from klutchctl.sandbox import composing, manifests
from klutchctl.sandbox.addons.addon import Run
from klutchctl.sandbox.go_build import CRDS
from klutchctl.sandbox.servers import HttpProbe, Launch, PortProbe, Probe
from klutchctl.sandbox.state import LOOPBACK, Component, Layout, Services
from reconciler.blueprints.objects import build
from reconciler.core import refs
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest, get_map, get_text, put, ref_of
from reconciler.doctor import crossplane as diagnosed
from reconciler.doctor import examine
from reconciler.kube.client import KubeCluster

NAMESPACE: Final = "crossplane-system"
_METRICS, _HEALTH, _FUNCTION, _PROVIDER, _WEBHOOK = (
    "crossplane-metrics",
    "crossplane-health",
    "function-patch-and-transform",
    "provider-kubernetes-health",
    "provider-kubernetes-webhook",
)
PURPOSES: Final = {
    Component.CROSSPLANE: (_METRICS, _HEALTH),
    Component.FUNCTION: (_FUNCTION,),
    Component.PROVIDER_KUBERNETES: (_PROVIDER, _WEBHOOK),
}
_MANAGER: Final = "klutchctl"
_COMPOSING: Final = frozenset(
    one.resource for one in (refs.COMPOSITION, refs.COMPOSITION_REVISION, refs.COMPOSITE_DEFINITION)
)
_FUNCTION_FILE: Final = Path(__file__).parent / "function.yaml"


def tls_folder(layout: Layout) -> Path:
    """Return the folder that holds ca.crt, tls.crt and tls.key of all of them."""
    return layout.services / "tls"


def probes(ports: Mapping[str, int]) -> Mapping[Component, Probe]:
    return {
        Component.CROSSPLANE: HttpProbe(ports.get(_HEALTH, 0), "/readyz"),
        Component.FUNCTION: PortProbe(ports.get(_FUNCTION, 0)),
        Component.PROVIDER_KUBERNETES: HttpProbe(ports.get(_PROVIDER, 0), "/readyz"),
    }


def launch(
    layout: Layout, component: Component, ports: Mapping[str, int], built: Mapping[Component, Path]
) -> tuple[Launch, tuple[str, ...]]:
    """Return how to start one. `built` has the folders with the executables."""
    folder, tls = layout.services / component, tls_folder(layout)
    if component is Component.FUNCTION:
        served = (f"{LOOPBACK}:{ports[_FUNCTION]}", str(tls))
        return Launch(Path(sys.executable), folder), ("-m", composing.__name__, *served)
    environment = {"KUBECONFIG": str(layout.services_kubeconfig)}
    if component is Component.CROSSPLANE:
        arguments = _crossplane(folder, tls, ports)
    else:
        arguments = (
            "--poll=10s",
            "--enable-watches",
            f"--health-probe-bind-addr={LOOPBACK}:{ports[_PROVIDER]}",
            f"--webhook-port={ports[_WEBHOOK]}",
        )
        environment["TLS_SERVER_CERTS_DIR"] = str(tls)
    return Launch(built[component] / component, folder, environment), arguments


def _crossplane(folder: Path, tls: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    return (
        "core",
        "start",
        f"--namespace={NAMESPACE}",
        f"--cache-dir={folder}",
        f"--xfn-cache-dir={folder}",
        f"--tls-server-certs-dir={tls}",
        f"--tls-client-certs-dir={tls}",
        f"--metrics-port={ports[_METRICS]}",
        f"--health-probe-port={ports[_HEALTH]}",
        "--enable-webhooks=false",
        "--package-runtime=External",
        # What people wait for in front of a screen.
        "--poll-interval=10s",
    )


def knows(line: str, manifest: Manifest) -> bool:
    """Return whether a line of releases serves an object: 1.20 has no v2 of its definitions."""
    return line != "1.20" or get_text(manifest, "apiVersion") != f"{refs.COMPOSITION.group}/v2"


async def install(run: Run, cluster: KubeCluster, built: Mapping[Component, Path]) -> None:
    """Apply the objects that Crossplane and the provider need."""
    services = run.state.services
    assert services is not None
    await _check_upgrade(cluster, services, run.layout)
    authority = (tls_folder(run.layout) / "ca.crt").read_bytes()
    port = services.ports.get(_WEBHOOK)
    webhook: Manifest = {
        "url": f"https://{LOOPBACK}:{port}/convert" if port else "",
        "caBundle": base64.b64encode(authority).decode(),
    }
    definitions = [_converted(crd, webhook) for folder in built.values() for crd in _crds(folder)]
    with run.progress.step("installing the CRDs of Crossplane and its provider"):
        home = build(refs.NAMESPACE, NAMESPACE)
        await cluster.apply(home, refs.NAMESPACE, manager=_MANAGER, force=True)
        await manifests.install_all(cluster, definitions)
        if {Component.CROSSPLANE, Component.FUNCTION} <= {*services.components}:
            await _introduce(cluster, services.ports[_FUNCTION])


async def _check_upgrade(cluster: KubeCluster, services: Services, layout: Layout) -> None:
    """Raise HostError for changes that would delete databases: a way back, compositions of 1.20."""
    versions = await cluster.versions(refs.COMPOSITION.group)
    if not versions or Component.CROSSPLANE not in services.components:
        return
    first = layout.command("up --crossplane 1.20")
    if services.crossplane == "1.20":
        if diagnosed.is_second(versions):
            raise HostError(
                "this control plane has Crossplane 2.x, and there is no way back to 1.20",
                hint=f"{layout.command('up --crossplane 2.4')} continues with 2.x",
            )
        return
    for found in diagnosed.pipelines(await examine.crossplane_of(cluster, _COMPOSING)):
        hint = f"{found.remedy}. {first} runs 1.20 on, and applies the files of the services"
        raise HostError(found.message, hint=hint)


async def _introduce(cluster: KubeCluster, port: int) -> None:
    """Apply the objects by which Crossplane finds the function."""
    for manifest in yaml.load_all(_FUNCTION_FILE.read_bytes(), yaml.CSafeLoader):
        name = get_text(manifest, "kind")
        kind = refs.Kind("pkg.crossplane.io", "v1", name, f"{name.lower()}s", namespaced=False)
        live = await cluster.apply(manifest, kind, manager=_MANAGER, force=True)
    status = {"endpoint": f"{LOOPBACK}:{port}", "capabilities": ["composition"]}
    revision = ref_of(cluster.name, kind, live)
    await cluster.merge_patch(revision, {"status": status}, manager=_MANAGER, subresource="status")


def _crds(folder: Path) -> Iterator[Manifest]:
    for file in sorted((folder / CRDS).glob("*/*.yaml")):
        yield from yaml.load_all(file.read_bytes(), yaml.CSafeLoader)


def _converted(crd: Manifest, webhook: Manifest) -> Manifest:
    """Return the CRD with the address of its conversion webhook.

    In a cluster the package manager of Crossplane fills in that of a Service.
    """
    place = ("spec", "conversion", "webhook", "clientConfig")
    return put(crd, webhook, *place) if get_map(crd, *place) else crd

"""Run services beside the control plane of a sandbox. The order of things lives here."""

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from klutchctl import files
from klutchctl.sandbox import (
    components,
    credentials,
    lifecycle,
    manifests,
    postgresql,
    processes,
    startup,
)
from klutchctl.sandbox.components import Kit
from klutchctl.sandbox.go_build import CRDS
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Server
from klutchctl.sandbox.state import Component, Layout, State
from klutchctl.sandbox.suite import Suite
from reconciler.api import osb
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest, get_map, get_text, put
from reconciler.core.refs import NAMESPACE
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster

_NAMESPACE: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": components.NAMESPACE},
}
_MANAGER: Final = "klutchctl"
_OF_CROSSPLANE: Final = frozenset({Component.CROSSPLANE, Component.PROVIDER_KUBERNETES})


def needs_crossplane(suite: Suite) -> bool:
    """Tell whether the suite runs anything that is built from the module of Crossplane."""
    return not _OF_CROSSPLANE.isdisjoint(suite.components)


def find(layout: Layout, suite: Suite, environ: Mapping[str, str]) -> Kit:
    """Return the suite with what it needs of this machine; nothing of it has to be built.

    Raises HostError where that is not there.
    """
    wanted = Component.POSTGRESQL in suite.components
    return Kit(suite, None, postgresql.find(layout, environ) if wanted else None)


def up(layout: Layout, kit: Kit, *, progress: Progress) -> None:
    """Start what is missing, apply the manifests, and return when everything works.

    The clusters run: `lifecycle.up` was told of `kit`. Raises HostError for a server that does not
    start and for manifests that do not stick.
    """
    with lifecycle.locked(layout, progress):
        state = lifecycle.load(layout)
        if state is None or state.services is None:
            raise HostError(
                "the sandbox was changed meanwhile", hint="Run the command again for its services"
            )
        services = state.services
        if _write_files(layout, state, kit, progress):
            lifecycle.stop_services(layout, state)  # they have read the old ones
        servers = components.servers(layout, services, kit)
        asyncio.run(_install(layout, state, kit, progress))
        beginning = [server for server in servers if server.program in services.components]
        _start(layout, beginning, kit, progress)
        with progress.step("applying the manifests of the services"):
            asyncio.run(_apply(layout, state, kit))
        _start(layout, [one for one in servers if one not in beginning], kit, progress)


def _start(layout: Layout, stage: Sequence[Server], kit: Kit, progress: Progress) -> None:
    observed = processes.observe(layout)
    for server in stage:
        gone = processes.running(server, observed) is None
        if gone and kit.postgresql and server.program == Component.POSTGRESQL:
            postgresql.clear_after_crash(kit.postgresql)
    if stage:
        startup.ensure_running(layout, stage, {}, progress=progress)


def _write_files(layout: Layout, state: State, kit: Kit, progress: Progress) -> bool:
    """Return whether an address is another one than in the files that were there."""
    services = state.services
    assert services is not None
    plane = state.members[0]
    content = credentials.kubeconfig([lifecycle.entry(layout, plane, user="admin")])
    files.private_folder(layout.services)
    changed = files.replaced(layout.services_kubeconfig, content)
    for component in _OF_CROSSPLANE.intersection(services.components):
        files.private_folder(components.data_folder(layout, component))
    for name in services.programs:
        files.private_folder(layout.program_data(name))
    if not _OF_CROSSPLANE.isdisjoint(services.components):
        credentials.ensure_component(components.tls_folder(layout), removal=layout.removal)
    if kit.postgresql is not None:
        password = postgresql.ensure_data(layout, kit.postgresql, progress=progress)
        address = components.address(components.postgresql_port(services), password)
        changed |= files.replaced(layout.postgresql_address, f"{address}\n".encode())
    return changed


async def _install(layout: Layout, state: State, kit: Kit, progress: Progress) -> None:
    """Apply what Crossplane and the provider cannot run without."""
    if kit.crossplane is None:
        return
    assert state.services is not None
    authority = (components.tls_folder(layout) / "ca.crt").read_bytes()
    webhook: Manifest = {
        "url": components.webhook_address(state.services),
        "caBundle": base64.b64encode(authority).decode(),
    }
    definitions = [_converted(crd, webhook) for crd in _crds(kit.crossplane)]
    with progress.step("installing the CRDs of Crossplane and its provider"):
        async with KubeCluster(lifecycle.connection(layout, state.members[0])) as cluster:
            await cluster.apply(_NAMESPACE, NAMESPACE, manager=_MANAGER, force=True)
            await manifests.install_all(cluster, definitions)


async def _apply(layout: Layout, state: State, kit: Kit) -> None:
    async with KubeCluster(lifecycle.connection(layout, state.members[0])) as cluster:
        if any(_is_of_brokers(one.manifest) for one in kit.suite.manifests):
            await manifests.install_all(cluster, crds.load(*crds.BROKERS))
        await manifests.apply(cluster, kit.suite.manifests)


def _is_of_brokers(manifest: Manifest) -> bool:
    """Tell whether an object is one that klutch-osb reads."""
    return get_text(manifest, "apiVersion") == osb.SERVICE_BROKER.api_version


def _crds(crossplane: Path) -> Iterator[Manifest]:
    for file in sorted((crossplane / CRDS).glob("*/*.yaml")):
        yield from yaml.load_all(file.read_bytes(), yaml.CSafeLoader)


def _converted(crd: Manifest, webhook: Manifest) -> Manifest:
    """Return the CRD with the address of its conversion webhook.

    In a cluster the package manager of Crossplane fills in that of a Service.
    """
    place = ("spec", "conversion", "webhook", "clientConfig")
    return put(crd, webhook, *place) if get_map(crd, *place) else crd

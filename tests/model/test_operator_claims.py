"""What the example's operator writes to a claim that Crossplane made a Postgresql of."""

from types import SimpleNamespace
from typing import Any

import pytest

from klutchctl.sandbox import manifests
from postgresql_operator.controllers import Context, reconcilers
from postgresql_operator.wire import BINDING, CLAIM, FINALIZER, MANAGER, POSTGRESQL, key_of
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from tests.support import removal
from tests.support.bound_scenes import conditions
from tests.support.clusters import LiveCluster
from tests.support.definitions import definition
from tests.support.operated import definitions

READY: Manifest = {"type": "Ready", "status": "False", "reason": "Deleting"}
TEXTS = ("type", "status", "reason", "message", "lastTransitionTime")  # no severity


async def claims_are_served(plane: LiveCluster) -> None:
    """Have claims as Crossplane's, whose conditions have no severity."""
    condition = {"type": "object", "properties": {one: {"type": "string"} for one in TEXTS}}
    status = {"conditions": {"type": "array", "items": condition}}
    properties: Any = {"status": {"type": "object", "properties": status}}
    schema = {"type": "object", "properties": properties}
    await manifests.install_all(plane.cluster, [definition(CLAIM, schema, status=True)])


async def make(plane: LiveCluster, kind: Kind, name: str, namespace: str, **more: Any) -> Manifest:
    metadata = {
        "name": name,
        "namespace": namespace,
        "finalizers": [FINALIZER],
        "annotations": {keys.ADOPT: keys.NOT_ADOPTED},
    }
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
    return await plane.cluster.create(made, kind, manager="tests")


async def reconcile(plane: LiveCluster, live: Manifest) -> None:
    """Have the operator look at a Postgresql, with a server that has its database."""
    runtime = Runtime(
        plane.cluster, manager=MANAGER, reporter=MANAGER, holder="tests", clock=SystemClock()
    )

    async def has_database(name: str) -> bool:
        return bool(name)

    postgres: Any = SimpleNamespace(
        address=lambda: SimpleNamespace(place=SimpleNamespace()), has_database=has_database
    )
    nothing = SimpleNamespace()
    world: Any = SimpleNamespace(
        cluster=plane.cluster,
        instances=SimpleNamespace(get=lambda *_: live),
        bindings=nothing,
        backups=nothing,
        restores=nothing,
    )
    dumps: Any = nothing
    context = Context(world, postgres, dumps, runtime.executor(plane.cluster))
    await reconcilers(context)[POSTGRESQL].reconcile(key_of(live))


@pytest.mark.parametrize("by_crossplane", [True, False], ids=["a claim's", "alone"])
async def test_the_claim_names_what_its_deletion_waits_for(
    control_plane: LiveCluster, namespace: str, by_crossplane: bool
) -> None:
    async def read(kind: Kind) -> Any:
        return await control_plane.cluster.get(Ref(control_plane.name, kind, namespace, "orders"))

    await manifests.install_all(control_plane.cluster, definitions())
    kinds = [POSTGRESQL]
    if by_crossplane:
        await claims_are_served(control_plane)
        kinds.append(CLAIM)
    for kind in kinds:
        await make(control_plane, kind, "orders", namespace)
    for name, where in (("grain", namespace), ("of-another-tenant", "default")):
        await make(control_plane, BINDING, name, where, spec={"instanceRef": "orders"})
    for kind in kinds:
        ref = Ref(control_plane.name, kind, namespace, "orders")
        await removal.remove(control_plane.cluster, ref)
    if by_crossplane:
        ref, said = Ref(control_plane.name, CLAIM, namespace, "orders"), [READY]
        body: Any = {"status": {"conditions": said}}
        await control_plane.cluster.merge_patch(
            ref, body, manager="crossplane", subresource="status"
        )
    await reconcile(control_plane, await read(POSTGRESQL))
    why = "the database stays until these ServiceBindings are deleted: grain"
    assert conditions(await read(POSTGRESQL))["Released"]["message"] == why
    if by_crossplane:
        claim = await read(CLAIM)
        assert conditions(claim)["Released"]["message"] == why
        assert conditions(claim)["Ready"] == READY
        await reconcile(control_plane, await read(POSTGRESQL))
        assert await read(CLAIM) == claim

"""T10, T17: a kubeconfig in a Secret, of any size, leads only where flags let it."""

import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from konnector import settings as konnector_settings
from reconciler.api import APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.errors import AlreadyExists, Unreachable
from reconciler.core.live import ClusterState, Unavailable
from reconciler.core.manifest import JSON, get_map, get_maps, get_text, get_texts, name_of
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SECRET, Ref
from reconciler.fleet.values import Access, Fleet
from reconciler.kube import registry
from reconciler.kube.client import KubeCluster
from reconciler.kube.networks import ANYWHERE, of_flags
from reconciler.observe import observe
from tests.support.backend import USUAL
from tests.support.bound_scenes import MANAGER, Managed, remove, until
from tests.support.clusters import LiveCluster
from tests.support.observing import BIND, Hand, around, b64, context, seen_by


def named(live: LiveCluster) -> str:
    """Return the URL of a cluster by a name, which leads wherever its name server says."""
    return f"https://localhost:{urlsplit(live.connection.server).port}"


async def test_what_a_name_comes_to_is_judged_when_it_is_connected_to(
    app_cluster: LiveCluster,
) -> None:
    system = Ref(app_cluster.name, NAMESPACE, "", names.KUBE_SYSTEM)
    way = replace(app_cluster.connection, server=named(app_cluster))
    in_pod = of_flags([], [], in_cluster=True)
    mark = app_cluster.audit.mark()
    async with KubeCluster(replace(way, networks=in_pod), agent="led-astray") as refused:
        with pytest.raises(Unreachable, match=r"refused, as (127\.0\.0\.1|::1) is in a network"):
            await refused.get(system)
    assert app_cluster.audit.answers_since(mark, "led-astray") == []
    async with KubeCluster(replace(way, networks=ANYWHERE)) as allowed:
        assert await allowed.get(system)
    allowing = of_flags(["127.0.0.0/8,::1/128"], [], in_cluster=True)
    async with KubeCluster(replace(way, networks=allowing)) as allowed:
        assert await allowed.get(system)


SERVERS = {
    "https://169.254.169.254": "169.254.169.254 is a link-local address",
    "https://[::ffff:169.254.169.254]": "169.254.169.254 is a link-local address",
    "https://[fd00:ec2::254]": "fd00:ec2::254 is a metadata service",
    "http://127.0.0.1:8080": "must start with https://",
}


@pytest.mark.parametrize("server", SERVERS)
async def test_a_cluster_whose_secret_leads_to_a_metadata_service_is_unseen(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, on_plane: Hand, server: str
) -> None:
    with contextlib.suppress(AlreadyExists):  # others need it too, so it stays
        await control_plane.cluster.create(build(NAMESPACE, BIND), NAMESPACE, manager="tests")
    name = f"access-{uuid.uuid4().hex[:8]}"
    content = context(app_cluster, "x", cluster={"server": server})
    await on_plane.create(SECRET, name, namespace=BIND, data={"config": b64(content.decode())})
    led = replace(fleet.clusters["shop"], access=Access(secret=(name, "config")))

    live = await seen_by(replace(fleet, clusters={"shop": led}), control_plane.kubeconfig)

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unavailable)
    assert SERVERS[server] in verdict.reason


async def test_no_override_of_a_tenant_leads_where_the_operator_of_klutch_bind_denies(
    managed: Managed,
) -> None:
    """The tenant's Secret leads by a name, which only who connects can judge."""
    denied = of_flags([], ["127.0.0.0/8,::1/128"], in_cluster=False)
    theirs: dict[str, Any] = {
        "args": ["--allow-networks=0.0.0.0/0,::/0"],
        "env": [{"name": name, "value": ""} for name in denied.environment],
    }
    name = "konnector-shop"
    async with managed.backend(settings=replace(USUAL, networks=denied)):
        content = context(managed.app, "x", cluster={"server": named(managed.app)})
        await managed.make_secret(content.decode())
        await managed.apply(managed.offer.resource)
        ref = Ref(managed.plane.name, APP_CLUSTER_BINDING, managed.namespace, "shop")
        spec: dict[str, Any] = {"konnector": {"deploy": True, "overrides": theirs}}
        await managed.plane.cluster.merge_patch(ref, {"spec": spec}, manager=MANAGER)
        live = await until(lambda: managed.read(DEPLOYMENT, name))
    container = get_map(live, "spec", "template", "spec", "containers", 0)
    variables = get_maps(container, "env")
    environ = {name_of({"metadata": one}): get_text(one, "value") for one in variables}
    deployed = konnector_settings.parse(get_texts(container, "args"), environ)
    mark = managed.app.audit.mark()
    way = replace(managed.app.connection, server=named(managed.app), networks=deployed.networks)
    async with KubeCluster(way, agent="led-by-a-tenant") as refused:
        with pytest.raises(Unreachable, match="is in a network"):
            await refused.get(Ref(managed.app.name, NAMESPACE, "", names.KUBE_SYSTEM))
    assert managed.app.audit.answers_since(mark, "led-by-a-tenant") == []


# 700 kB of what takes a second to parse each.
LARGE = "current-context: x\nclusters:\n" + "- {a: [b, {c: d}]}\n" * 36_000


@pytest.fixture
async def flooded(control_plane: LiveCluster) -> AsyncIterator[LiveCluster]:
    """Twelve namespaces with such a Secret, of which one passes for a binding space."""
    cluster, run = control_plane.cluster, uuid.uuid4().hex[:8]
    places = [f"t10-{run}-{one}" for one in range(12)]
    for place in places:
        await cluster.create(spaces.namespace(place), NAMESPACE, manager="anybody")
        made = build(SECRET, names.KUBECONFIG, namespace=place, data={"kubeconfig": b64(LARGE)})
        await cluster.create(made, SECRET, manager="anybody")
    reference: JSON = {"name": names.KUBECONFIG, "key": "kubeconfig", "namespace": places[0]}
    spec: JSON = {"kubeconfigSecretRef": reference, "providerPrettyName": "anybody"}
    binding = build(CLUSTER_BINDING, names.CLUSTER_BINDING, namespace=places[0], spec=spec)
    await cluster.create(binding, CLUSTER_BINDING, manager="anybody")
    yield control_plane
    for place in places:
        await remove(control_plane, NAMESPACE, "", place)


async def look(fleet: Fleet, live: LiveCluster, *, credentials: bool) -> float:
    """Return what a look costs, in seconds of the processor."""
    planes = {plane.name: plane.access for plane in fleet.control_planes.values()}
    began = time.process_time()
    async with registry.Registry(planes, around(live.kubeconfig)) as clusters:
        seen = await observe(fleet, clusters, credentials=credentials)
    assert all(isinstance(one, ClusterState) for one in seen.clusters.values()), seen.clusters
    return time.process_time() - began


@pytest.mark.parametrize("credentials", [False, True], ids=["plan", "apply"])
async def test_a_look_does_not_parse_them(
    fleet: Fleet, flooded: LiveCluster, credentials: bool
) -> None:
    assert len(LARGE) > 600_000
    await look(fleet, flooded, credentials=credentials)  # what is loaded once is loaded
    assert await look(fleet, flooded, credentials=credentials) < 1  # parsed, they take 12

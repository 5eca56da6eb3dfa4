"""What `KubeCluster` promises, on a real API server whose connection is healthy."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core.errors import Forbidden, Missing, NotServed, Rejected, Unreachable
from reconciler.core.manifest import get, get_text
from reconciler.core.refs import CONFIG_MAP, CRD, SECRET, Kind, Ref
from reconciler.http import http2
from reconciler.http.stream import Stream
from reconciler.kube import client
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits
from reconciler.kube.requests import ListQuery, Preconditions, Propagation
from tests.support.accounts import robot_connection
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy

MANAGER = "tests"
NOTHING_LIKE_IT = Kind("shop.example", "v1", "Basket", "baskets")


@pytest.fixture
def cluster(control_plane):
    return control_plane.cluster


def config_map(namespace, name, data=None, labels=None):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "data": data or {"a": "1"},
    }


async def fill(cluster, namespace, count):
    names = [f"item-{index:03}" for index in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            manifest = config_map(namespace, name)
            group.create_task(cluster.create(manifest, CONFIG_MAP, manager=MANAGER))
    return names


def ref(cluster, namespace, name, kind=CONFIG_MAP):
    return Ref(cluster.name, kind, namespace, name)


def names_of(items):
    return [get_text(item, "metadata", "name") for item in items]


async def test_what_is_absent_is_none(cluster, namespace):
    assert await cluster.get(ref(cluster, namespace, "x")) is None
    assert await cluster.get(ref(cluster, "no-such-namespace", "x")) is None


async def test_a_kind_without_a_crd_is_said_to_be_unserved_not_empty(cluster, namespace):
    with pytest.raises(NotServed, match=r"does not serve baskets\.shop\.example/v1"):
        await cluster.list(NOTHING_LIKE_IT, namespace=namespace)
    with pytest.raises(NotServed):
        await cluster.get(ref(cluster, namespace, "x", NOTHING_LIKE_IT))
    with pytest.raises(NotServed):
        async with cluster.watch(ref(cluster, "", "", NOTHING_LIKE_IT), resource_version="1"):
            pass


async def test_a_version_that_a_served_group_does_not_have(cluster, namespace):
    with pytest.raises(NotServed):
        await cluster.list(replace(CRD, version="v9"))
    with pytest.raises(NotServed):
        await cluster.list(replace(CONFIG_MAP, plural="configmappings"), namespace=namespace)


async def test_the_versions_of_a_group(cluster):
    assert "v1" in await cluster.versions(CRD.group)
    assert await cluster.versions("nobody.example") == []


async def test_create_returns_what_the_server_stored(cluster, namespace):
    made = await cluster.create(config_map(namespace, "x"), CONFIG_MAP, manager=MANAGER)
    assert get_text(made, "metadata", "uid")
    assert get(made, "metadata", "managedFields", 0, "manager") == MANAGER
    assert await cluster.get(ref(cluster, namespace, "x")) == made


async def test_a_dry_run_stores_nothing(cluster, namespace):
    manifest = config_map(namespace, "x")
    await cluster.create(manifest, CONFIG_MAP, manager=MANAGER, dry_run=True)
    await cluster.apply(manifest, CONFIG_MAP, manager=MANAGER, force=True, dry_run=True)
    assert await cluster.get(ref(cluster, namespace, "x")) is None
    made = await cluster.create(manifest, CONFIG_MAP, manager=MANAGER)
    target = ref(cluster, namespace, "x")
    shown = await cluster.merge_patch(target, {"data": {"a": "2"}}, manager=MANAGER, dry_run=True)
    assert get(shown, "data", "a") == "2"
    assert await cluster.delete(
        target,
        preconditions=Preconditions(uid=None),
        propagation=Propagation.BACKGROUND,
        dry_run=True,
    )
    assert await cluster.get(target) == made


async def test_create_in_a_namespace_that_is_not_there(cluster):
    manifest = config_map("no-such-namespace", "x")
    with pytest.raises(Missing, match='namespaces "no-such-namespace" not found'):
        await cluster.create(manifest, CONFIG_MAP, manager=MANAGER)


async def test_apply_states_only_our_fields(cluster, namespace):
    target = ref(cluster, namespace, "x")
    ours = config_map(namespace, "x", {"ours": "1"})
    await cluster.apply(ours, CONFIG_MAP, manager=MANAGER, force=True)
    await cluster.merge_patch(target, {"data": {"theirs": "2"}}, manager="someone")
    smaller = config_map(namespace, "x", {"other": "3"})
    live = await cluster.apply(smaller, CONFIG_MAP, manager=MANAGER, force=True)
    assert get(live, "data") == {"theirs": "2", "other": "3"}


async def test_apply_without_force_stops_at_fields_of_others(cluster, namespace):
    await cluster.create(config_map(namespace, "x"), CONFIG_MAP, manager="someone")
    taken = config_map(namespace, "x", {"a": "2"})
    with pytest.raises(Exception, match="conflict with") as caught:
        await cluster.apply(taken, CONFIG_MAP, manager=MANAGER, force=False)
    assert type(caught.value).__name__ == "Conflict"
    live = await cluster.apply(taken, CONFIG_MAP, manager=MANAGER, force=True)
    assert get(live, "data", "a") == "2"


async def test_status_is_written_apart_from_the_rest(cluster, namespace):
    kind = API_SERVICE_NAMESPACE
    target = ref(cluster, namespace, "x", kind)
    metadata = {"name": "x", "namespace": namespace}
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    status = {"status": {"namespace": "space-x"}}
    assert get(await cluster.create(manifest | status, kind, manager=MANAGER), "status") is None
    patch = status | {"metadata": {"labels": {"ignored": "here"}}}
    after = await cluster.merge_patch(target, patch, manager=MANAGER, subresource="status")
    assert get(after, "status", "namespace") == "space-x"
    assert get(after, "metadata", "labels") is None


async def test_what_the_server_refuses_names_cluster_object_verb_and_field(cluster, namespace):
    wrong = config_map(namespace, "Not A Name")
    with pytest.raises(Rejected) as caught:
        await cluster.create(wrong, CONFIG_MAP, manager=MANAGER)
    text = str(caught.value)
    assert text.startswith(f"control-plane: create ConfigMap {namespace}/Not A Name: ")
    assert "metadata.name" in text


async def test_a_list_of_many_pages_is_complete_and_typed(cluster, namespace):
    names = await fill(cluster, namespace, 25)
    names.append("kube-root-ca.crt")
    await eventually(lambda: cluster.get(ref(cluster, namespace, "kube-root-ca.crt")))
    for page_size in (1, 10, 26, 500):
        listing = await cluster.list(CONFIG_MAP, namespace=namespace, page_size=page_size)
        assert names_of(listing.items) == names
        assert listing.resource_version
        assert {get_text(item, "kind") for item in listing.items} == {"ConfigMap"}
        assert {get_text(item, "apiVersion") for item in listing.items} == {"v1"}


async def test_a_metadata_list_holds_no_data(cluster, namespace):
    await fill(cluster, namespace, 3)
    listing = await cluster.list(CONFIG_MAP, namespace=namespace, metadata_only=True)
    assert "item-000" in names_of(listing.items)
    assert not any("data" in item for item in listing.items)
    one = await cluster.get(ref(cluster, namespace, "item-000"), metadata_only=True)
    assert one is not None
    assert "data" not in one


async def test_selectors_narrow_a_list(cluster, namespace):
    await fill(cluster, namespace, 3)
    labelled = config_map(namespace, "labelled", labels={"team": "a"})
    await cluster.create(labelled, CONFIG_MAP, manager=MANAGER)
    by_label = await cluster.list(CONFIG_MAP, namespace=namespace, labels="team in (a,b)")
    assert names_of(by_label.items) == ["labelled"]
    by_name = await cluster.list(CONFIG_MAP, namespace=namespace, fields="metadata.name=item-001")
    assert names_of(by_name.items) == ["item-001"]


async def test_a_watch_tells_what_happened_since_the_list(cluster, namespace):
    start = (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version
    await fill(cluster, namespace, 1)
    target = ref(cluster, namespace, "item-000")
    async with cluster.watch(
        ref(cluster, namespace, ""),
        ListQuery(fields="metadata.name=item-000"),
        resource_version=start,
    ) as events:
        added = await anext(events)
        await cluster.merge_patch(target, {"data": {"b": "2"}}, manager=MANAGER)
        modified = await anext(events)
        await cluster.delete(
            target, preconditions=Preconditions(uid=None), propagation=Propagation.BACKGROUND
        )
        deleted = await anext(events)
    assert [event.type for event in (added, modified, deleted)] == ["ADDED", "MODIFIED", "DELETED"]
    assert get(modified.object, "data", "b") == "2"


async def test_many_calls_share_a_bounded_number_of_connections(control_plane, namespace):
    async with (
        FaultProxy(control_plane.connection) as proxy,
        KubeCluster(proxy.connection, limits=Limits(concurrency=4)) as cluster,
    ):
        await fill(cluster, namespace, 60)
    assert 1 < proxy.connections <= 4


async def test_of_lists_a_few_begin_together(control_plane, namespace, monkeypatch):
    monkeypatch.setattr(client, "_BEGUN", 600.0)
    async with (
        FaultProxy(control_plane.connection) as proxy,
        KubeCluster(proxy.connection, limits=Limits(concurrency=200)) as cluster,
    ):
        await asyncio.gather(*(cluster.list(CONFIG_MAP, namespace=namespace) for _ in range(200)))
    assert 1 < proxy.connections <= 64


async def test_a_service_account_without_rights_is_forbidden(control_plane, namespace):
    robot = await robot_connection(control_plane, namespace)
    async with KubeCluster(robot) as cluster:
        with pytest.raises(Forbidden, match="cannot list resource"):
            await cluster.list(SECRET, namespace=namespace)


async def test_a_closed_cluster_says_so(control_plane, namespace):
    cluster = KubeCluster(control_plane.connection)
    assert await cluster.get(ref(cluster, namespace, "x")) is None
    await cluster.close()
    with pytest.raises(Unreachable, match="closed by us"):
        await cluster.get(ref(cluster, namespace, "x"))


async def test_a_watch_ends_with_the_connection(control_plane, namespace):
    cluster = KubeCluster(control_plane.connection)
    version = (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version

    async def follow() -> None:
        watching = cluster.watch(ref(cluster, namespace, ""), resource_version=version)
        async with watching as events:
            opened.set()
            async for _ in events:
                pass

    opened = asyncio.Event()
    following = asyncio.create_task(follow())
    await opened.wait()
    await asyncio.sleep(0)  # so that it reads
    await cluster.close()
    with pytest.raises(Unreachable):
        async with asyncio.timeout(60):
            await following


def test_http2_can_be_turned_off():
    code = f"from {http2.__name__} import PROTOCOLS; print(*PROTOCOLS)"
    environ = os.environ | {"KLUTCH_HTTP2": "off"}
    found = subprocess.check_output((sys.executable, "-c", code), env=environ, text=True)
    assert (found, http2.PROTOCOLS) == ("http/1.1\n", ("h2", "http/1.1"))


BEGINNINGS = [
    ("h2", Stream, "opened"),
    ("http/1.1", Stream, "opened"),
    ("http/1.1", http2.Multiplexer, "open"),
]


@pytest.mark.parametrize(("spoken", "kind", "method"), BEGINNINGS)
async def test_a_connection_may_be_closed_while_an_answer_begins(
    control_plane, namespace, monkeypatch, spoken, kind, method
):
    monkeypatch.setattr(http2, "PROTOCOLS", (spoken,))
    start, cluster = getattr(kind, method), KubeCluster(control_plane.connection)

    async def start_and_close(*arguments: Any, **more: Any) -> Any:
        began = await start(*arguments, **more)
        await cluster.close()
        return began

    monkeypatch.setattr(kind, method, start_and_close)
    watching = cluster.watch(ref(cluster, namespace, ""), resource_version="0")
    with pytest.raises(Unreachable, match="closed by us"):
        async with watching as events:
            await anext(events)

"""The fixtures that other tests lean on: what the audit log proves, and whom a cluster trusts."""

from typing import TYPE_CHECKING

import pytest

from reconciler.core.errors import Unauthorized
from reconciler.core.refs import CONFIG_MAP, CRD, NAMESPACE, SERVICE_ACCOUNT, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support.clusters import Write
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from reconciler.core.manifest import Manifest


def config_map(namespace: str) -> "Manifest":
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace},
    }


async def test_a_write_is_in_the_audit_log_as_soon_as_it_is_answered(control_plane, namespace):
    mark = control_plane.audit.mark()
    await control_plane.cluster.apply(
        config_map(namespace), CONFIG_MAP, manager="tests", force=True
    )
    assert control_plane.audit.writes_since(mark, namespace=namespace) == [
        Write("patch", "admin", "configmaps", namespace, "settings", agent="klutchctl")
    ]


async def test_reads_and_dry_runs_are_not_writes(control_plane, namespace):
    mark = control_plane.audit.mark()
    await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)
    await control_plane.cluster.create(
        config_map(namespace), CONFIG_MAP, manager="tests", dry_run=True
    )
    assert control_plane.audit.writes_since(mark, namespace=namespace) == []


async def test_the_controllers_work_and_their_writes_do_not_count(control_plane, namespace):
    cluster = control_plane.cluster
    account = Ref(cluster.name, SERVICE_ACCOUNT, namespace, "default")
    await eventually(lambda: cluster.get(account))
    users = {write.user for write in control_plane.audit.writes_since(0, namespace=namespace)}
    assert users <= {"admin"}


async def test_one_cluster_has_all_crds_and_the_other_the_one_of_app_clusters(
    control_plane, app_cluster
):
    assert len((await control_plane.cluster.list(CRD)).items) >= 7
    names = {crd["metadata"]["name"] for crd in (await app_cluster.cluster.list(CRD)).items}
    assert "apiservicebindings.klutch.anynines.com" in names
    assert "clusterbindings.klutch.anynines.com" not in names


async def test_an_administrator_of_one_cluster_is_nobody_in_another(control_plane, app_cluster):
    own, other = control_plane.connection, app_cluster.connection
    mixed = Connection(name="mixed", server=other.server, ca=other.ca, credential=own.credential)
    async with KubeCluster(mixed) as cluster:
        with pytest.raises(Unauthorized):
            await cluster.first_page(NAMESPACE, limit=1)

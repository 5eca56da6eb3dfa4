"""What an informer keeps and tells while rights are missing and kinds come and go."""

import contextlib
from dataclasses import replace

import pytest

from reconciler.core.errors import Forbidden, Missing, NotServed, Unreachable
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import CONFIG_MAP, CRD, ROLE, ROLE_BINDING, Kind, Ref
from reconciler.kube import limits
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import NoCredential
from reconciler.kube.informer import OPTIONAL, Informer
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.accounts import ROBOT, robot_connection
from tests.support.churn import IMPATIENT, MANAGER, following, seen, truth
from tests.support.definitions import OPEN, version_of
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy

NOT_YET = (NotServed, Unreachable)  # a CRD takes effect some time after it is written
NO_CAUSE = Preconditions(uid=None)


@pytest.fixture(autouse=True)
def restless(monkeypatch):
    monkeypatch.setattr(limits, "_LONGEST_PAUSE", 0.3)


def names(informer):
    return {name_of(one) for one in informer.store.all()} - {"kube-root-ca.crt"}


async def delete(cluster, kind, namespace, name):
    ref = Ref(cluster.name, kind, namespace, name)
    await cluster.delete(ref, preconditions=NO_CAUSE, propagation=Propagation.BACKGROUND)


async def follows(informer, cluster, namespace):
    async def probe():
        with contextlib.suppress(*NOT_YET):
            assert seen(informer.store) == await truth(cluster, informer.ref.kind, namespace)
            return informer.synced and not informer.trouble

    await eventually(probe)


# Rights


async def grant(cluster, namespace):
    role = {"apiGroup": ROLE.group, "kind": "Role", "name": ROBOT}
    subject = {"kind": "ServiceAccount", "name": ROBOT, "namespace": namespace}
    manifest = {
        "apiVersion": ROLE_BINDING.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": ROBOT, "namespace": namespace},
        "roleRef": role,
        "subjects": [subject],
    }
    await cluster.create(manifest, ROLE_BINDING, manager=MANAGER)


async def refuses(limited, namespace):
    """Return whether the server has heard that a right is gone: it would let a watch begin."""
    try:
        await limited.first_page(CONFIG_MAP, namespace=namespace, limit=1)
    except Forbidden:
        return True
    except Unreachable:  # a busy server is slower than the client is patient
        pass
    return False


@pytest.fixture
async def robot(control_plane, namespace):
    """A connection that may do nothing; `grant` lets it read the ConfigMaps of its namespace."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    manifest = {
        "apiVersion": ROLE.api_version,
        "kind": "Role",
        "metadata": {"name": ROBOT, "namespace": namespace},
        "rules": [rule],
    }
    await control_plane.cluster.create(manifest, ROLE, manager=MANAGER)
    return await robot_connection(control_plane, namespace)


async def test_rights_come_and_go(control_plane, namespace, robot):
    cluster = control_plane.cluster
    item: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": namespace},
    }
    await cluster.create(item, CONFIG_MAP, manager=MANAGER)
    anonymous = replace(control_plane.connection, credential=NoCredential())
    async with FaultProxy(anonymous) as proxy:
        connection = replace(proxy.connection, credential=robot.credential)
        async with KubeCluster(connection, limits=IMPATIENT) as limited:
            informer = Informer(limited, CONFIG_MAP, namespace=namespace)
            async with following(informer):
                await eventually(lambda: "cannot list resource" in informer.trouble)
                synced = informer.synced
                assert not synced
                await grant(cluster, namespace)
                await follows(informer, cluster, namespace)
                assert names(informer) == {"a"}

                await delete(cluster, ROLE_BINDING, namespace, ROBOT)
                await eventually(lambda: refuses(limited, namespace))
                proxy.cut()
                await eventually(lambda: "cannot list resource" in informer.trouble)
                await delete(cluster, CONFIG_MAP, namespace, "a")
                assert names(informer) == {"a"}
                assert informer.synced

                await grant(cluster, namespace)
                await follows(informer, cluster, namespace)
                assert names(informer) == set()


# Kinds


class Widgets:
    """A kind of its own, which the test brings in and takes away."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        self.kind = Kind(f"{namespace}.example", "v1", "Widget", "widgets")
        self.crd = Ref(cluster.name, CRD, "", self.kind.resource)

    async def open(self):
        versions = [version_of(OPEN, name, storage=name == "v2") for name in ("v1", "v2")]
        manifest = {
            "apiVersion": CRD.api_version,
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.kind.resource},
            "spec": {
                "group": self.kind.group,
                "names": {"plural": "widgets", "kind": "Widget"},
                "scope": "Namespaced",
                "versions": versions,
            },
        }
        await self.cluster.create(manifest, CRD, manager=MANAGER)

    async def serve(self, *, v1):
        """Have the version that is watched served, or not."""
        patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": v1}]
        await self.cluster.json_patch(self.crd, patch, manager=MANAGER)

    async def keep(self, finalizers):
        patch = {"metadata": {"finalizers": finalizers}}
        await self.cluster.merge_patch(self.crd, patch, manager=MANAGER)

    async def know(self, field):
        """Have a field of v1 known by the schema, and kept by the server from now on."""
        schema = {"type": "object", "properties": {field: {"type": "string"}}}
        path = "/spec/versions/{}/schema/openAPIV3Schema"
        patch = [{"op": "replace", "path": path.format(at), "value": schema} for at in (0, 1)]
        await self.cluster.json_patch(self.crd, patch, manager=MANAGER)

    async def set(self, name, field, *, dry_run=False):
        """Set a field; return whether the server keeps it, which takes new definitions in."""
        ref, body = Ref(self.cluster.name, self.kind, self.namespace, name), {field: "x"}
        with contextlib.suppress(*NOT_YET):
            live = await self.cluster.merge_patch(ref, body, manager=MANAGER, dry_run=dry_run)
            return field in live
        return False

    async def create(self, name, version="v1"):
        """Create an object, as soon as the CRD lets that happen."""
        kind = replace(self.kind, version=version)
        place = {"name": name, "namespace": self.namespace}
        made: Manifest = {"apiVersion": kind.api_version, "kind": "Widget", "metadata": place}

        async def probe():
            with contextlib.suppress(*NOT_YET):
                return await self.cluster.create(made, kind, manager=MANAGER)

        await eventually(probe)

    async def remove(self, name, version="v1"):
        """Delete an object, as soon as the CRD lets that happen."""
        kind = replace(self.kind, version=version)

        async def probe():
            with contextlib.suppress(*NOT_YET):
                await delete(self.cluster, kind, self.namespace, name)
                return True

        await eventually(probe)

    async def close(self):
        """Delete the CRD, with all objects of the kind, and wait until it is gone."""
        with contextlib.suppress(Missing):
            await delete(self.cluster, CRD, "", self.kind.resource)

        async def is_gone():
            return await self.cluster.get(self.crd) is None

        await eventually(is_gone)


@pytest.fixture
async def widgets(control_plane, namespace):
    widgets = Widgets(control_plane.cluster, namespace)
    yield widgets
    await widgets.close()


@pytest.fixture
async def informer(proxy, widgets):
    async with KubeCluster(proxy.connection, limits=IMPATIENT) as cluster:
        yield Informer(cluster, widgets.kind, namespace=widgets.namespace)


async def test_a_kind_that_comes_later(informer, widgets):
    async with following(informer):
        await eventually(lambda: "does not serve widgets." in informer.trouble)
        assert not informer.synced
        await widgets.open()
        await widgets.create("a")
        await follows(informer, widgets.cluster, widgets.namespace)
        assert names(informer) == {"a"}


async def test_an_optional_kind_has_no_object_until_it_comes(proxy, widgets):
    async with KubeCluster(proxy.connection, limits=IMPATIENT) as cluster:
        informer = Informer(cluster, widgets.kind, namespace=widgets.namespace, optional=OPTIONAL)
        async with following(informer):
            await informer.wait_synced()
            assert (names(informer), informer.trouble) == (set(), "")
            assert await informer.is_current()
            await widgets.open()
            await widgets.create("a")
            await follows(informer, widgets.cluster, widgets.namespace)
            assert names(informer) == {"a"}


async def test_a_kind_that_is_not_served_for_a_while(informer, widgets):
    await widgets.open()
    await widgets.create("a")
    async with following(informer):
        await follows(informer, widgets.cluster, widgets.namespace)
        await widgets.serve(v1=False)
        await eventually(lambda: "does not serve widgets." in informer.trouble)
        await widgets.remove("a", version="v2")
        await widgets.create("b", version="v2")
        assert names(informer) == {"a"}
        await widgets.serve(v1=True)
        await follows(informer, widgets.cluster, widgets.namespace)
        assert names(informer) == {"b"}


async def test_a_field_that_came_through_a_watch_of_the_old_schema_is_seen(informer, widgets):
    await widgets.open()
    await widgets.know("size")
    await widgets.create("a")
    async with following(informer):
        await follows(informer, widgets.cluster, widgets.namespace)
        await widgets.know("colour")
        await eventually(lambda: widgets.set("a", "colour", dry_run=True))
        assert await widgets.set("a", "colour")
        await eventually(lambda: "colour" in informer.store.get(widgets.namespace, "a"))


async def test_a_kind_that_vanishes_unseen_takes_nothing_along(informer, widgets, proxy):
    await widgets.open()
    await widgets.create("a")
    async with following(informer):
        await follows(informer, widgets.cluster, widgets.namespace)
        proxy.refuse()
        proxy.cut()
        await widgets.close()
        await proxy.accept()
        await eventually(lambda: "does not serve widgets." in informer.trouble)
        assert names(informer) == {"a"}
        # The CRD is made again, without the objects: now their absence is known.
        await widgets.open()
        await follows(informer, widgets.cluster, widgets.namespace)
        assert names(informer) == set()


async def test_objects_that_go_with_their_kind_are_reported_one_by_one(informer, widgets):
    await widgets.open()
    await widgets.create("a")
    async with following(informer):
        await follows(informer, widgets.cluster, widgets.namespace)
        # A server may end the watch of a kind before its last events, unless the CRD outlives them.
        await widgets.keep(["tests.example/held"])
        await delete(widgets.cluster, CRD, "", widgets.kind.resource)
        await eventually(lambda: names(informer) == set())
        await widgets.keep(None)
        await eventually(lambda: "does not serve widgets." in informer.trouble)
        assert names(informer) == set()

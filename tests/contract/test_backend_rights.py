"""The backend with exactly the rights that bind/deploy gives it: enough, and none too many."""

import contextlib
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from bind import rbac_changes
from bind.door import authorizer
from bind.door.keyring import KeyRing
from bind.door.provisioning import SpaceTerms
from bind.settings import Settings
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import build
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, manifest, names, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support import composed, deployed, door_spaces, removal, served_spaces
from tests.support.backend import REGISTRY, backend
from tests.support.clusters import LiveCluster
from tests.support.event_rights import recorded_and_counted
from tests.support.eventually import eventually
from tests.support.observing import kubeconfig
from tests.support.offers import CREDENTIALS, Offer, offered
from tests.support.served_spaces import AppCluster, Damage, Space


def with_services_of(offer: Offer, made: Sequence[Any], *, claimed: str) -> list[Any]:
    """Return the manifests with the offer, and its claim, in place of what services.yaml names."""
    services = copy.deepcopy(deployed.only(refs.CLUSTER_ROLE, made, name=deployed.SERVICES))
    of_group, of_core = services["rules"]
    of_group["apiGroups"] = [offer.group]
    of_core["resources"] = [claimed]
    return [services if manifest.name_of(one) == deployed.SERVICES else one for one in made]


# How an API server ends the message with which it refuses an object in a namespace that goes.
_TERMINATING: Final = "because it is being terminated"
_METHODS: Final = {"create": "POST", "patch": "PATCH"}  # of verbs that make an object


@dataclass(frozen=True, slots=True)
class Stage:
    """A control plane on which the backend works with the rights of one folder."""

    live: LiveCluster
    offer: Offer
    namespace: str
    made: Sequence[Any]
    way: Connection
    hearing: deployed.Hearing
    mark: int  # the audit log's end when it began

    @property
    def cluster(self):
        return self.live.cluster

    def refused(self, space: Space) -> set[tuple[str, str]]:
        """Return what was refused in a space for want of a right.

        No other test has that space. Views that are refused keep the backend from its work. Not
        counted is the search before a service namespace goes: kinds that were never offered may be
        out of reach, and those that count being out of reach keeps the Namespace.
        """
        home = f"/namespaces/{space.home}/"
        return {
            (method, path)
            for method, path in self.hearing.refused() - self.too_late()
            if space.name in path and not (method == "GET" and home in path)
        }

    def too_late(self) -> set[tuple[str, str]]:
        """Return method and path of what was last refused as its namespace was being deleted.

        Such an answer has the status of one for want of a right, 403, and says nothing of rights.
        """
        last = dict[tuple[str, str], str]()
        for event in self.live.audit.events_since(self.mark):
            if event["stage"] == "ResponseComplete" and event["verb"] in _METHODS:
                path = event["requestURI"].partition("?")[0]
                answer = manifest.get_text(event, "responseStatus", "message")
                last[_METHODS[event["verb"]], path] = answer
        return {request for request, answer in last.items() if answer.endswith(_TERMINATING)}

    def own(self, *names_of_roles: str) -> frozenset[deployed.Right]:
        roles = [one for one in self.made if one["kind"] in ("ClusterRole", "Role")]
        return deployed.rights_of(
            rule
            for one in roles
            if manifest.name_of(one) in names_of_roles
            for rule in one.get("rules", ())
        )

    def idle(self, *names_of_roles: str, handed_out: Manifest) -> frozenset[deployed.Right]:
        """Return which rights of these roles were neither used nor are needed to give them away."""
        given = deployed.rights_of(manifest.get_maps(handed_out, "rules"))
        return self.own(*names_of_roles) - self.hearing.used() - given


@asynccontextmanager
async def staged(
    live: LiveCluster, namespace: str, folder: Path, settings: Settings, *, claimed: str = "secrets"
) -> AsyncIterator[Stage]:
    cluster, claims = live.cluster, [{**CREDENTIALS, "resource": claimed}]
    mark = live.audit.mark()
    async with offered(cluster, namespace=namespace, claims=claims) as offer:
        made = with_services_of(offer, deployed.built(folder), claimed=claimed)
        async with (
            deployed.installed(cluster, live.connection, made) as way,
            deployed.heard(way) as (heard, hearing),
        ):
            stage = Stage(live, offer, namespace, made, heard, hearing, mark)
            async with backend(heard, settings, leads=True):
                yield stage
            await given_back(stage)


async def given_back(stage: Stage) -> None:
    lease = await stage.cluster.get(
        Ref(stage.cluster.name, refs.LEASE, names.KLUTCH_NAMESPACE, names.BACKEND_LEASE)
    )
    assert manifest.get_text(lease, "spec", "holderIdentity") == ""
    assert manifest.get_text(lease, "spec", "acquireTime")


async def test_default_mode(control_plane, namespace):
    settings = Settings(export_grace=timedelta())
    await composed.serve_definitions(control_plane)
    async with staged(control_plane, namespace, deployed.FOLDER, settings) as stage:
        async with served_spaces.a_space(stage.cluster, stage.offer) as space:
            await space.served()
            await answered(space)
            for damage in (Damage.emptied, Damage.removed):
                for ref in (binder_role(space), space.role, space.in_space, space.in_home):
                    await served_spaces.damaged_and_repaired(space.cluster, ref, damage)
            for ref in (space.in_space, space.in_home):
                await served_spaces.damaged_and_repaired(space.cluster, ref, Damage.misled)
            quota = space.ref(refs.RESOURCE_QUOTA, names.QUOTA)
            await served_spaces.damaged_and_repaired(space.cluster, quota, Damage.uncounted)
            await no_right_everywhere(space)
            await follows_its_template(space)
            await removal.remove(
                space.cluster, space.ref(api.API_SERVICE_NAMESPACE, served_spaces.APP)
            )
            await served_spaces.gone(space.cluster, space.everywhere(refs.NAMESPACE, space.home))
            await removal.remove(space.cluster, space.everywhere(refs.CRD, stage.offer.name))
            await served_spaces.gone(space.cluster, space.export)
        await recorded_and_counted(stage.way, stage.namespace)
        await applied_again(stage)
        assert stage.refused(space) == set()
    own = "klutch-bind", "klutch-bind-own"
    assert stage.idle(*own, handed_out=rbac.binder_role()) == set()


async def applied_again(stage: Stage) -> None:
    """Apply the rights again: nothing is written, so the aggregated ones are not away a moment."""
    ref = Ref(stage.cluster.name, refs.CLUSTER_ROLE, "", "klutch-bind")
    before = await stage.cluster.get(ref)
    assert deployed.rights_of(manifest.get_maps(before, "rules")) == deployed.aggregated(
        stage.made, names.BACKEND
    )
    await deployed.apply(stage.cluster, [o for o in stage.made if o["kind"] == "ClusterRole"])
    assert await stage.cluster.get(ref) == before


async def test_a_withdrawn_service_whose_data_stay(control_plane, namespace):
    """Its template, its export and the backend's right to list it go before the app namespace."""
    settings = Settings(export_grace=timedelta())
    async with (
        staged(control_plane, namespace, deployed.FOLDER, settings) as stage,
        served_spaces.a_space(stage.cluster, stage.offer) as space,
    ):
        await space.served()
        await noted(space)
        released = stage.offer.instance("orders", namespace=space.home, spec={})
        released = manifest.put(released, {keys.RELEASED: "now"}, "metadata", "annotations")
        await stage.cluster.create(released, stage.offer.kind, manager="tests")
        await withdrawn(stage, space)
        await removal.remove(stage.cluster, space.ref(api.API_SERVICE_NAMESPACE, served_spaces.APP))
        await reported_of(space, "ContentsUnknown")
        home = await space.at(space.everywhere(refs.NAMESPACE, space.home))
        assert home is not None
        assert not manifest.is_deleting(home)


async def noted(space: Space) -> None:
    async def is_noted():
        return space.offer.name in rbac_changes.noted(await space.at(binder_role(space)))

    await eventually(is_noted)


async def withdrawn(stage: Stage, space: Space) -> None:
    cluster, offer = stage.cluster, stage.offer
    await removal.remove(cluster, space.ref(api.API_SERVICE_EXPORT_REQUEST, offer.name))
    for one in (
        await cluster.list(api.API_SERVICE_EXPORT_TEMPLATE, namespace=stage.namespace)
    ).items:
        await removal.remove(
            cluster, manifest.ref_of(cluster.name, api.API_SERVICE_EXPORT_TEMPLATE, one)
        )
    await removal.remove(cluster, space.export)
    await served_spaces.gone(cluster, space.export)
    services = Ref(cluster.name, refs.CLUSTER_ROLE, "", deployed.SERVICES)
    await cluster.merge_patch(services, {"rules": []}, manager="tests")

    async with KubeCluster(stage.way) as as_backend:

        async def refused():
            with contextlib.suppress(Forbidden):
                await as_backend.list(offer.kind, namespace=space.home)
                return False
            return True

        await eventually(refused)


async def reported_of(space: Space, reason: str) -> None:
    async def reported():
        found = (await space.cluster.list(refs.EVENT, namespace="default")).items
        about = {
            manifest.get_text(one, "regarding", "name") for one in found if one["reason"] == reason
        }
        return space.home in about

    await eventually(reported)


def binder_role(space: Space) -> Ref:
    return space.everywhere(refs.CLUSTER_ROLE, names.BINDER)


async def answered(space: Space) -> None:
    request = space.ref(api.API_SERVICE_EXPORT_REQUEST, space.offer.name)

    async def succeeded():
        return manifest.get_text(await space.at(request), "status", "phase") == "Succeeded"

    await eventually(succeeded)


async def no_right_everywhere(space: Space) -> None:
    """Leave a ClusterRoleBinding there as the original does (protocol-bind.md F1)."""
    made = rbac.binding_everywhere(await space.at(space.everywhere(refs.NAMESPACE, space.name)))
    await space.cluster.create(made, refs.CLUSTER_ROLE_BINDING, manager="tests")
    await served_spaces.gone(space.cluster, everywhere(space))


def everywhere(space: Space) -> Ref:
    return space.everywhere(refs.CLUSTER_ROLE_BINDING, names.space_cluster_role(space.name))


async def follows_its_template(space: Space) -> None:
    for claims in ([], [CREDENTIALS]):
        await served_spaces.claim(space.cluster, space.offer, claims)
        resources = [["secrets"], ["databases"]][-1 - len(claims) :]

        async def followed(resources=resources):
            rules = manifest.get_list(await space.at(space.role), "rules")
            return [manifest.get(one, "resources") for one in rules] == resources

        await eventually(followed)


async def test_consumer_scope_cluster(control_plane, namespace):
    settings = Settings(consumer_scope="Cluster")
    # Secrets are not claimed, and what every konnector may do with them is handed out all the same.
    stage_is_set = staged(
        control_plane, namespace, deployed.CLUSTER_SCOPE, settings, claimed="configmaps"
    )
    async with stage_is_set as stage:
        async with served_spaces.a_space(stage.cluster, stage.offer) as space:
            await answered(space)
            await space.has(everywhere(space))
            await space.has(space.in_space)
            for damage in (Damage.emptied, Damage.removed, Damage.misled):
                await served_spaces.damaged_and_repaired(space.cluster, everywhere(space), damage)
        assert stage.refused(space) == set()
    own = "klutch-bind-consumer-scope-cluster"
    assert stage.idle(own, handed_out={}) == set()
    assert stage.own(own) & stage.own("klutch-bind-own") == set()


async def test_a_refusal_for_want_of_a_right_is_reported_from_one_that_came_too_late(
    control_plane, namespace
):
    """In a namespace that is being deleted, a right is not enough; elsewhere none is."""
    async with (
        staged(control_plane, namespace, deployed.FOLDER, Settings()) as stage,
        going(stage, f"{namespace}-going") as space,
        KubeCluster(stage.way) as as_backend,
    ):
        paths = list[tuple[str, str]]()
        for kind in (refs.RESOURCE_QUOTA, refs.CONFIG_MAP):  # it has no right to make the second
            late = build(kind, "late", namespace=space.name)
            with pytest.raises(Forbidden):
                await as_backend.create(late, kind, manager="tests")
            paths.append(("POST", f"/api/v1/namespaces/{space.name}/{kind.plural}"))
        assert stage.hearing.refused() >= set(paths)

        async def counted():
            return stage.refused(space) == {paths[1]}

        await eventually(counted)  # the audit log says how a request ended a little later


@asynccontextmanager
async def going(stage: Stage, name: str) -> AsyncIterator[Space]:
    """Yield a namespace whose deletion waits for an object in it."""
    space = Space(stage.cluster, name, stage.offer)
    where, held = space.everywhere(refs.NAMESPACE, name), space.ref(refs.CONFIG_MAP, "held")
    keeper = manifest.put(
        build(refs.CONFIG_MAP, held.name, namespace=name),
        ["example.com/held"],
        "metadata",
        "finalizers",
    )
    await stage.cluster.create(build(refs.NAMESPACE, name), refs.NAMESPACE, manager="tests")
    try:
        await stage.cluster.create(keeper, refs.CONFIG_MAP, manager="tests")
        await removal.remove(stage.cluster, where)
        yield space
    finally:
        await removal.remove(stage.cluster, where)
        await removal.remove_for_good(stage.live, held)


async def test_front_door(control_plane, namespace):
    """A space is made, its token is lost, and it is made whole; and the keys of the door."""
    settings = Settings(export_grace=timedelta())
    alice = door_spaces.ALICE
    async with staged(control_plane, namespace, deployed.FRONT_DOOR, settings) as stage:
        way = stage.way
        terms = SpaceTerms("cluster-", "Shop Inc", control_plane.connection.server)
        async with (
            KubeCluster(way) as cluster,
            door_spaces.replica(cluster, stage.offer.name, terms) as door,
        ):
            ring = KeyRing(cluster, names.KLUTCH_NAMESPACE, clock=SystemClock())
            keys_of_door = Ref(
                stage.cluster.name, refs.SECRET, names.KLUTCH_NAMESPACE, names.DOOR_KEYS
            )
            await ring.keys()
            review = authorizer.Reviews(cluster, monotonic=SystemClock().monotonic)
            assert not await review.may_bind(alice, door.offer)
            space = await door.bind(alice)
            held = Ref(stage.cluster.name, refs.SECRET, space, names.KUBECONFIG)
            await stage.cluster.merge_patch(held, {"data": {"x": "eA=="}}, manager="tests")
            assert await door.bind(alice) == space
            assert await door_spaces.inside(stage.cluster, space) == door_spaces.COMPLETE
        await removal.remove(stage.cluster, Ref(stage.cluster.name, refs.NAMESPACE, "", space))
        await removal.remove(stage.cluster, keys_of_door)
        refused = {one for one in stage.hearing.refused() if space in one[1] or "door" in one[1]}
        assert refused == set()
    own = "klutch-bind-front-door"
    assert stage.idle(own, handed_out={}) == set()
    assert stage.own(own) & stage.own("klutch-bind-own") == set()


async def an_app_cluster(stage: Stage) -> AppCluster:
    space = names.app_cluster_binding_space(stage.namespace, "shop")
    made = AppCluster(Space(stage.cluster, space, stage.offer), stage.namespace)
    secret = build(
        refs.SECRET,
        made.source.name,
        namespace=stage.namespace,
        stringData={names.KUBECONFIG: kubeconfig("default")},
    )
    await stage.cluster.create(secret, refs.SECRET, manager="tests")
    return made


async def test_control_plane_mode(control_plane, namespace):
    settings = Settings(control_plane_mode=True, konnector_image_prefixes=(REGISTRY,))
    async with staged(control_plane, namespace, deployed.CONTROL_PLANE_MODE, settings) as stage:
        app = await an_app_cluster(stage)
        await app.bind()
        await repaired(app)
        await follows_its_binding(app)
        await released_and_taken_up_again(app)
        await deleted_with_its_data(app)
        assert stage.refused(app.space) == set()
    own = "klutch-bind-control-plane-mode"
    assert stage.idle(own, handed_out=rbac.control_plane_role(app.space.name)) == set()
    assert stage.own(own) & stage.own("klutch-bind-own") == set()


async def repaired(app: AppCluster) -> None:
    space, connector = app.space, names.CONTROL_PLANE_CONNECTOR
    role, binding = space.ref(refs.ROLE, connector), space.ref(refs.ROLE_BINDING, connector)
    for ref in (role, binding):
        await served_spaces.damaged_and_repaired(space.cluster, ref, Damage.emptied)
        await served_spaces.damaged_and_repaired(space.cluster, ref, Damage.removed)
    for ref in (binding, space.in_space):
        await served_spaces.damaged_and_repaired(space.cluster, ref, Damage.misled)
    unlabelled: Manifest = {"metadata": {"labels": None}}
    for ref in (space.binding, space.ref(api.API_SERVICE_BINDING, space.offer.name)):
        await app.keeps(ref, unlabelled)
    await app.keeps(space.ref(refs.SECRET, app.source.name), unlabelled)
    await removal.remove(space.cluster, space.ref(refs.SECRET, app.source.name))
    await space.has(space.ref(refs.SECRET, app.source.name))


async def follows_its_binding(app: AppCluster) -> None:
    """Another image, no konnector, and one again."""

    async def image():
        containers = ("spec", "template", "spec", "containers", 0, "image")
        return manifest.get_text(await app.space.at(app.deployment), *containers)

    for konnector, wanted in (
        ({"overrides": {"image": "registry.example.com/k:2"}}, "registry.example.com/k:2"),
        ({"deploy": False}, ""),
        ({"deploy": True}, "registry.example.com/k:2"),
    ):
        await app.space.patch(app.ref, {"spec": {"konnector": konnector}})

        async def followed(wanted=wanted):
            return await image() == wanted

        await eventually(followed)


async def released_and_taken_up_again(app: AppCluster) -> None:
    """Delete it, which keeps the space, where an older backend has left its roles; make it anew."""
    space = app.space
    name = names.legacy_konnector_cluster_role(app.namespace, "shop")
    to = {"apiGroup": refs.CLUSTER_ROLE.group, "kind": refs.CLUSTER_ROLE.kind, "name": name}
    left = [
        (refs.CLUSTER_ROLE, build(refs.CLUSTER_ROLE, name, rules=[])),
        (
            refs.CLUSTER_ROLE_BINDING,
            build(refs.CLUSTER_ROLE_BINDING, name, roleRef=to, subjects=[]),
        ),
    ]
    for kind, made in left:
        await space.cluster.create(made, kind, manager="tests")
    await app.unbind()
    for kind, _ in left:
        assert await space.at(space.everywhere(kind, name)) is None
    assert await space.at(space.ref(refs.SECRET, app.source.name)) is None
    home = space.everywhere(refs.NAMESPACE, space.name)
    said = manifest.annotations_of(await space.at(home))
    assert keys.RELEASED in said
    # A person says that it is the same tenant's.
    notes: Manifest = {keys.CONFIRM_SPACE: said[keys.APP_CLUSTER_BINDING_UID]}
    await space.patch(home, {"metadata": {"annotations": notes}})
    await app.bind()

    async def taken_up():
        return keys.RELEASED not in manifest.annotations_of(await space.at(home))

    await eventually(taken_up)


async def deleted_with_its_data(app: AppCluster) -> None:
    space = app.space
    await space.make(api.API_SERVICE_NAMESPACE, served_spaces.APP)
    await space.served()
    policy: Manifest = {"metadata": {"annotations": {keys.DELETION_POLICY: "Delete"}}}
    await space.patch(app.ref, policy)
    await app.unbind()
    for name in (space.name, space.home):
        await served_spaces.gone(space.cluster, space.everywhere(refs.NAMESPACE, name))

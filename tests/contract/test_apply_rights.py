"""`klutchctl apply` on real clusters with exactly the roles that klutchctl prints for it."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from klutchctl import repository
from reconciler.api import APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.blueprints.objects import Marks, build, ownership_labels
from reconciler.controller.lease import micro
from reconciler.controller.tasks import now_here
from reconciler.core import keys, names, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import JSON, Manifest, annotations_of, get_list, get_text, is_deleting
from reconciler.doctor import rights
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.values import Mode
from reconciler.kube.client import KubeCluster
from tests.support import removal
from tests.support.apply_runs import inhabit, staged
from tests.support.applying import Scene
from tests.support.clusters import AuditLog, LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.role_holders import as_holder, kubeconfig, role_holder

BIND = names.KLUTCH_NAMESPACE


OWNERS = ("metadata", "ownerReferences")
KONNECTOR = "deploy: true, image: registry.example.com/konnector:1, rbac: Full"


@dataclass(frozen=True, slots=True)
class Held:
    """A scene on which klutchctl runs as the holders of the roles, and these as clients."""

    scene: Scene
    plane: KubeCluster
    app: KubeCluster
    marks: Sequence[tuple[AuditLog, int]]

    def refused(self) -> list[tuple[str, str]]:
        """Return (verb, URI) of all writes that were refused to a holder."""
        user = f"system:serviceaccount:{BIND}:{rights.account(self.scene.fleet.name, Task.APPLY)}"
        return [
            (event["verb"], event["requestURI"])
            for audit, mark in self.marks
            for event in audit.events_since(mark)
            if event["user"]["username"] == user
            and event.get("responseStatus", {}).get("code") == 403
        ]


CASES = {
    "direct": (Mode.DIRECT, ""),
    "konnector": (Mode.DIRECT, KONNECTOR),
    "acb": (Mode.APP_CLUSTER_BINDING, ""),
}
WIDE = pytest.mark.parametrize("scene", [(Mode.DIRECT, "", "Cluster")], indirect=True)


def only(*names: str, soak: Collection[str] = ()) -> pytest.MarkDecorator:
    """Let a test have these cases alone, and some of them in `make soak`."""
    cases = [
        pytest.param(CASES[one], id=one, marks=pytest.mark.soak if one in soak else ())
        for one in names
    ]
    return pytest.mark.parametrize("scene", cases, indirect=True)


@asynccontextmanager
async def holding(scene: Scene, folder: Path) -> AsyncIterator[Held]:
    """Make the roles for the fleet as it is described now, and run klutchctl with nothing else."""
    scene.fleet.write()
    fleet = repository.fleet_in(scene.fleet.folder, check_owner=False)
    lives = {Side.CONTROL_PLANE: scene.plane, Side.APP_CLUSTER: scene.app}
    async with AsyncExitStack() as stack:
        tokens: dict[LiveCluster, str] = {}
        for side, live in lives.items():
            holder = role_holder(live, fleet, Task.APPLY, side)
            tokens[live] = await stack.enter_async_context(holder)
        admin, scene.kubeconfig = scene.kubeconfig, kubeconfig(folder, tokens)
        plane, app = [
            await stack.enter_async_context(as_holder(live, tokens[live]))
            for live in lives.values()
        ]
        yield Held(scene, plane, app, [(live.audit, live.audit.mark()) for live in lives.values()])
        scene.kubeconfig = admin


@pytest.fixture(params=[*CASES.values()], ids=[*CASES])
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    mode, konnector, *scope = request.param
    more = {"scope": scope[0]} if scope else {}
    folder = tmp_path / "fleet"
    folder.mkdir()
    made = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=folder, **more)
    async with made as scene:
        # A name of digits alone would be a number in YAML.
        scene.fleet.name, scene.fleet.konnector = f"f{scene.fleet.name}", konnector
        yield scene
        for kind, name in (
            (refs.DEPLOYMENT, names.KONNECTOR),
            (refs.SERVICE_ACCOUNT, names.KONNECTOR),
            (refs.CLUSTER_ROLE, names.KONNECTOR_CLUSTER_ROLE),
            (refs.CLUSTER_ROLE_BINDING, names.KONNECTOR_CLUSTER_ROLE),
        ):
            place = BIND if kind.namespaced else ""
            await removal.remove(app_cluster.cluster, refs.Ref(app_cluster.name, kind, place, name))


@only("direct", "konnector", "acb", soak=["direct", "acb"])
async def test_a_fleet_is_bound_repaired_released_and_bound_again(scene, tmp_path):
    async with holding(scene, tmp_path) as held, scene.peers():
        first = await scene.apply("--wait")
        assert {status for status, _, _ in first.statuses} == {"done"}
        marks = [live.audit.mark() for live in (scene.plane, scene.app)]
        second = await scene.apply("--wait")
        assert second.statuses == []
        for live, mark in zip((scene.plane, scene.app), marks, strict=True):
            assert [w for w in live.audit.writes_since(mark) if w.agent == "klutchctl"] == []
        claim, copy = await inhabit(scene)

        await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
        await scene.apply()
        assert len(get_list(await scene.at(scene.binding), "spec", "permissionClaims")) == 1

        scene.fleet.bound = False
        run = await scene.apply()
        assert ("done", "release") in [one[:2] for one in run.statuses]
        assert keys.RELEASED in annotations_of(await scene.at(copy))
        assert await scene.at(claim) is not None
        scene.fleet.bound = True
        await scene.apply("--wait")
        assert await scene.lines() == []
        # An owner, for which these servers want `delete` on the CRD: the konnector gave it.
        owner = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{scene.offer.name}"
        assert {(verb, uri.partition("?")[0]) for verb, uri in held.refused()} == {("patch", owner)}


@only("konnector")
async def test_a_konnector_gets_another_image_and_fewer_rights(scene, tmp_path):
    async with holding(scene, tmp_path) as held, scene.peers():
        await scene.apply()
        scene.fleet.konnector = KONNECTOR.replace(":1", ":2").replace("Full", "Minimal")
        run = await scene.apply()
        assert {("done", "update", one) for one in ("ClusterRole", "Deployment")} == {*run.statuses}
        assert await scene.lines() == []
        assert held.refused() == []


@only("konnector", "acb", soak=["konnector"])
async def test_a_cluster_leaves(scene, tmp_path):
    async with holding(scene, tmp_path) as held, scene.peers():
        await scene.apply("--wait")
        await inhabit(scene)
        scene.fleet.listed = False
        run = await scene.apply()
        assert {one[:2] for one in run.statuses} <= {("done", "release"), ("done", "update")}
        assert keys.RELEASED in annotations_of(await scene.at(scene.home_of_units))
        assert await scene.lines() == []
        assert held.refused() == []


@WIDE
async def test_owners_that_may_not_be_changed_stop_a_release(scene, tmp_path):
    kind, name = scene.offer.kind, names.copy_name(scene.space, "db")
    copy = refs.Ref(scene.plane.name, kind, "", name)
    async with holding(scene, tmp_path):
        async with scene.peers():
            await scene.apply("--wait")
            await scene.app.cluster.create(scene.offer.instance("db", spec={}), kind, manager="dev")
            before = await eventually(lambda: scene.at(copy))
        scene.fleet.listed = False
        run = await scene.apply("--force", code=None)
        unit, *_ = run.report["outcomes"]
        assert "cannot set an ownerRef" in unit["message"]
        assert "done" not in {one["status"] for one in run.report["outcomes"]}
        for ref in (copy, scene.home):
            live = await scene.at(ref)
            assert (keys.RELEASED in annotations_of(live), is_deleting(live)) == (False, False)
        assert get_list(await scene.at(copy), *OWNERS) == get_list(before, *OWNERS) != []
    await scene.apply()  # as an administrator
    after = await scene.at(copy)
    assert (keys.RELEASED in annotations_of(after), get_list(after, *OWNERS)) == (True, [])
    assert keys.RELEASED in annotations_of(await scene.at(scene.home))


@only("acb", "direct", soak=["direct"])
async def test_an_apply_goes_on_beside_what_a_tenant_labels_as_ours(scene, tmp_path):
    """T1, T6: both objects name a Secret that the role may not list."""
    place, mine = {"namespace": scene.app_namespace}, {"name": "mine", "key": names.KUBECONFIG}
    exports: JSON = [{"group": scene.fleet.group, "resource": "databases"}]
    spec: Manifest = {"kubeconfigSecretRef": {**place, **mine}, "apiExports": exports}
    marks = Marks(ownership_labels(scene.fleet.name, "shop"))
    forged = build(APP_CLUSTER_BINDING, "evil", **place, marks=marks, spec=spec)
    async with holding(scene, tmp_path) as held:
        async with scene.peers():
            await scene.apply("--wait")
        await scene.plane.cluster.create(forged, APP_CLUSTER_BINDING, manager="tenant")
        odd: Manifest = {"kubeconfigSecretRef": {**mine}, "providerPrettyName": "theirs"}
        theirs = build(CLUSTER_BINDING, names.CLUSTER_BINDING, **place, spec=odd)
        await scene.plane.cluster.create(theirs, CLUSTER_BINDING, manager="tenant")
        try:
            await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
            run = await scene.apply()
            assert [one[:2] for one in run.statuses] == [("done", "update")]
            plan = await scene.klutchctl("plan", str(scene.fleet.folder))
            assert f"{scene.app_namespace}/evil" in plan.stdout
            assert held.refused() == []
        finally:
            for kind, name in (
                (APP_CLUSTER_BINDING, "evil"),
                (CLUSTER_BINDING, names.CLUSTER_BINDING),
            ):
                evil = refs.Ref(scene.plane.name, kind, scene.app_namespace, name)
                await removal.remove_for_good(scene.plane, evil)


@only("direct", "acb", soak=["direct"])
async def test_a_service_is_deleted_and_its_secrets_are_the_konnectors(scene, tmp_path):
    scene.fleet.policy = "Delete"
    scene.fleet.prune += ", keepIfInUse: false, onClusterLeave: Delete"
    async with holding(scene, tmp_path) as held, scene.peers():
        await scene.apply("--wait")
        _, copy = await inhabit(scene)
        origin = build(refs.SECRET, "credentials", namespace=scene.service_namespace)
        await scene.plane.cluster.create(origin, refs.SECRET, manager="provider")
        down = refs.Ref(scene.app.name, refs.SECRET, scene.app_namespace, "credentials")
        await eventually(lambda: scene.at(down))
        scene.fleet.bound = False
        run = await scene.apply()
        (line,) = [one for one in run.report["outcomes"] if one["action"] == "delete"]
        assert line["status"] == "done", run.stdout
        assert line["message"] == ""
        for ref in (scene.binding, scene.export, scene.crd, copy):
            assert await scene.is_gone(ref), ref
        # Only a binding that says so itself is undone by the konnector, with what came down.
        assert await scene.is_gone(down) is (scene.fleet.mode is Mode.DIRECT)
        assert await scene.lines() == []
        assert held.refused() == []


@only("direct")
async def test_the_lock_is_given_back_and_may_be_broken(scene, tmp_path):
    async with holding(scene, tmp_path) as held, scene.peers():
        await scene.apply()
        lease = refs.Ref(scene.plane.name, refs.LEASE, BIND, names.lock_lease(scene.fleet.name))
        assert get_text(await scene.at(lease), "spec", "holderIdentity") == ""
        renewed = micro(now_here() + timedelta(seconds=10))
        other = {"holderIdentity": "other", "renewTime": renewed}
        await scene.plane.cluster.merge_patch(lease, {"spec": other}, manager="tests")
        scene.fleet.claims = ", claims: []"
        refused = await scene.apply(code=8)
        assert "other" in refused.stderr
        await scene.apply("--break-lock")
        found = await scene.plane.cluster.list(refs.EVENT, namespace=BIND)
        reported = [get_text(one, "note") for one in found.items]
        assert [one for one in reported if one.endswith("took the lock over from other")]
        assert held.refused() == []


async def test_a_doctor_misses_no_right_and_no_secret_of_others_is_read(scene, tmp_path):
    left = refs.Ref(scene.plane.cluster.name, refs.LEASE, BIND, names.BACKEND_LEASE)
    await removal.remove(scene.plane.cluster, left)  # of the backend of another test
    async with holding(scene, tmp_path) as held:
        run = await scene.klutchctl("doctor", str(scene.fleet.folder), "-o", "json")
        assert run.code == 0, run.stdout + run.stderr
        # No backend runs there, of which it warns until another test has had an export made.
        found = [each for one in run.report["clusters"] for each in one["findings"]]
        assert {each["check"] for each in found if each["level"] != "ok"} <= {"agents"}
        for cluster in (held.plane, held.app):
            for place in ("", "default"):
                with pytest.raises(Forbidden):
                    await cluster.list(refs.SECRET, namespace=place)
            with pytest.raises(Forbidden):
                await cluster.get(refs.Ref(cluster.name, refs.SECRET, "default", "own"))
        with pytest.raises(Forbidden):
            await held.plane.list(refs.SECRET, namespace=BIND)


@only("direct", "acb", soak=["direct"])
async def test_a_space_stays_where_a_service_may_not_be_looked_for(scene, tmp_path):
    scene.fleet.prune += ", onClusterLeave: Delete"
    clusters = scene.plane.cluster, scene.app.cluster
    async with (
        offered(*clusters, namespace=scene.app_namespace) as other,
        holding(scene, tmp_path),
        scene.peers(),
    ):
        await scene.apply("--wait")
        claim, copy = await inhabit(scene)
        await removal.remove(scene.app.cluster, claim)
        await eventually(lambda: scene.is_gone(copy))
        scene.fleet.listed = False
        run = await scene.apply(code=5)
        (line,) = [one for one in run.report["outcomes"] if one["status"] != "done"]
        assert line["status"] == "failed"
        assert f"{other.name} is forbidden" in line["message"]
        assert await scene.at(scene.home_of_units) is not None

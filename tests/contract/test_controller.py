"""`klutchctl controller` on real clusters, with backend and konnector at work."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pygit2
import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import Ref
from tests.support.apply_runs import mode, scene
from tests.support.checkouts import commit_work_tree
from tests.support.controllers import HOME, OFTEN, bound_with, controller, deeds, files, writes_of
from tests.support.eventually import eventually
from tests.support.fleet_states import kstatus
from tests.support.role_holders import operator
from tests.support.signing import ALICE, ed25519, signed_commit

__all__ = ["files", "mode", "scene"]

IDLE = 'rounds_total{result="nothing",trigger="drift"}'
DRIFT: Manifest = {"spec": {"permissionClaims": []}}


async def shows(running, *path, value):
    async def probe():
        found = await running.status()
        for key in path:
            found = found.get(key, {})
        return found == value

    await eventually(probe)


async def explains(running, *texts):
    """Wait until `kubectl get fst -o wide` says why a commit is not used."""

    async def probe():
        found = await running.condition("Ready")
        refused = (found.get("status"), found.get("reason")) == ("False", "SourceUnverified")
        return refused and all(one in found["message"] for one in texts)

    await eventually(probe)


@pytest.fixture
async def another(scene, files, tmp_path):
    """Another operator, for a second controller: its kubeconfig and its name in audit logs."""
    async with operator((scene.plane, scene.app), tmp_path) as somebody:
        yield somebody


async def test_a_leader_that_is_killed_in_an_apply_is_followed_by_one_that_ends_it(
    scene, files, another
):
    """Without peers, the round of the first waits for an export when it dies."""
    files.push()
    first_user = scene.user
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(controller(scene, files, *OFTEN))
        await first.leads()
        second = await stack.enter_async_context(
            controller(scene, files, *OFTEN, kubeconfig=another.kubeconfig)
        )

        async def stands_by():
            return await second.get("/readyz") == (
                503,
                "another process is the leader, or its lease has not expired\n",
            )

        await eventually(lambda: scene.at(scene.request))
        await eventually(stands_by)
        marks = scene.marks()
        assert await first.end(signal.SIGKILL) == -9
        await stack.enter_async_context(scene.peers())
        await second.leads()
        await bound_with(scene, 1)
        assert await second.end() == 143
        users = [one.user for one in writes_of(marks, {first_user, another.user})]
        assert users == sorted(users, key=[first_user, another.user].index)
        assert another.user in users
    assert await scene.lines() == []


def committed(files, signer, *, parents=None, seconds=0):
    """Push a commit of the files as they are; None signs nothing."""
    files.scene.fleet.write()
    content = (files.scene.fleet.folder / "fleet.yaml").read_bytes()
    git = pygit2.Repository(str(files.bare))
    return signed_commit(git, {"fleet.yaml": content}, signer, parents=parents, note=str(seconds))


async def test_what_is_not_signed_is_not_written_and_the_status_says_why(scene, files, tmp_path):
    key, ended, early = ed25519(1), ed25519(2), ed25519(3)
    listed = [key.line, f'valid-before="20240101Z" {ended.line}']
    listed.append(f'valid-after="20990101Z" {early.line}')
    (tmp_path / "signers").write_text("".join(f"{ALICE} {one}\n" for one in listed))
    signers = ("--allowed-signers", str(tmp_path / "signers"))
    trust = ("--verify", "history", "--fleet", scene.fleet.name, *signers)
    first = committed(files, key)
    async with scene.peers():
        async with controller(scene, files, *OFTEN, *trust) as running:
            await bound_with(scene, 1)

            def refused(sentence):
                found = running.lines("the files are unusable: no cluster is changed")
                return any(sentence in one["why"] for one in found)

            scene.fleet.claims = ", claims: []"
            late = committed(files, ended)  # dated to when the key was good
            over = f"was valid before 2024-01-01T00:00:00+00:00: {ended.fingerprint}"
            await eventually(lambda: refused(over))
            marks = scene.marks()
            await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="someone")
            await explains(running, late[:12], ALICE, over)
            committed(files, early, parents=[first])
            to_come = f"is valid only after 2099-01-01T00:00:00+00:00: {early.fingerprint}"
            await eventually(lambda: refused(to_come))
            unsigned = committed(files, None, parents=[first])
            await eventually(lambda: refused("it has no signature"))
            committed(files, key)
            await eventually(lambda: refused(f"{unsigned[:12]}, which leads to it, is not"))
            # A signed commit that does not descend from the last accepted one is a roll-back.
            other = committed(files, key, parents=[], seconds=1)
            await eventually(lambda: refused(other[:12]))

            await explains(running, other[:12], "history was rewritten or rolled back")
            await shows(running, "status", "source", "revision", value=first)
            assert deeds(scene, marks) == []
        # What was accepted is known to the next process, too.
        async with controller(scene, files, *OFTEN, *trust) as running:
            await running.leads()
            await eventually(lambda: running.lines("the files are unusable: no cluster is changed"))
            assert deeds(scene, marks) == []


async def test_a_status_is_ready_for_a_commit_only_once_that_was_looked_at(scene, files):
    """Flux applies a FleetStatus that names the tree of a commit, at times before we look at it."""
    plane = scene.plane
    status = Ref(plane.name, FLEET_STATUS, HOME, scene.fleet.name)

    async def asks(tree):
        body: Manifest = {
            "apiVersion": FLEET_STATUS.api_version,
            "kind": FLEET_STATUS.kind,
            "metadata": {"name": status.name, "namespace": HOME},
            "spec": {"files": str(tree)},
        }
        await plane.cluster.apply(body, FLEET_STATUS, manager="flux", force=True)

    async def reads(running, want, tree):
        async def probe():
            live = await running.status()
            looked = get_text(live, "status", "source", "looked", "files")
            return looked == str(tree) and kstatus(live) == want and live

        return await eventually(probe)

    first = files.push()
    git = pygit2.Repository(str(files.bare))
    await asks(git[first].tree.id)
    async with scene.peers(), controller(scene, files, *OFTEN) as running:
        leader = Leader(scene, running)
        await reads(running, "Current", git[first].tree.id)
        # The next one is asked for before its commit is there: what is shown is about the first.
        scene.fleet.claims = ", claims: []"
        scene.fleet.write()
        work_tree = pygit2.Repository(str(scene.fleet.folder))
        commit_work_tree(work_tree)
        tree = work_tree.head.peel(pygit2.Commit).tree.id
        await asks(tree)
        await leader.rounds(3)
        await reads(running, "InProgress", git[first].tree.id)
        assert (await running.condition("Ready"))["status"] == "True"
        second = files.send(work_tree)
        live = await reads(running, "Current", tree)
        assert live["status"]["source"]["looked"] == {"revision": second, "files": str(tree)}
        # One that is no fleet is Failed at once, by its name; the one before stays in use.
        broken = signed_commit(git, {"fleet.yaml": b"kind: ["})
        await asks(git[broken].tree.id)
        live = await reads(running, "Failed", git[broken].tree.id)
        source = live["status"]["source"]
        assert (source["revision"], source["refused"]) == (second, broken)
        assert source["looked"]["revision"] == broken


class Leader:
    """A controller that leads, over a fleet that is in place."""

    def __init__(self, scene, running):
        self.scene, self.running = scene, running

    async def rounds(self, number):
        """Wait until so many rounds have found nothing to do."""
        before = await self.running.metric(IDLE)

        async def made():
            return await self.running.metric(IDLE) >= before + number

        await eventually(made)

    async def drifts(self):
        await self.scene.app.cluster.merge_patch(self.scene.binding, DRIFT, manager="argocd")

    async def suspend(self, reason):
        """Annotate the FleetStatus, None takes that away."""
        plane = self.scene.plane
        status = Ref(plane.name, FLEET_STATUS, HOME, self.scene.fleet.name)
        patch: Manifest = {"metadata": {"annotations": {keys.SUSPEND: reason}}}
        await plane.cluster.merge_patch(status, patch, manager="kubectl")

    async def rests(self):
        """See it renew its Lease, and write nothing else."""
        marks = self.scene.marks()
        await self.rounds(3)
        await eventually(lambda: len(self.scene.writes(marks)) >= 2)
        assert {one.resource for one in self.scene.writes(marks)} == {"leases"}

    async def heeds_a_suspension(self):
        await self.suspend("a migration")

        async def is_suspended():
            _, text = await self.running.get("/metrics")
            return 'klutchctl_units{control_plane="eu",state="Suspended"} 1.0' in text

        await eventually(is_suspended)
        marks = self.scene.marks()
        await self.drifts()
        await self.rounds(3)
        assert deeds(self.scene, marks) == []
        await self.suspend(None)
        await bound_with(self.scene, 1)

    async def calms_a_storm(self):
        """See what somebody changes back again and again rest; it was repaired once before."""
        await self.drifts()
        await bound_with(self.scene, 1)
        await self.drifts()

        def rests():
            rounds = self.running.lines("a round ended")
            held = [one["why"] for one in rounds if "held: storm" in str(one)]
            return held and "was changed back by argocd after each of 2 repairs" in held[0]

        await eventually(rests)
        await bound_with(self.scene, 0)

    async def ends_without_its_lease(self):
        plane = self.scene.plane
        lease = Ref(plane.name, refs.LEASE, HOME, names.controller_lease(self.scene.fleet.name))
        taken: Manifest = {"spec": {"holderIdentity": "somebody"}}
        await plane.cluster.merge_patch(lease, taken, manager="someone")
        async with asyncio.timeout(60):
            assert await self.running.process.wait() == 8
        (lost,) = self.running.lines("the lease was lost")
        assert "another holder took it over" in lost["why"]


async def test_a_leader_rests_heeds_a_suspension_calms_a_storm_and_ends_without_its_lease(
    scene, files
):
    """One controller for all of it, since to start one and to be shown takes longer than each."""
    files.push()
    async with scene.peers(), controller(scene, files, *OFTEN, "--storm", "2/1h") as running:

        async def is_shown_ready():
            return (await running.condition("Ready")).get("status") == "True"

        await eventually(is_shown_ready)
        leader = Leader(scene, running)
        await leader.rests()
        await leader.heeds_a_suspension()
        await leader.calms_a_storm()
        await leader.ends_without_its_lease()

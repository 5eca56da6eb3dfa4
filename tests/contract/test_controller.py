"""`klutchctl controller` on real clusters, with backend and konnector at work."""

import asyncio
import json
import signal
import time
import urllib.request
from contextlib import AsyncExitStack

import pygit2
import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, get_list
from reconciler.core.refs import Ref
from tests.support import webhooks
from tests.support.apply_runs import mode, scene
from tests.support.controllers import HOME, controller, deeds, forget, repository, writes_of
from tests.support.eventually import eventually
from tests.support.role_holders import operator
from tests.support.signing import ALICE, ed25519, signed_commit
from tests.support.sink_server import SinkServer
from tests.support.watching import fetch

__all__ = ["mode", "scene"]

SELDOM = ("--poll", "600", "--interval", "600")
OFTEN = ("--poll", "0.5", "--interval", "1")
IDLE = 'rounds_total{result="nothing",trigger="drift"}'
DRIFT: Manifest = {"spec": {"permissionClaims": []}}


@pytest.fixture
async def files(scene, tmp_path):
    """The repository of a scene, and an operator whose writes are known by name."""
    async with operator((scene.plane, scene.app), tmp_path) as somebody:
        scene.kubeconfig, scene.user = somebody
        scene.fleet.folder = tmp_path / "fleet"
        scene.fleet.folder.mkdir()
        with repository(scene, tmp_path) as found:
            yield found
        await forget(scene)


def bound_with(scene, number):
    async def probe():
        bound = await scene.at(scene.binding)
        return bound is not None and len(get_list(bound, "spec", "permissionClaims")) == number

    return eventually(probe)


def notify(folder, host):
    """Return the option that has commit statuses sent to a host."""
    status = f"{{provider: gitea, repository: acme/fleet, tokenFile: secret, api: '{host.url}'}}"
    head = "apiVersion: notify.klutchctl.dev/v1alpha1\nkind: Notify\n"
    sinks = f"sinks: [{{name: host, commitStatus: {status}}}]\n"
    (folder / "notify.yaml").write_text(head + sinks)
    return "--notify", str(folder / "notify.yaml")


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


async def test_a_push_is_in_place_within_seconds_and_silence_writes_nothing(scene, files, tmp_path):
    files.push()
    (tmp_path / "secret").write_text(webhooks.KEY)
    hook = ("--hooks", "127.0.0.1:0", "--hook", f"push=github:{tmp_path / 'secret'}")
    board = ("--board", "127.0.0.1:0")
    async with (
        scene.peers(),
        SinkServer() as host,
        controller(scene, files, *SELDOM, *hook, *board, *notify(tmp_path, host)) as running,
    ):
        await bound_with(scene, 1)
        await eventually(lambda: running.lines("a round"))
        page = await running.where("the board is served") + "/status.json"

        async def shows_it_ready():
            found = json.loads((await asyncio.to_thread(fetch, page))[1])
            return [u["state"] for c in found["clusters"] for u in c["units"]] == ["Ready"]

        await eventually(shows_it_ready)
        scene.fleet.claims = ", claims: []"
        commit = files.push()
        began = time.monotonic()
        url = await running.where("webhooks are received") + "/hooks/push"
        called = urllib.request.Request(url, webhooks.BODY, webhooks.github())
        assert (await asyncio.to_thread(urllib.request.urlopen, called)).status == 202
        await bound_with(scene, 0)
        assert time.monotonic() - began < 5
        await eventually(lambda: host.received[-1].json["state"] == "success")
        assert host.received[-1].path == f"/repos/acme/fleet/statuses/{commit}"
        assert await running.end() == 143
    assert await scene.lines() == []


async def test_when_idle_only_the_lease_is_renewed(scene, files):
    files.push()
    async with scene.peers(), controller(scene, files, *OFTEN) as running:

        async def is_shown_ready():
            return (await running.condition("Ready")).get("status") == "True"

        await eventually(is_shown_ready)
        marks, rounds = scene.marks(), await running.metric(IDLE)

        async def has_looked_and_renewed():
            made = await running.metric(IDLE)
            renewals = [one for one in scene.writes(marks) if one.resource == "leases"]
            return made >= rounds + 5 and len(renewals) >= 3

        await eventually(has_looked_and_renewed)
        assert {one.resource for one in scene.writes(marks)} == {"leases"}
        assert await running.end() == 143


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

        async def created():
            return await scene.at(scene.request)

        async def stands_by():
            return await second.get("/readyz") == (
                503,
                "another process leads, or its lease has not run out\n",
            )

        await eventually(created)
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


async def test_a_leader_whose_lease_is_taken_ends(scene, files):
    files.push()
    async with scene.peers(), controller(scene, files, *SELDOM) as running:
        await running.leads()
        plane = scene.plane
        lease = Ref(plane.name, refs.LEASE, HOME, names.controller_lease(scene.fleet.name))
        taken: Manifest = {"spec": {"holderIdentity": "somebody"}}
        await plane.cluster.merge_patch(lease, taken, manager="someone")
        async with asyncio.timeout(60):
            assert await running.process.wait() == 8
        (lost,) = running.lines("the lease was lost")
        assert "another holder took it over" in lost["why"]


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
                found = running.lines("the files cannot be used; nothing is changed")
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
            await eventually(lambda: running.lines("the files cannot be used; nothing is changed"))
            assert deeds(scene, marks) == []


async def test_nothing_is_written_while_the_status_says_that_the_fleet_is_suspended(scene, files):
    files.push()
    async with scene.peers(), controller(scene, files, *OFTEN) as running:
        await bound_with(scene, 1)
        await eventually(running.status)
        status = Ref(scene.plane.name, FLEET_STATUS, HOME, scene.fleet.name)
        patch: Manifest = {"metadata": {"annotations": {keys.SUSPEND: "a migration"}}}
        await scene.plane.cluster.merge_patch(status, patch, manager="someone")

        async def is_suspended():
            _, text = await running.get("/metrics")
            return 'klutchctl_units{control_plane="eu",state="Suspended"} 1.0' in text

        await eventually(is_suspended)
        marks = scene.marks()
        await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="someone")
        rounds = await running.metric(IDLE)

        async def has_looked():
            return await running.metric(IDLE) >= rounds + 3

        await eventually(has_looked)
        assert deeds(scene, marks) == []


async def test_what_somebody_changes_back_again_and_again_rests(scene, files):
    files.push()
    storm = ("--storm", "2/1h")
    async with scene.peers(), controller(scene, files, *OFTEN, *storm) as running:
        for _ in range(2):
            await bound_with(scene, 1)
            await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="argocd")
        await bound_with(scene, 1)
        await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="argocd")

        async def rests():
            held = [one for one in running.lines("a round") if "held: storm" in one.get("why", "")]
            return held and "was changed back by argocd after each of 2 repairs" in held[0]["why"]

        await eventually(rests)
        await bound_with(scene, 0)

"""`klutchctl controller` on models of clusters: what it leaves alone."""

import asyncio
from contextlib import asynccontextmanager

import pygit2
import pytest

from klutchctl import main
from klutchctl.controller import program, rounds, sources, work
from klutchctl.controller.options import Home, Options
from klutchctl.controller.program import Controller
from klutchctl.controller.sources import Followed
from klutchctl.controller.storms import Terms
from klutchctl.sandbox.state import Role
from klutchctl.settings import Settings
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.blueprints.objects import build
from reconciler.controller import lease, process
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Ref
from reconciler.source import artifact
from reconciler.source.following import GitRef, Looked, git_url
from reconciler.source.signature import VerificationMode
from reconciler.source.verification import Verification
from reconciler.watch.fleet_state import SourceProblem
from reconciler.watch.fleet_status.writer import UNREAD
from tests.kit import virtual_time
from tests.kit.clusters import live_model
from tests.support import flux
from tests.support.apply_runs import mode, scene
from tests.support.checkouts import commit_work_tree
from tests.support.conformance import crd_of
from tests.support.eventually import eventually
from tests.support.fleet_states import COMMIT
from tests.unit.source.test_archive import packed

__all__ = ["mode", "scene"]

HOUR, INTERVAL = 3600, 300  # seconds
HOME = "default"  # the namespace of Lease and FleetStatus
OURS = "klutchctl"  # the User-Agent
ROUNDS = "klutchctl_watch_rounds_total"
IDLE = {"result": "nothing", "trigger": "drift"}


@pytest.fixture(autouse=True)
def followed(monkeypatch):
    """Let controllers follow a repository on disk, and live by the clock of the models."""

    class Server(GitRef):
        looked = Looked()

    @asynccontextmanager
    async def server(source, *_, **__):
        yield Server(source.path, "main", check_owner=False, every=source.poll)

    for module in (program, work):
        monkeypatch.setattr(module, "server", server)
    for module in (program, work, rounds):
        monkeypatch.setattr(module, "now_here", virtual_time.now)
    # In a thread of its own, the clock would not jump.
    monkeypatch.setattr(lease, "in_thread", lambda work, *, name: work())


@asynccontextmanager
async def controller(scene, home, source=None):
    """Run the program, but for its signals and its Git server; yield its parts."""
    scene.fleet.write()
    commit_work_tree(pygit2.init_repository(scene.fleet.folder, initial_head="main"))
    url = git_url("https://git.example.com/fleet.git", where="--git")
    options = Options(
        source=source or Followed(path=scene.fleet.folder, url=url, ref="main", poll=30.0),
        verification=Verification(VerificationMode.OFF, None, None, virtual_time.now),
        home=home,
        fleet=scene.fleet.name,
        shard=(),
        interval=INTERVAL,
        wait_timeout=120.0,
        storms=Terms(),
        listen=None,
        board=None,
        hooks=None,
        sinks=(),
    )
    parts = program._parts(options, Settings({}, kubeconfig=str(scene.kubeconfig)))
    one = Controller(parts)
    running = asyncio.create_task(one.run())
    try:
        yield parts
    finally:
        one.end("the test is over")
        await running


def written(marks):
    """Return what controllers have written since, whatever came of it."""
    every = (one for audit, mark in marks for one in audit.writes_since(mark))
    return [one for one in every if one.agent == OURS]


def is_bound(scene):
    return eventually(lambda: scene.at(scene.binding), within=HOUR)


async def test_an_hour_at_rest_is_renewals_of_one_lease_and_nothing_else(scene):
    home = Home("control-plane", HOME, HOME)
    async with scene.peers() as at_rest, controller(scene, home) as parts:

        def rounds_of(labels):
            return parts.meters.registry.get_sample_value(ROUNDS, labels) or 0

        await is_bound(scene)
        await eventually(lambda: rounds_of(IDLE) >= 2, within=HOUR)
        await at_rest()
        marks, before = scene.marks(), rounds_of(IDLE)
        await asyncio.sleep(HOUR)
        assert rounds_of(IDLE) - before >= HOUR // INTERVAL - 1
        found = written(marks)
        assert {(one.verb, one.resource, one.namespace, one.name) for one in found} == {
            ("patch", "leases", HOME, names.controller_lease(scene.fleet.name))
        }
        assert len(found) == pytest.approx(HOUR / lease.TIMES.period, rel=0.01)


async def test_until_its_status_was_read_a_fleet_counts_as_suspended(scene, wires):
    elsewhere = Home("app-2", None, HOME)  # what keeps its own objects is not always a fleet's
    async with live_model(wires, "app-2", Role.CONTROL_PLANE, scene.kubeconfig) as home:
        status = Ref(home.name, FLEET_STATUS, HOME, scene.fleet.name)
        await home.cluster.create(suspended(status), FLEET_STATUS, manager="kubectl")
        server = home.connection.server
        away = wires.models.pop(server)
        async with scene.peers(), controller(scene, elsewhere) as parts:
            marks = scene.marks()
            await asyncio.sleep(2 * INTERVAL)
            assert written(marks) == []
            assert parts.states.now.suspended == UNREAD
            wires.models[server] = away
            await eventually(lambda: parts.states.now.suspended == "a move")
            await asyncio.sleep(2 * INTERVAL)
            assert written(marks) == []
            patch: Manifest = {"metadata": {"annotations": {keys.SUSPEND: None}}}
            await home.cluster.merge_patch(status, patch, manager="kubectl")
            await is_bound(scene)


def suspended(status: Ref) -> Manifest:
    return {
        "apiVersion": FLEET_STATUS.api_version,
        "kind": FLEET_STATUS.kind,
        "metadata": {
            "name": status.name,
            "namespace": status.namespace,
            "annotations": {keys.SUSPEND: "a move"},
        },
    }


@pytest.fixture
def flux_source(monkeypatch):
    """What the command line makes of a source of Flux, whose archives are in the yielded map."""
    archives: dict[str, bytes] = {}
    parsed = []

    async def run(options, settings):
        parsed.append(options.source)
        return 0

    async def fetched(pinned):
        return archives[pinned.digest]

    with monkeypatch.context() as only_here:
        only_here.setattr(program, "run", run)
        only_here.setattr(process, "to_stderr", lambda *_, **__: None)
        options = ("--flux-source", "default/fleet", "--require-verified", "--poll", "30")
        assert main.run(["controller", *options]) == 0
    for module in (program, work):
        monkeypatch.setattr(module, "server", sources.server)
    monkeypatch.setattr(artifact, "fetched", fetched)
    return parsed[0], archives


async def test_a_source_of_flux_is_followed_in_the_cluster_of_the_lease_once_it_is_verified(
    scene, wires, flux_source
):
    source, archives = flux_source
    scene.fleet.write()
    content = packed(files={"fleet.yaml": (scene.fleet.folder / "fleet.yaml").read_bytes()})
    offer = flux.Archives().offers(content, COMMIT)
    archives[offer["digest"]] = content
    elsewhere = Home("app-2", HOME, HOME)
    async with live_model(wires, "app-2", Role.CONTROL_PLANE, scene.kubeconfig) as home:
        ref = Ref(home.name, flux.SOURCE.kind, HOME, flux.SOURCE.name)
        await home.cluster.create(crd_of(ref.kind, status=True), CRD, manager="flux")
        await home.cluster.create(build(ref.kind, ref.name, namespace=HOME), ref.kind, manager="x")

        async def find(verified):
            said = [flux.condition("Ready", "True"), flux.condition("SourceVerified", verified)]
            status: Manifest = {"status": {"conditions": said, "artifact": offer}}
            await home.cluster.merge_patch(ref, status, manager="flux", subresource="status")

        await find("False")
        async with scene.peers(), controller(scene, elsewhere, source) as parts:
            marks = scene.marks()
            unverified = SourceProblem.UNVERIFIED
            await eventually(lambda: parts.states.now.source.problem is unverified, within=HOUR)
            await asyncio.sleep(2 * INTERVAL)
            assert written(marks) == []
            await find("True")
            await is_bound(scene)
            assert parts.states.now.source.revision == COMMIT

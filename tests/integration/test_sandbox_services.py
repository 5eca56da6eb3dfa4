"""`klutchctl sandbox up --services` on the real programs: Crossplane, its provider, PostgreSQL."""

import contextlib
import os
import shutil
import socket
import stat
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml

from klutchctl.sandbox import binaries, lifecycle, processes, recipes
from klutchctl.sandbox.addons import postgresql
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.servers import Program
from klutchctl.settings import Settings
from reconciler.core import conditions
from reconciler.core.errors import ClusterError, HostError
from reconciler.core.refs import Kind, Ref
from tests.support import clusters, osb_catalogues, osb_compositions, removal
from tests.support.eventually import eventually
from tests.support.osb_backup_manager import managing
from tests.support.osb_compositions import Compositions
from tests.support.osb_script import ServedBroker, scripted
from tests.support.programs import Machine, furnished

FLEET = Path(__file__).parents[2] / "fleet-example"
SERVED = FLEET / "services"
# Those of the example but its klutch-osb: a test runs one of its own.
SERVICES = (SERVED / "services.yaml").read_text().partition("    - name: klutch-osb")[0]
PROGRAMS = ("postgresql-operator", "postgresql-broker")
OURS = (
    *("crossplane", "function-patch-and-transform", "postgresql", "provider-kubernetes"),
    *PROGRAMS,
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, programs: Mapping[Program, Path]):
    home = tmp_path_factory.mktemp("services")
    found = furnished(home, programs)
    settings = Settings(os.environ)
    try:
        for recipe in (recipes.of_crossplane(max(recipes.CROSSPLANES)), recipes.of_provider()):
            workshop = binaries.workshop(
                recipe, "services", cache_home=settings.cache_home, environ=os.environ
            )
            binaries.provide_built(workshop, recipe, progress=Lines(sys.stderr))
        postgresql.find(found.layout(), os.environ)
    except HostError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    (home / "cache" / "klutchctl").mkdir(parents=True)
    (home / "cache" / "klutchctl" / "services").symlink_to(workshop.cache.folder)
    shutil.copytree(FLEET, home / "fleet")
    (home / "fleet/services/services.yaml").write_text(SERVICES)
    yield found
    lifecycle.down(found.layout(), delete=True, progress=Lines(sys.stderr))


@pytest.fixture
async def running(machine: Machine):
    """The machine with its services; each test runs alone too, in the second chance of CI."""
    if not set(machine.pids()) >= set(OURS):
        await machine.up("--app-clusters", "0", "--services", cwd=machine.home / "fleet")
    return machine


def home_of_data(machine: Machine) -> Path:
    return postgresql.find(machine.layout(), os.environ).data.parent


async def test_up_runs_the_services_and_names_them(machine):
    answer = await machine.up("--app-clusters", "0", "--services", cwd=machine.home / "fleet")
    assert f"Services of {machine.home}/fleet/services: {', '.join(sorted(OURS))}" in answer.out
    assert set(machine.pids()) >= set(OURS)


def listeners(pids):
    """Where processes listen; PostgreSQL's are in its first process too."""
    for pid in pids:
        for one in psutil.Process(pid).net_connections(kind="inet"):
            if one.status == psutil.CONN_LISTEN:
                yield one.laddr


async def test_nothing_listens_beyond_loopback(running):
    pids = running.pids()
    found = list(listeners(pids.values()))
    assert len(found) >= 5
    assert {address.ip.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}
    parts = [pid for name, pid in pids.items() if name not in PROGRAMS]
    assert {address.port for address in listeners(parts)} <= set(running.ports())


async def test_postgresql_asks_strangers_for_a_password(running):
    state = lifecycle.load(running.layout())
    assert state is not None
    assert state.services is not None
    startup = b"\x00\x03\x00\x00user\0postgres\0\0"
    with socket.create_connection(("127.0.0.1", state.services.ports["postgresql"])) as client:
        client.sendall((len(startup) + 4).to_bytes(4, "big") + startup)
        answer = client.recv(4096)
    assert answer[:1] == b"R"
    assert b"SCRAM-SHA-256" in answer


A9S = {
    "PostgresqlInstance": "a9s-postgresql",
    "ServiceBinding": "a9s-servicebinding",
    "Backup": "a9s-backup",
    "Restore": "a9s-restore",
}


def of_a9s(kind: str, **spec: str):
    """A claim as developers of a9s Data Services write it."""
    name = "example-a9s-postgresql"
    plural = Kind("anynines.com", "v1", kind, f"{kind.lower()}s")
    stated = {**spec, "compositionRef": {"name": A9S[kind]}}
    if kind != "PostgresqlInstance":
        stated["serviceInstanceType"] = "postgresql"
    return plural, {
        "apiVersion": plural.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": stated,
    }


CLAIMED = "example-a9s-postgresql"
OF_A9S = [
    of_a9s("PostgresqlInstance", service="a9s-postgresql15", plan="postgresql-single-nano"),
    of_a9s("ServiceBinding", instanceRef=CLAIMED),
    of_a9s("Backup", instanceRef=CLAIMED),
    of_a9s("Restore", backupRef=CLAIMED),
]


async def composed(front: Compositions, broker: ServedBroker) -> None:
    """Make all four claims, wait until each is ready, and delete them."""
    cluster, name = front.plane.cluster, front.plane.name

    async def arrives(kind: Kind, wanted) -> bool:
        with contextlib.suppress(ClusterError):  # Crossplane serves the kind before long
            await cluster.apply(wanted, kind, manager="tests", force=True)
        live = await cluster.get(Ref(name, kind, "default", CLAIMED))
        ready = conditions.get(live, "Ready")
        assert ready is not None, live
        assert ready.status == "True", ready
        return True

    for kind, wanted in OF_A9S:
        await eventually(partial(arrives, kind, wanted), within=120)
    assert broker.log_in(await front.credentials(CLAIMED))
    for kind, _ in reversed(OF_A9S):
        await removal.remove(cluster, Ref(name, kind, "default", CLAIMED))

        async def is_gone(ref: Ref) -> bool:
            return await cluster.get(ref) is None

        await eventually(partial(is_gone, Ref(name, kind, "default", CLAIMED)), within=120)


@pytest.mark.soak
async def test_claims_of_a9s_compositions_come_from_a_service_broker(running):
    offered = osb_catalogues.catalogue(
        osb_catalogues.offering("a9s-postgresql15-ms-1687", ("postgresql-single-nano",))
    )
    state = lifecycle.load(running.layout())
    assert state is not None
    plane = await clusters.connect(running.layout(), state.members[0])
    with scripted(offered) as broker, managing() as manager:
        front = Compositions(plane, "default")
        await front.install()
        for path in (*SERVED.glob("crossplane/*s.yaml"), *SERVED.glob("osb/a9s/*.yaml")):
            for document in yaml.safe_load_all(path.read_text("utf-8")):
                group, _, version = document["apiVersion"].partition("/")
                plural = f"{document['kind'].lower()}s"
                kind = Kind(group, version, document["kind"], plural, namespaced=False)
                await plane.cluster.apply(document, kind, manager="tests", force=True)
        await front.configure(osb_compositions.BROKER, broker.url, broker.user, broker.password)
        await front.configure(
            osb_compositions.BACKUP_MANAGER, manager.url, manager.user, manager.password
        )
        async with front.program():
            await composed(front, broker)
        assert broker.inventory.is_empty
        assert not manager.backups
        assert broker.violations == manager.violations == []
    await plane.cluster.close()


async def test_up_again_changes_nothing_and_secrets_are_private(running):
    before, layout = running.pids(), running.layout()
    await running.up()
    assert running.pids() == before
    for file in (layout.services_kubeconfig, layout.postgresql_address):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_service_that_is_not_in_the_files_any_more_is_stopped(running):
    file = running.home / "fleet" / "services" / "services.yaml"
    file.write_text(SERVICES.partition("  programs:")[0])
    before = running.pids()
    answer = await running.up()
    assert not [one for one in PROGRAMS if one in answer.out]
    after = running.pids()
    assert after == {name: pid for name, pid in before.items() if name not in PROGRAMS}
    file.write_text(SERVICES)
    await running.up()
    assert {*PROGRAMS} <= {*running.pids()}


async def test_without_services_they_end_and_their_data_stays(running):
    await running.up("--no-services")
    assert not set(OURS) & set(running.pids())
    assert (home_of_data(running) / "data" / "PG_VERSION").exists()
    await running.up("--services", cwd=running.home / "fleet")
    assert set(OURS) <= set(running.pids())


async def test_down_delete_leaves_no_process_and_no_folder(running):
    layout, pids, data = running.layout(), running.pids(), home_of_data(running)
    assert data.is_dir()
    answer = await running.sandbox("down", "--delete")
    assert answer.code == 0, answer.err
    assert processes.observe(layout) == ()
    there = [psutil.Process(pid) for pid in pids.values() if psutil.pid_exists(pid)]
    assert not [one for one in there if one.status() != psutil.STATUS_ZOMBIE]
    assert not data.exists()
    assert not layout.root.exists()

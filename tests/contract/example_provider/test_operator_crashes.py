"""The operator of fleet-example dies again and again, and what it serves is served all the same.

Each operator does one deed more than the one before and dies: a write to the API server, or a
statement to PostgreSQL. So every state between two deeds is met by a new one.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pytest
import yaml

from postgresql_operator.wire import BACKUP, BINDING, POSTGRESQL, RESTORE, ROTATE
from postgresql_server import postgres
from reconciler.core.manifest import annotations_of, get_text
from reconciler.core.refs import SECRET
from tests.support import operated
from tests.support.cues import AFTER, BEFORE
from tests.support.eventually import eventually
from tests.support.faults import Faults, SimulatedCrash, deeds, survives, writes
from tests.support.operated import operating

MANY = 60
RUN = postgres._run
LONG = 60.0


@dataclass(slots=True)
class Death:
    """After so many deeds."""

    left: int
    dead: bool = False

    def deed(self):
        self.check()
        self.left -= 1
        self.dead = self.left == 0
        self.check()

    def check(self):
        if self.dead:
            raise SimulatedCrash


@dataclass(frozen=True, slots=True)
class Effect:
    act: Callable[[], None]

    async def perform(self, _call, /):
        self.act()


async def dies_until(place, goal, monkeypatch):
    """Let operators work that die after 1, 2, 3… deeds; return how many died before the goal."""
    for count in range(1, MANY):
        death, faults = Death(count), Faults()
        faults.add(writes(), Effect(death.check), at=BEFORE)
        faults.add(deeds(), Effect(death.deed), at=AFTER)

        async def dying(*given, death=death):
            death.check()
            await RUN(*given)
            death.deed()

        monkeypatch.setattr(postgres, "_run", dying)

        async def reached(death=death):
            death.check()
            return await goal()

        async def lives(faults=faults, reached=reached):
            async with operating(place, faults):
                await eventually(reached, within=LONG)

        if await survives(lives()):
            return count - 1
    raise AssertionError(f"it has not come to its end after {MANY} deaths")


def works(shop, told):
    try:
        return bool(shop.ask(told, "SELECT 1"))
    except psycopg.OperationalError as error:
        raise AssertionError(str(error)) from None


@pytest.mark.soak  # a minute, most of it deaths
async def test_every_death_heals(place, shop, server, monkeypatch):
    async def phase(kind, name):
        return get_text(await shop.get(kind, name), "status", "phase")

    async def bound():
        if await phase(BINDING, "orders") != "Ready":
            return False
        return works(shop, await shop.credentials("orders"))

    await shop.make(POSTGRESQL, "orders")
    await shop.make(BINDING, "orders", instanceRef="orders")
    assert await dies_until(place, bound, monkeypatch) > 5
    first = await shop.credentials("orders")
    shop.ask(first, "CREATE TABLE kept (row text); INSERT INTO kept VALUES ('kept')")

    async def rotated():
        secret = await shop.get(SECRET, "orders-creds")
        told = await shop.credentials("orders")
        done = annotations_of(secret or {}).get(ROTATE) == "1"
        return done and told["password"] != first["password"] and works(shop, told)

    await shop.change(BINDING, "orders", {"metadata": {"annotations": {ROTATE: "1"}}})
    assert await dies_until(place, rotated, monkeypatch) > 1
    told = await shop.credentials("orders")

    async def restored():
        done = [await phase(BACKUP, "nightly"), await phase(RESTORE, "back")]
        return done == ["Completed", "Completed"]

    await shop.make(BACKUP, "nightly", instanceRef="orders")
    await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
    assert await dies_until(place, restored, monkeypatch) > 10
    assert shop.ask(told, "SELECT row FROM kept") == [("kept",)]
    assert server.roles() == {told["database"], told["username"]}
    assert sorted(path.suffix for path in place.data.iterdir()) == [".dump", ".loaded"]

    async def gone():
        assert not [live for kind in operated.KINDS for live in await left(kind)]
        return True

    async def left(kind):
        return (await shop.plane.cluster.list(kind, namespace=shop.namespace)).items

    for kind, name in (
        (POSTGRESQL, "orders"),
        (BINDING, "orders"),
        (RESTORE, "back"),
        (BACKUP, "nightly"),
    ):
        await shop.delete(kind, name)
    assert await dies_until(place, gone, monkeypatch) > 2
    assert (server.roles(), server.databases()) == (set(), set())
    assert list(place.data.iterdir()) == []
    assert await shop.get(SECRET, "orders-creds") is None


async def test_a_server_that_is_away_is_told_and_waited_for(place, shop, server):
    address = server.address.read_text()
    async with operating(place):
        await shop.make(POSTGRESQL, "orders")
        await shop.phase(POSTGRESQL, "orders", "Ready")
        server.address.write_text(address.replace(str(server.port), "1"))
        try:
            await shop.make(BINDING, "orders", instanceRef="orders")
            live = await shop.said(BINDING, "orders", lambda live: "Trouble" in str(live))
            said = get_text(live, "status", "conditions", 0, "message")
            assert "127.0.0.1:1" in said
            assert address.split(":")[2].split("@")[0] not in said
        finally:
            server.address.write_text(address)
        await shop.phase(BINDING, "orders", "Ready")
        assert works(shop, await shop.credentials("orders"))


async def test_a_process_serves_until_it_is_told_to_end(place, shop, tmp_path):
    whole = yaml.safe_load(shop.plane.kubeconfig.read_text())
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({**whole, "current-context": shop.plane.context}))
    command = [sys.executable, "-m", "postgresql_operator", f"--kubeconfig={kubeconfig}"]
    command += [f"--postgresql={place.server.address}", f"--binaries={place.server.binaries}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [*command, f"--data={place.data}"], cwd=operated.SERVICES, stderr=log
        )
    try:
        await shop.make(POSTGRESQL, "orders")
        await shop.make(BINDING, "orders", instanceRef="orders")
        await shop.phase(BINDING, "orders", "Ready")
        told = await shop.credentials("orders")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
    assert works(shop, told)
    said = (tmp_path / "log").read_text()
    assert 'reason="Bound"' in said
    assert told["password"] not in said


WRONG = {
    "a file that is not there": ("--kubeconfig=/nowhere", "/nowhere"),
    "a folder without the tools": ("--binaries=/", "there is no pg_dump in /"),
    "a flag that there is not": ("--wrong", "--wrong"),
}


@pytest.mark.parametrize(("flag", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_flag_is_one_sentence(place, shop, flag, said, tmp_path):
    command = [sys.executable, "-m", "postgresql_operator"]
    command += [f"--kubeconfig={shop.plane.kubeconfig}", f"--data={tmp_path}"]
    command += [f"--postgresql={place.server.address}", f"--binaries={place.server.binaries}", flag]
    run = subprocess.run(
        command, cwd=operated.SERVICES, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("Error: ")
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_the_program_tells_its_flags():
    command = [sys.executable, "-m", "postgresql_operator", "--help"]
    run = subprocess.run(
        command, cwd=operated.SERVICES, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0
    assert "--postgresql" in run.stdout

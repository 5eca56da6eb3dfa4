"""`klutchctl status` against real clusters: what it shows, and how it ends."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core import keys, names
from reconciler.core.refs import LEASE, NAMESPACE, Ref
from tests.support import fleet_texts, programs, removal
from tests.support.bound_units import ByHand, new_unit
from tests.support.eventually import eventually
from tests.support.observing import BIND

KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))


@dataclass
class Scene:
    """A fleet repository with one unit, and its two clusters."""

    folder: Path
    fleet: str
    unit: Any
    by_hand: ByHand

    def write(self, *more: str, clusters: str = "shop") -> None:
        """Write the files: the unit in these clusters, and more documents."""
        group, plural = self.unit.group, self.unit.resource
        text = fleet_texts.one_file(
            fleet_texts.document("Fleet", self.fleet, "{}"),
            fleet_texts.control_plane(at="control-plane"),
            fleet_texts.cluster(at="app-1"),
            fleet_texts.binding("orders-db", group=group, plural=plural, clusters=clusters),
            *more,
        )
        (self.folder / "fleet.yaml").write_text(text)

    def command(self, *arguments: str) -> list[str]:
        kubeconfig = str(self.by_hand.plane.live.kubeconfig)
        return [KLUTCHCTL, "--kubeconfig", kubeconfig, "status", str(self.folder), *arguments]

    async def status(self, *arguments: str) -> tuple[int, str, str]:
        done = await programs.klutchctl_beside(*self.command(*arguments)[1:])
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
async def scene(namespace, on_plane, in_app, tmp_path):
    """A binding space as an apply of a fleet with a name of its own would leave it."""
    fleet = namespace.removeprefix("test-")
    space = names.direct_space(fleet, "shop")
    metadata = {
        "labels": {keys.FLEET: fleet, keys.CLUSTER: "shop"},
        "annotations": {keys.IDENTITY: names.direct_identity(fleet, "shop")},
    }
    await on_plane.create(NAMESPACE, space, metadata=metadata)
    by_hand = ByHand(space, on_plane, in_app, secret=(BIND, names.kubeconfig_secret(space)))
    made = Scene(tmp_path, fleet, new_unit(), by_hand)
    made.write()
    await by_hand.cluster_binding()
    # Agents of other tests are gone, and a Lease of theirs would say so.
    for live, lease in ((in_app.live, names.KONNECTOR_LEASE), (on_plane.live, names.BACKEND_LEASE)):
        for home in (BIND, "kube-system", "default"):
            await removal.remove(live.cluster, Ref(live.name, LEASE, home, lease))
    return made


async def test_a_cluster_that_is_not_read_is_unknown_and_spares_the_others(scene):
    await scene.by_hand.beat()
    await scene.by_hand.make_ready(scene.unit)
    scene.write(fleet_texts.cluster("away", at="nowhere"), clusters="shop, away")
    code, out, _ = await scene.status("-o", "json")
    units = [one for cluster in json.loads(out)["clusters"] for one in cluster["units"]]
    assert (code, [one["reason"] for one in units]) == (5, ["NotRead", ""])
    code, _, _ = await scene.status("--allow-unreachable")
    assert code == 0
    code, out, _ = await scene.status("--cluster", "shop")
    assert (code, "away" in out) == (0, False)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)],
)
async def test_watching_prints_what_changes_until_it_is_interrupted(scene, number, code):
    process = await asyncio.create_subprocess_exec(
        *scene.command("--watch", "--every", "1", "-o", "jsonl"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = process.stdout
    first = json.loads(await lines.readline())
    assert (first["state"], first["reason"]) == ("Degraded", "NotBound")
    assert json.loads(await lines.readline())["event"] == "summary"
    await scene.by_hand.beat()
    await scene.by_hand.make_ready(scene.unit)
    while (seen := json.loads(await lines.readline())).get("state") != "Ready":
        assert seen["event"] in ("unit", "summary"), seen
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (code, ""), out


async def test_watching_as_text_prints_the_table_once_and_then_lines(scene):
    process = await asyncio.create_subprocess_exec(
        *scene.command("--watch", "--every", "1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    while not (await process.stdout.readline()).startswith(b"Status:"):
        pass
    await scene.by_hand.beat()
    await scene.by_hand.make_ready(scene.unit)
    line = (await process.stdout.readline()).decode()
    assert f"shop/{scene.unit.name}: Degraded -> " in line
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130


async def test_watching_on_a_terminal_draws_anew(scene):
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *scene.command("--watch", "--every", "1"), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    drawn = b""

    def screens() -> bytes:
        nonlocal drawn
        with contextlib.suppress(BlockingIOError):
            drawn += os.read(ours, 1 << 16)
        return drawn

    await eventually(lambda: screens().count(b"\x1b[H\x1b[2J") >= 2)
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    os.close(ours)
    assert b"Degraded" in drawn
    assert b"Traceback" not in drawn

"""The program `konnector` as processes: two replicas, one of which works, and how they end.

protocol-konnector.md A.1, A.3, A.4, G 3 to 9, 11, 12, H7.
"""

import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from konnector import APP_CLUSTER
from reconciler.blueprints import objects as spaces
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import build
from reconciler.core.live import Address
from reconciler.core.manifest import get_text
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret
from tests.support.bound_scenes import ACCEPTED, Managed, Scene, b64, new, says, served, until
from tests.support.eventually import eventually
from tests.support.konnector_ways import account, content
from tests.support.replicas import Replica, Replicas, replicas
from tests.support.shells import ran

UNSERVED = ("--probe-address=", "--metrics-address=")
KONNECTOR = (sys.executable, "-m", "konnector")
_LONG = 60.0


async def copies(scene: Scene) -> set[str]:
    found = await scene.plane.cluster.list(scene.offer.kind, namespace=scene.service_namespace)
    return {get_text(one, "metadata", "name") for one in found.items}


async def claim(scene: Scene, *created: str) -> None:
    for name in created:
        await scene.create_instance(name)


async def all_copied(scene: Scene, *created: str) -> None:
    async def there() -> bool:
        assert {*created} <= await copies(scene)
        return True

    await eventually(there, within=_LONG)


async def is_settled(replica: Replica, path: str) -> bool:
    status, text = await replica.ask(path)
    assert (status, text) == (200, "ok\n")
    return True


async def test_a_leader_that_ends_is_followed_by_another_which_loses_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    """One is killed, one is stopped for too long, and one ends by itself."""
    async with (
        scene.backend(),
        replicas(scene.app, scene.app_namespace, tmp_path, command=KONNECTOR) as made,
    ):
        first = await made.start()
        await made.leader(first)
        await scene.bound(ACCEPTED)
        await claim(scene, "first")
        await all_copied(scene, "first")
        second = await made.start()
        await made.stands_by(second)
        await both_are_well(scene, first, second)
        await one_is_killed(scene, first, second)
        third = await made.start()
        await made.stands_by(third)
        await one_is_stopped_for_too_long(scene, made, second, third)
        third.send(signal.SIGTERM)
        assert await third.ended() == 0
        assert f"-{third.process.pid}-" not in await made.holder()
        await made.leader(second)
        second.send(signal.SIGTERM)
        assert await second.ended() == 0
        assert await made.holder() == ""


async def both_are_well(scene: Scene, first: Replica, second: Replica) -> None:
    code, text = await first.ask("/healthz")
    assert (code, json.loads(text)) == (200, {"leaderElection": "ok"})
    assert (await second.ask("/healthz"))[0] == 200  # a process that does not lead is well
    assert (await first.ask("/readyz"))[0] == 200
    _, metrics = await first.ask("/metrics")
    assert "workqueue_depth" in metrics

    created_first = await scene.app.cluster.list(scene.offer.kind)
    after = f"/settled?after={APP_CLUSTER}:{created_first.resource_version}"
    await eventually(lambda: is_settled(first, after))
    assert await second.ask(after) == (503, "this process does not lead\n")


async def one_is_killed(scene: Scene, first: Replica, second: Replica) -> None:
    mark = scene.app.audit.mark()
    created = [f"claim-{number}" for number in range(30)]
    creating = asyncio.create_task(claim(scene, *created))
    await eventually(lambda: len(first.writes_since(mark)) > 3)
    first.send(signal.SIGKILL)
    assert await first.ended() == -signal.SIGKILL
    await creating
    await all_copied(scene, *created)
    assert await second.leads()
    assert {one.resource for one in second.writes_since(mark)} >= {"databases"}


async def one_is_stopped_for_too_long(
    scene: Scene, made: Replicas, second: Replica, third: Replica
) -> None:
    second.send(signal.SIGSTOP)
    await made.leader(third)
    mark = scene.app.audit.mark()
    await claim(scene, "later")
    await all_copied(scene, "later")
    second.send(signal.SIGCONT)
    await eventually(lambda: "waits for the lease again" in second.log.read_text())
    await made.stands_by(second)
    assert second.writes_since(mark) == []
    assert third.writes_since(mark) != []


def of_control_plane(scene: Managed, secret: str = "shop-kubeconfig") -> list[str]:
    return [
        *KONNECTOR,
        "--control-plane-mode",
        f"--app-cluster-kubeconfig-secret-name={secret}",
        f"--app-cluster-kubeconfig-secret-namespace={scene.space}",
        f"--binding-root-namespace={scene.space}",
    ]


async def test_beside_the_control_plane_the_lease_is_given_back_too(
    managed: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then another takes it which is told its name, and another key of another Secret."""
    async with account(managed.app, rbac.FULL) as token, managed.backend():
        kubeconfig = content(managed.app.connection, token)
        await managed.make_secret(kubeconfig)
        await managed.apply(managed.offer.resource)
        await until(lambda: managed.read(SECRET, "shop-kubeconfig"))
        command = of_control_plane(managed)
        async with replicas(managed.plane, managed.space, tmp_path, command=command) as made:
            only = await made.start()
            await made.leader(only)
            await until(lambda: says(managed.binding(), "Ready"))
            assert f"-{only.process.pid}-" in await made.holder()
            only.send(signal.SIGTERM)
            assert await only.ended() == 0
            assert await made.holder() == ""

            monkeypatch.setenv("POD_NAME", "konnector-7d9f-abcde")
            made.command = await with_another_key(managed, kubeconfig)
            named = await made.start()
            await made.leader(named)
            assert await made.holder() == "konnector-7d9f-abcde"
            await until(lambda: served(managed.app, managed.offer.kind))
            made_here = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
            await new(managed.app, made_here, managed.offer.kind, manager="developer")
            where = managed.service_namespace
            await until(lambda: managed.read(managed.offer.kind, "orders", where))


def kubeconfig_to_nowhere(namespace: str) -> str:
    nowhere = Address("https://127.0.0.1:1", "")
    return spaces.kubeconfig(nowhere, Secret("token"), namespace=namespace)


async def test_a_start_that_waits_for_the_app_cluster_ends_at_the_first_signal(
    managed: Managed, tmp_path: Path
) -> None:
    """A.1: a pod that is deleted meanwhile does not sit out its grace period."""
    text = kubeconfig_to_nowhere(managed.namespace)
    made = build(SECRET, "away", namespace=managed.namespace, data={"kubeconfig": b64(text)})
    await managed.plane.cluster.create(made, SECRET, manager="tests")
    command = of_control_plane(managed, "away")
    command.append(f"--app-cluster-kubeconfig-secret-namespace={managed.namespace}")
    async with replicas(managed.plane, managed.namespace, tmp_path, command=command) as started:
        only = await started.start()
        await eventually(lambda: "cannot be reached" in only.log.read_text())
        only.send(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await only.ended() == 0


async def with_another_key(managed: Managed, kubeconfig: str) -> list[str]:
    """Make a Secret of which one key leads to the app cluster, and `kubeconfig` nowhere."""
    name, data = "by-another-key", {"kubeconfig": b64("garbage"), "elsewhere": b64(kubeconfig)}
    made = build(SECRET, name, namespace=managed.namespace, data=data)
    await managed.plane.cluster.create(made, SECRET, manager="tests")
    return [
        *of_control_plane(managed, name),
        f"--app-cluster-kubeconfig-secret-namespace={managed.namespace}",
        "--app-cluster-kubeconfig-secret-key=elsewhere",
    ]


async def reported(arguments: list[str]) -> tuple[int | None, str]:
    """Return the exit code of a run that is to fail, and what it says last."""
    done = await asyncio.to_thread(ran, arguments, timeout=_LONG)
    return done.returncode, done.stderr


async def test_what_hinders_a_start_is_reported_in_one_sentence(
    managed: Managed, tmp_path: Path
) -> None:
    plane = managed.plane
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    assert yaml.safe_load(plane.kubeconfig.read_text())["current-context"] == plane.context
    without_key = build(SECRET, "without-key", namespace=managed.namespace, data={})
    await plane.cluster.create(without_key, SECRET, manager="tests")
    at = replace(managed)
    failed = "failed to fetch the app-cluster kubeconfig secret"
    where = f"--app-cluster-kubeconfig-secret-namespace={managed.namespace}"
    for secret, sentence in (
        ("nowhere", f"{failed} {managed.namespace}/nowhere: it does not exist"),
        ("without-key", f'{failed}: {managed.namespace}/without-key is missing "kubeconfig"'),
    ):
        run = [*of_control_plane(at, secret), where, kubeconfig, *UNSERVED]
        code, err = await reported(run)
        assert (code, err.count("\n")) == (1, 1), err
        assert err.startswith(f"Error: {sentence}"), err
    nobody = tmp_path / "nobody"
    nobody.write_text(kubeconfig_to_nowhere(managed.namespace))
    run = [*of_control_plane(at, "any"), where, f"--kubeconfig={nobody}", *UNSERVED]
    code, err = await reported(run)
    assert (code, err.count("\n")) == (1, 1), err
    assert err.startswith(f"Error: {failed} {managed.namespace}/any: control-plane: "), err
    code, err = await reported([*KONNECTOR, "--control-plane-mode"])
    assert (code, err.count("\n")) == (1, 1), err
    assert "required when --control-plane-mode is on" in err

"""`klutchctl snapshot` of real clusters."""

import asyncio
import json
import stat
import uuid
from pathlib import Path

import pytest
import yaml

from klutchctl.main import run
from reconciler.api import API_SERVICE_EXPORT
from reconciler.core import names
from reconciler.core.live import ClusterState, instances, parse_live
from reconciler.core.manifest import name_of
from reconciler.core.refs import CRD, SECRET, Kind
from tests.support.clusters import LiveCluster
from tests.support.definitions import OPEN, spec_of, version_of
from tests.support.eventually import eventually
from tests.support.observing import BIND, Hand, b64, established, kubeconfig
from tests.support.wire_objects import WireObjects

CANARY = "canary-of-a-secret-value"


def write_fleet(folder: Path, *, service: str, contexts: dict[str, str]) -> None:
    api = {"apiVersion": "fleet.klutchctl.dev/v1alpha1"}
    resource, _, group = service.partition(".")
    plane, *apps = contexts
    documents = [
        {
            "kind": "Fleet",
            "metadata": {"name": f"f-{uuid.uuid4().hex[:8]}"},
            "spec": {"policies": {"default": "Allow"}},
        },
        {
            "kind": "ControlPlane",
            "metadata": {"name": plane},
            "spec": {"access": {"kubeconfigContext": contexts[plane]}, "mode": "Direct"},
        },
        *(
            {
                "kind": "Cluster",
                "metadata": {"name": app},
                "spec": {"access": {"kubeconfigContext": contexts[app]}, "controlPlane": plane},
            }
            for app in apps
        ),
        {
            "kind": "Binding",
            "metadata": {"name": "orders"},
            "spec": {
                "resources": [{"group": group, "resource": resource}],
                "clusters": {"names": apps},
            },
        },
    ]
    text = yaml.safe_dump_all([api | document for document in documents])
    (folder / "fleet.yaml").write_text(text)


@pytest.fixture
def service() -> str:
    return f"databases.g{uuid.uuid4().hex[:8]}.example"


async def take(live: LiveCluster, folder: Path, out: Path, *options: str) -> int:
    """Run the command in a thread of its own, as it has an event loop of its own."""
    arguments = ["--kubeconfig", str(live.kubeconfig), *options]
    return await asyncio.to_thread(run, [*arguments, "snapshot", "--out", str(out), str(folder)])


async def test_a_snapshot_holds_all_that_a_plan_may_ask_and_no_secret(  # noqa: PLR0917 - fixtures
    control_plane: LiveCluster,
    app_cluster: LiveCluster,
    namespace: str,
    on_plane: Hand,
    in_app: Hand,
    service: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resource, _, group = service.partition(".")
    kind = Kind(group, "v1", "Database", resource)
    await in_app.create(CRD, service, spec=spec_of(kind, [version_of(OPEN)]))
    await established(app_cluster.cluster, kind)
    await in_app.create(kind, "orders", namespace=BIND)
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    names_ = {"plural": resource, "kind": "Database"}
    await wire.create(API_SERVICE_EXPORT, name=service, spec={"group": group, "names": names_})
    data = {"kubeconfig": b64(kubeconfig(namespace)), "extra": b64(CANARY)}
    await on_plane.create(SECRET, names.KUBECONFIG, namespace=namespace, data=data)
    write_fleet(
        tmp_path,
        service=service,
        contexts={"eu": control_plane.context, "shop": app_cluster.context},
    )
    out = tmp_path / "live.json"

    assert await take(control_plane, tmp_path, out) == 0

    assert capsys.readouterr().out == f"Snapshot of 2 of 2 clusters: {out}\n"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    content = out.read_bytes()
    for hidden in ("canary", b64(CANARY), "PRIVATE KEY"):
        assert hidden.encode() not in content
    live = parse_live(content, str(out))
    plane, app = live.control_planes["eu"], live.clusters["shop"]
    assert isinstance(plane, ClusterState)
    assert isinstance(app, ClusterState)
    assert app.in_use[instances(group, resource)] == 1
    bodies = {name_of(body): body for body in plane.bodies.values() if body is not None}
    assert list(bodies) == [service]
    assert json.loads(content)["version"] == 1


HERE, NOWHERE = {"eu": "control-plane", "shop": "app-1"}, {"eu": "away", "shop": "far"}
MISSING = {
    # where the others are, options, exit code, clusters that were read
    "it is named, and the rest is written": (HERE, (), 5, "2 of 3"),
    "it may be": (HERE, ("--allow-unreachable",), 0, "2 of 3"),
    "it is not chosen": (HERE, ("--cluster", "shop"), 0, "2 of 2"),
    "all are": (NOWHERE, ("--allow-unreachable",), 1, "0 of 3"),
}


@pytest.mark.parametrize(("others", "options", "code", "read"), MISSING.values(), ids=MISSING)
async def test_a_cluster_that_is_missing(  # noqa: PLR0917 - fixtures
    control_plane: LiveCluster,
    service: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    others: dict[str, str],
    options: tuple[str, ...],
    code: int,
    read: str,
) -> None:
    write_fleet(tmp_path, service=service, contexts={**others, "lost": "nowhere"})
    out, is_asked = tmp_path / "live.json", read.endswith("3")

    async def taken() -> bool:
        """Take it, once what other tests left is gone."""
        assert await take(control_plane, tmp_path, out, *options) == code
        said = capsys.readouterr()
        assert said.out == f"Snapshot of {read} clusters: {out}\n", said.err
        return ("Unseen: cluster lost: " in said.err) is is_asked

    await eventually(taken)
    assert ("lost" in parse_live(out.read_bytes(), "x").clusters) is is_asked

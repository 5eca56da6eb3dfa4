"""All objects of a fleet in both modes: where each stands, by which rule, and what it says."""

import json

import pytest

from klutchctl import main
from klutchctl.render import manifests
from reconciler.fleet.compile import desired
from reconciler.fleet.values import Konnector, Mode, Owner
from tests.support.fleets import app_cluster, claim, control_plane, fleet, unit
from tests.support.scenes import binding, cluster, fleet_head, plane

CLUSTER = app_cluster(
    identity="6f1c", konnector=Konnector(deploy=True, image="registry.example/konnector:1.0.0")
)
CLAIMS = (
    claim(names=("b", "a"), labels=((("team", "a"),), (("app", "x"), ("team", "b")))),
    claim("configmaps", Owner.CONSUMER, accepted=False, namespaces=("x",)),
)
QUEUES = unit(resource=("shop.example", "queues"), claims=())
UNITS = {
    Mode.DIRECT: [unit(parameters={"plan": "big"}, claims=CLAIMS), QUEUES],
    # That mode carries no parameters.
    Mode.APP_CLUSTER_BINDING: [QUEUES, unit(resource=("a.example", "zebras"), claims=CLAIMS)],
}


def shown(wanted):
    yield f"--- # {wanted.step} {wanted.ref}"
    yield f"# {wanted.rule.value}, for {wanted.unit or wanted.cluster}, {wanted.origin}"
    yield from manifests.yaml_lines(wanted.manifest)
    if wanted.compared is not None:
        yield "# A live one is compared with, and gets:"
        yield from (f"# {line}" for line in manifests.yaml_lines(wanted.compared))


@pytest.mark.parametrize("mode", Mode)
def test_objects_of_a_mode(golden, mode):
    planes = [control_plane(mode=mode)]
    of = fleet(control_planes=planes, clusters=[CLUSTER], units=UNITS[mode])
    lines = [line for wanted in desired(of) for line in shown(wanted)]
    golden("\n".join([*lines, ""]), f"objects.{mode.value}.yaml")


def test_text(golden, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(fleet_head() + plane() + cluster() + binding())
    assert main.run(["render"]) == 0
    documents = capsys.readouterr().out.split("---\n")
    assert any("cluster shop, in it; only where it is absent" in one for one in documents)
    golden("---\n".join(["", *documents[-2:]]), "render.yaml")


def test_json(golden, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(fleet_head() + plane() + cluster() + binding())
    assert main.run(["render", "-o", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    shown = {**whole, "files": "", "objects": whole["objects"][-1:]}
    golden(json.dumps(shown, indent=2) + "\n", "render.json")

"""All objects of a fleet in both modes: where each stands, by which rule, and what it says."""

import pytest

from klutchctl.render import manifests
from reconciler.fleet.compile import desired
from reconciler.fleet.values import Konnector, Mode, Owner
from tests.support.fleets import app_cluster, claim, control_plane, fleet, unit

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

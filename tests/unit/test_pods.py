"""What holds for every Pod that is shipped: by manifests, by the example, and by code."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.blueprints import konnector
from reconciler.blueprints.konnector import SpaceKonnector
from reconciler.blueprints.objects import UNMARKED
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, get_map, get_maps, get_text, name_of

ROOT = Path(__file__).parents[2]
IDENTITY = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532}
HOME = SpaceKonnector("team-a", "shop", "klutch-bind-team-a-shop", "shop-kubeconfig")


def shipped() -> list[tuple[str, Any]]:
    """Return all objects of manifests, each after its place and name."""
    folders = [*ROOT.glob("*/deploy"), ROOT / "fleet-example", ROOT / "schemas" / "crds"]
    # A chart's templates are no YAML; what they give is what the kustomizations give.
    files = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.yaml"))
        if "templates" not in path.parts
    ]
    return [
        (f"{path.relative_to(ROOT)} {name_of(one)}", one)
        for path in files
        for one in yaml.safe_load_all(path.read_text("utf-8"))
        if isinstance(one, dict)
    ]


SHIPPED = shipped()


def workloads() -> dict[str, Any]:
    """Return all that has a Pod template, by place and name."""
    manifests = {place: one for place, one in SHIPPED if get_map(one, "spec", "template", "spec")}
    made = {
        "the konnector of a fleet": konnector.deployment("x", {}, marks=UNMARKED, confined=True),
        "the konnector of a space": konnector.space_deployment(HOME, image="x", overrides={}),
    }
    return {**manifests, **made}


WORKLOADS = workloads()


def containers() -> dict[str, tuple[Any, Any]]:
    pods = {place: get_map(one, "spec", "template", "spec") for place, one in WORKLOADS.items()}
    return {
        f"{place}: {c['name']}": (pod, c)
        for place, pod in pods.items()
        for c in get_maps(pod, "containers")
    }


CONTAINERS = containers()


def test_all_programs_are_among_them():
    named = " ".join(CONTAINERS)
    for one in ("klutch-bind", "klutch-osb", "konnector", "controller", "job.yaml"):
        assert one in named


@pytest.mark.parametrize(("pod", "container"), CONTAINERS.values(), ids=CONTAINERS)
def test_a_pod_names_its_user_and_its_group(pod, container):
    """A kubelet takes the user of an image and not its group: that would be root's."""
    said = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert IDENTITY.items() <= said.items()
    confined = (
        said["allowPrivilegeEscalation"],
        said["readOnlyRootFilesystem"],
        said["seccompProfile"],
        said["capabilities"],
    )
    assert confined == (False, True, {"type": "RuntimeDefault"}, {"drop": ["ALL"]})


PROBED = {name: one for name, one in CONTAINERS.items() if "livenessProbe" in one[1]}


@pytest.mark.parametrize(("pod", "container"), PROBED.values(), ids=PROBED)
def test_a_first_probe_comes_once_the_program_can_listen(pod, container):
    """The others begin after it; one that comes too early leaves an Event on each Pod."""
    assert container["startupProbe"]["initialDelaySeconds"] == 2


def test_no_pipeline_deletes_what_outlives_its_file():
    kinds = {"Namespace", "Secret", "Lease", "FleetStatus"}
    lost = [
        place
        for place, one in SHIPPED
        if get_text(one, "kind") in kinds or place.startswith("schemas")
        if not annotations_of(one).items() >= keys.KEPT.items()
    ]
    assert lost == []

"""The fleet that people start from: it is valid, says what its README says, and fits a sandbox."""

import re
from pathlib import Path

import pytest

from klutchctl.sandbox import state
from reconciler.core.errors import Severity
from reconciler.fleet.compile import desired
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load
from reconciler.source import disk

EXAMPLE = Path(__file__).parents[2] / "fleet-example"


@pytest.fixture(scope="module")
def tree():
    return disk.read_folder(EXAMPLE)


@pytest.fixture(scope="module")
def fleet(tree):
    fleet, problems = load(tree)
    assert problems == ()
    return fleet


def test_objects(golden, fleet):
    lines = [f"{one.cluster}: {one.step} {one.ref}  {one.origin}" for one in desired(fleet)]
    golden("\n".join(lines) + "\n", "fleet-example.objects.txt")


def test_units_are_those_of_the_readme(fleet):
    rows = re.findall(
        r"^\| (\S+-eu-\d) \|(.*)\|$", (EXAMPLE / "README.md").read_text(), re.MULTILINE
    )
    resources = ("postgresqlinstances", "servicebindings", "backups", "restores")
    table = {
        (cluster, resource, binding.strip())
        for cluster, cells in rows
        for resource, binding in zip(resources, cells.split("|"), strict=True)
        if binding.strip()
    }
    assert table == {(key.cluster, key.resource, unit.binding) for key, unit in fleet.units.items()}


def test_secrets_come_down_for_service_bindings_only(fleet):
    claims = {
        (key.resource, claim.resource, claim.owner.value)
        for key, unit in fleet.units.items()
        for claim in unit.claims
    }
    assert claims == {("servicebindings", "secrets", "Provider")}


def test_a_sandbox_has_the_contexts_of_all_clusters(fleet):
    reached = {
        one.access.context for one in (*fleet.control_planes.values(), *fleet.clusters.values())
    }
    assert {wanted.context for wanted in state.of_fleet(fleet)} == reached


def test_control_planes_name_no_endpoint_so_that_a_sandbox_can_stand_in(fleet):
    assert {(one.endpoint, one.ca) for one in fleet.control_planes.values()} == {("", "")}


def test_a_service_outside_the_policy_is_denied_as_the_readme_says(tree):
    path = "bindings/team-b/analytics.yaml"
    changed = tree.files[path].replace(b"template: credentials", b"template: backup")
    fleet, problems = load(Snapshot({**tree.files, path: changed}, revision=""))
    assert fleet is None
    assert [one.severity for one in problems] == [Severity.DENIED]


def test_every_file_is_explained(tree):
    readme = (EXAMPLE / "README.md").read_text()
    patterns = re.findall(r"^\| `(\S+\.yaml)` \|", readme, re.MULTILINE)
    for path in tree.files:
        assert any(Path(path).match(pattern) for pattern in patterns), path

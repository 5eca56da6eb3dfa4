"""The clusters of a fleet repository, as far as a sandbox needs them."""

import re

import pytest

from klutchctl.sandbox import fleet_contexts
from klutchctl.sandbox.state import Role, Wanted
from reconciler.core.errors import ConfigError

API = "apiVersion: fleet.klutchctl.dev/v1alpha1\n"
CP = f"""{API}
kind: ControlPlane
metadata: {{name: eu}}
spec: {{access: {{kubeconfigContext: cp-eu}}}}
"""
SHOP = f"""{API}
kind: Cluster
metadata: {{name: shop}}
spec: {{access: {{kubeconfigContext: shop-1}}}}
"""
BINDING = f"{API}kind: Binding\nmetadata: {{name: db}}\nspec: {{template: pg}}\n"


def fleet(*include):
    return f"{API}kind: Fleet\nmetadata: {{name: acme}}\nspec: {{include: {list(include)!r}}}\n"


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


EXPECTED = (Wanted("cp-eu", Role.CONTROL_PLANE), Wanted("shop-1", Role.APP_CLUSTER))
FLEETS = {
    "all in one file": {"fleet.yaml": f"{CP}---\n{SHOP}---\n{BINDING}---\n"},
    "the other name": {"klutch-fleet.yaml": f"{CP}---\n{SHOP}"},
    "included files": {
        "fleet.yaml": fleet("cp/*.yaml", "clusters/**/*.yaml"),
        "clusters/eu/shop.yaml": SHOP,
        "cp/eu.yaml": CP,
        "notes.yaml": "not: ours",
    },
    "a glob that also matches the root": {"fleet.yaml": f"{fleet('*.yaml')}---\n{CP}---\n{SHOP}"},
}


@pytest.mark.parametrize("files", FLEETS.values(), ids=FLEETS.keys())
def test_clusters_and_their_roles(tmp_path, files):
    write(tmp_path, files)
    assert set(fleet_contexts.read(tmp_path)) == set(EXPECTED)


def test_the_root_file_may_be_named_itself(tmp_path):
    write(tmp_path, {"other.yaml": fleet("cp.yaml"), "cp.yaml": CP})
    assert fleet_contexts.read(tmp_path / "other.yaml") == EXPECTED[:1]


PROBLEMS = {
    "no root file": ({}, "holds neither of fleet.yaml"),
    "two root files": ({"fleet.yaml": CP, "klutch-fleet.yaml": CP}, "holds both"),
    "not YAML": ({"fleet.yaml": "a: [\n"}, "fleet.yaml:2:1: not YAML"),
    "not text": ({"fleet.yaml": "\x00"}, "fleet.yaml: not YAML"),
    "another tool's fleet.yaml": (
        {"fleet.yaml": "helm: {}\n"},
        "not of apiVersion fleet.klutchctl",
    ),
    "a list": ({"fleet.yaml": "- 1\n"}, "not of apiVersion"),
    "no control plane": ({"fleet.yaml": SHOP}, "no ControlPlane document"),
    "another way of access": (
        {"fleet.yaml": CP.replace("kubeconfigContext: cp-eu", "inCluster: true")},
        "ControlPlane eu: spec.access.kubeconfigContext is missing",
    ),
    "spec of another type": (
        {"fleet.yaml": f"{API}kind: Cluster\nspec: 7\n"},
        "Cluster without a name: spec.access",
    ),
    "one context twice": (
        {"fleet.yaml": f"{CP}---\n{SHOP.replace('shop-1', 'cp-eu')}"},
        "'cp-eu' belongs to another cluster",
    ),
    "an include that climbs out": ({"fleet.yaml": fleet("../*.yaml")}, "leaves the repository"),
    "an absolute include": ({"fleet.yaml": fleet("/etc/*.yaml")}, "leaves the repository"),
    "an include of another type": (
        {"fleet.yaml": fleet().replace("[]", "{a: b}")},
        "not a list of globs",
    ),
    "an included file that is broken": (
        {"fleet.yaml": fleet("x/*"), "x/a.yaml": "{"},
        "x/a.yaml:2:1: not YAML",
    ),
}


@pytest.mark.parametrize(("files", "says"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(tmp_path, files, says):
    write(tmp_path, files)
    with pytest.raises(ConfigError, match=re.escape(says)):
        fleet_contexts.read(tmp_path)


def test_a_link_does_not_lead_out_of_the_repository(tmp_path):
    write(tmp_path, {"repo/fleet.yaml": fleet("x/*.yaml"), "secret.yaml": CP})
    (tmp_path / "repo/x").mkdir()
    (tmp_path / "repo/x/a.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(ConfigError, match="leaves the repository"):
        fleet_contexts.read(tmp_path / "repo")


def test_an_absent_path(tmp_path):
    with pytest.raises(ConfigError, match="absent: cannot be read: No such file"):
        fleet_contexts.read(tmp_path / "absent")

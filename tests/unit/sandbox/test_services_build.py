"""What is built for services: patched, renamed, with its CRDs, and by nobody else's recipe."""

from dataclasses import replace
from pathlib import Path

import pytest

from klutchctl.commands.sandbox import Crossplane
from klutchctl.sandbox import binaries, go_build, recipes
from klutchctl.sandbox.recipes import Patch

MODULE = "example.com/provider"
RECIPE = replace(
    recipes.of_provider(),
    packages={"provider-example": f"{MODULE}/cmd/provider"},
    crds=((MODULE, "package/crds"),),
    patches=(
        Patch(MODULE, "main.go", ":80", "127.0.0.1:80"),
        Patch(MODULE, "main.go", "old", "new"),
        Patch(MODULE, "other.go", "x", "y"),
    ),
)


@pytest.fixture
def source(workshop):
    """The module as the toolchain has fetched it: nobody may write there."""
    workshop.go()
    workshop.environ["FAKE_PROGRAMS"] = "provider"
    folder = workshop.home / "modules" / MODULE
    (folder / "package" / "crds").mkdir(parents=True)
    (folder / "package" / "crds" / "a.yaml").write_text("kind: CustomResourceDefinition\n")
    (folder / "main.go").write_text("listen(:80) listen(:80) old")
    (folder / "other.go").write_text("x")
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def provide(workshop, recipe=RECIPE):
    return binaries.provide_built(workshop.place, recipe, progress=workshop.progress)


def test_executables_bear_the_names_of_programs_and_the_crds_are_beside_them(workshop, source):
    entry = provide(workshop)
    assert (entry / "provider-example").is_file()
    assert not (entry / "provider").exists()
    assert (entry / go_build.CRDS / "provider" / "a.yaml").is_file()
    assert provide(workshop) == entry
    assert workshop.builds == 1


def test_files_are_changed_for_the_build_alone(workshop, source):
    provide(workshop)
    used = workshop.home / "used"
    assert (used / "0" / "main.go").read_text() == "listen(127.0.0.1:80) listen(127.0.0.1:80) new"
    assert (used / "0" / "other.go").read_text() == "y"
    *original, replacement = (used / "go.mod").read_text().splitlines()
    assert original == (RECIPE.module / "go.mod").read_text().splitlines()
    by = Path(replacement.removeprefix(f"replace {MODULE} => "))
    assert by.name == "0"
    assert workshop.place.cache.folder in by.parents, "a kill would leave it for ever"
    assert not by.exists()
    assert (used / "go.sum").read_bytes() == (RECIPE.module / "go.sum").read_bytes()
    assert (source / "main.go").read_text() == "listen(:80) listen(:80) old"


def test_a_patch_that_fits_nowhere_is_a_mistake_of_ours(workshop, source):
    (source / "other.go").chmod(0o644)
    (source / "other.go").write_text("z")
    with pytest.raises(AssertionError, match=r"other\.go has nothing like 'x'"):
        provide(workshop)
    assert workshop.entries() == set()


def test_versions_are_those_of_the_modules_and_the_id_knows_the_patches(monkeypatch):
    recipe = recipes.of_provider()
    assert recipe.versions == "provider-kubernetes v1.2.1"
    for line in Crossplane:
        assert recipes.of_crossplane(line).id.startswith(f"v{line}.")
    monkeypatch.setattr(recipes, "_PROVIDER_ON_LOOPBACK", ())
    assert recipes.of_provider().id != recipe.id

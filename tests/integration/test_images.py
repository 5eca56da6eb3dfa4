"""The images, built here without a registry: what they hold, and that their programs start.

They are built by `make images`' own code, into its cache. A program starts as the user of its
image, on a root that is read-only.
"""

import json
import os
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import cyclonedx.schema
import jsonschema
import pytest
from packaging.utils import canonicalize_name
from referencing import Registry, Resource

from klutchctl.settings import Settings
from tests.images import archive, base, building, sbom
from tests.images.archive import Image
from tests.support import house
from tests.support.shells import ran

PROGRAMS = {
    "klutch-bind": ("klutch-bind", "klutch-osb"),
    "konnector": ("konnector",),
    "klutchctl": ("klutchctl", "kubectl-bind"),
}
# As `buildah run` does, but for the root that nothing can be written to.
READ_ONLY = (
    'mount --bind "$0" "$0" && mount --rbind /dev "$0/dev" && mount -o remount,bind,ro "$0" && '
    "user=$1 && shift && "
    'exec chroot --userspec="$user" --groups= "$0" "$@"'
)
IMPORT_ALL = (
    "import importlib, pkgutil, sys\n"
    "package = importlib.import_module(sys.argv[1])\n"
    "for one in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):\n"
    "    importlib.import_module(one.name)\n"
)


class Built(NamedTuple):
    """An image, and the contents of the files that say which packages it has."""

    name: str
    image: Image
    files: dict[str, bytes]


def why_not() -> str:
    return base.missing() or ("" if os.geteuid() == 0 else "images are started by root only")


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "they are built")
BUILDER = building.Builder(Settings(os.environ).cache_home / "klutchctl" / "images")


@pytest.fixture(scope="module")
def images():
    paths = BUILDER.build([*building.IMAGES])
    found = {name: archive.read(path) for name, path in paths.items()}
    return {name: Built(name, one, one.files(sbom.tells)) for name, one in found.items()}


@pytest.fixture(params=[*building.IMAGES])
def built(request, images):
    return images[request.param]


def started(built, root, *command):
    config = built.image.config["config"]
    environ = dict(one.split("=", 1) for one in config["Env"])
    environ["PATH"] += ":/usr/sbin:/sbin"
    inside = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(root), config["User"]]
    return ran([*inside, *command], env=environ)


def test_programs_start_as_another_user_than_root_on_a_root_that_is_read_only(built):
    python = "/app/bin/python"
    with BUILDER.root(built.name) as root:
        who = "import os; print(os.getuid(), os.getgid(), os.getgroups())"
        assert started(built, root, python, "-c", who).stdout == "65532 65532 []\n"
        refused = started(built, root, python, "-c", "open('/tmp/x', 'w')")
        assert "Read-only file system" in refused.stderr
        for program in PROGRAMS[built.name]:
            for flag in ("--help", "--version"):
                done = started(built, root, f"/app/bin/{program}", flag)
                assert (done.returncode, done.stderr) == (0, ""), done.stderr
                assert done.stdout
        if built.name != "klutchctl":  # that has all packages there are
            done = started(built, root, python, "-c", IMPORT_ALL, building.IMAGES[built.name][0])
            assert (done.returncode, done.stderr) == (0, "")
        else:
            done = started(built, root, "sh", "-ec", "git --version; python3 -m json.tool --help")
            assert done.returncode == 0, done.stderr


def test_an_image_is_small_and_labelled(built):
    config = built.image.config["config"]
    assert built.image.size < 120e6
    assert config["User"] == "65532:65532"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == built.name
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(labels["org.opencontainers.image.description"]) > 20


WANTED_BY_NOBODY = re.compile(
    r".*/(pip|ensurepip|setuptools|hatchling|pytest)/.*|/usr/lib/python3[\d.]*/test/.*"
    r"|.*/bin/(pip[\d.]*|gcc|cc|c\+\+|as|ld|apt|apt-get|dpkg|perl|su|mount|curl|wget)"
)
OURS = re.compile(r"/app/lib/python3\.13/site-packages/(klutchctl|reconciler|konnector|bind)/")


def test_there_is_nothing_to_install_or_to_build_with(built):
    found = [path for path in built.files if WANTED_BY_NOBODY.fullmatch(path)]
    assert found == []
    programs = {path.rpartition("/")[2] for path in built.files if path.startswith("/app/bin/")}
    assert programs == {*PROGRAMS[built.name], "python", "python3", "python3.13"}
    assert ("/usr/bin/dash" in built.files) is (built.name == "klutchctl")


def test_modules_are_compiled_and_none_when_a_program_starts(built):
    modules = [path for path in built.files if OURS.match(path) and path.endswith(".py")]
    inside = {path.partition("site-packages/")[2] for path in modules}
    assert {str(one.relative_to(house.ROOT)) for one in house.sources(*house.PROGRAMS)} <= inside
    for path in modules:
        folder, _, name = path.rpartition("/")
        assert f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-313.pyc" in built.files


def test_a_bill_of_materials_is_valid_and_names_every_package(built):
    document = json.loads(sbom.of(built.image, built.name, built.files))
    folder = resources.files(cyclonedx.schema) / "_res"
    schemas = {
        name: json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text("utf-8"))
        for name in ("bom-1.6", "jsf-0.82", "spdx")
    }
    places = {
        f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": Resource.from_contents(one)
        for name, one in schemas.items()
    }
    beside = Registry().with_resources(places.items())
    validator = jsonschema.Draft7Validator(schemas["bom-1.6"], registry=beside)
    assert [one.message for one in validator.iter_errors(document)] == []
    named = [one["purl"].partition("@")[0] for one in document["components"]]
    assert len(named) == len({*named})
    folders = {
        path.split(".dist-info/")[0].rpartition("/")[2]
        for path in built.files
        if ".dist-info/" in path
    }
    names = {canonicalize_name(one.rpartition("-")[0]) for one in folders}
    assert {f"pkg:pypi/{one}" for one in names} == {one for one in named if "pypi" in one}
    lists = {
        path.rpartition("/")[2].removesuffix(".list").partition(":")[0]
        for path in built.files
        if path.startswith("/var/lib/dpkg/info/")
    }
    assert {f"pkg:deb/debian/{one}" for one in lists} == {one for one in named if "deb" in one}
    assert {"pkg:pypi/klutchctl", "pkg:pypi/httptools", "pkg:deb/debian/libc6"} <= {*named}


@pytest.mark.soak
def test_the_same_sources_give_the_same_layers_byte_for_byte(images, tmp_path):
    """Nothing of the first build is taken, and the files have other places and times."""
    lines = (building.ROOT / ".containerignore").read_text("utf-8").splitlines()
    for name in (one[1:] for one in lines if one.startswith("!")):
        whole = building.ROOT / name
        (shutil.copytree if whole.is_dir() else shutil.copyfile)(whole, tmp_path / name)
    os.utime(tmp_path / "pyproject.toml", (1, 1))
    shutil.copyfile(building.ROOT / ".containerignore", tmp_path / ".containerignore")
    again = building.Builder(BUILDER.folder, checkout=Path(tmp_path))
    for name, path in again.build([*building.IMAGES], cached=False).items():
        image, first = archive.read(path), images[name].image
        assert (image.layers, image.digest) == (first.layers, first.digest)

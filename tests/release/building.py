"""Builds the files of a release from one commit: what is not committed is in none of them."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.images import __main__ as image_program
from tests.images import base
from tests.images import building as image_building
from tests.release import archives, evidence

CHARTS: Final = ("bind", "klutchctl", "konnector")  # the programs that have one
IMAGES: Final = tuple(sorted(image_building.IMAGES))


class Failed(Exception):
    """A release cannot be built; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of a commit; `epoch`: its time, in seconds."""

    folder: Path
    commit: str
    epoch: int

    @property
    def version(self) -> str:
        """Return the version that pyproject.toml names."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))
        return str(project["project"]["version"])

    def locks(self) -> dict[str, str]:
        """Return the digests of the files that pin what is installed, by their paths."""
        patterns = ("requirements*.txt", "*/deploy/requirements.txt")
        found = [path for pattern in patterns for path in self.folder.glob(pattern)]
        return {path.relative_to(self.folder).as_posix(): evidence.digest(path) for path in found}


@contextmanager
def checked_out(repository: Path, commit: str = "HEAD") -> Iterator[Checkout]:
    """Yield the files of a commit, in a folder of their own. Raises Failed."""
    shown = _git(repository, "show", "--no-patch", "--format=%H %ct", f"{commit}^{{commit}}")
    name, time = shown.decode().split()
    with tempfile.TemporaryDirectory(prefix="klutchctl-release-") as text:
        folder = Path(text)
        content = io.BytesIO(_git(repository, "archive", "--format=tar", name))
        with tarfile.open(fileobj=content) as tar:
            tar.extractall(folder, filter="data")
        yield Checkout(folder=folder, commit=name, epoch=int(time))


def require_tag(tag: str, version: str) -> None:
    """Raise Failed unless a tag, where there is one, is that of the version."""
    if tag and tag != f"v{version}":
        raise Failed(
            f"tag {tag} is not that of version {version} in pyproject.toml: tag v{version}, or"
            " change the version"
        )


def packages(checkout: Checkout, target: Path) -> Path:
    """Write the wheel and the sdist, and return the path of the wheel. Raises Failed."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", target],
        cwd=checkout.folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(checkout.epoch)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"hatchling: {done.stderr.strip()}")
    (wheel,) = target.glob("*.whl")
    return wheel


def charts(checkout: Checkout, target: Path) -> list[Path]:
    """Write the charts as `helm package` lays them out, and return their paths."""
    made = []
    for program in CHARTS:
        folder = checkout.folder / program / "deploy" / "chart"
        about = yaml.safe_load((folder / "Chart.yaml").read_text("utf-8"))
        path = target / f"{about['name']}-{about['version']}.tgz"
        files = archives.files_below(folder, about["name"])
        archives.pack(path, files, epoch=checkout.epoch, gzipped=True)
        made.append(path)
    return made


def crds(checkout: Checkout, target: Path) -> list[Path]:
    """Write the CRDs of each folder of `schemas` into one file, and return their paths."""
    made = []
    for folder, name in (("crds", "crds"), ("dataservices", "crds-dataservices")):
        files = sorted((checkout.folder / "schemas" / folder).glob("*.yaml"))
        texts = [re.sub(r"\A---\n", "", file.read_text("utf-8")).rstrip("\n") for file in files]
        path = target / f"klutchctl-{checkout.version}-{name}.yaml"
        path.write_text("\n---\n".join(texts) + "\n", "utf-8")
        made.append(path)
    return made


def images(checkout: Checkout, target: Path, *, fresh: bool) -> list[Path]:
    """Write the images, as OCI archives, and their SBOMs, and return all paths. Raises Failed.

    `fresh`: take nothing of an earlier build but the packages that it has downloaded.
    """
    if missing := base.missing():
        raise Failed(f"{missing}, or leave the images out by --without-images")
    builder = image_building.Builder(image_program.cache_folder(), checkout=checkout.folder)
    try:
        built = builder.build([*IMAGES], cached=not fresh)
    except image_building.Failed as error:
        raise Failed(str(error)) from None
    return [path for name in IMAGES for path in image_program.write(name, built[name], target)]


def given_images(folder: Path, target: Path) -> list[Path]:
    """Copy images and SBOMs that were built before, and return the paths. Raises OSError."""
    names = [f"{name}.{kind}" for name in IMAGES for kind in ("oci.tar", "cdx.json")]
    return [Path(shutil.copyfile(folder / name, target / name)) for name in names]


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    if done.returncode != 0:
        raise Failed(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout

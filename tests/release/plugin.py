"""Packs klutchctl as a plug-in of kubectl, and writes its manifest for krew.

An archive holds the packages of the lock for each Python that there are wheels for, side by side:
what is compiled for one has a name of its own. So it needs a Python, and no pip and no network.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from tests.release import archives, evidence
from tests.release.building import Checkout, Failed

PYTHONS: Final = ("3.11", "3.12", "3.13")
# By system and architecture, as krew names them: the tags of wheels, the preferred ones first.
PLATFORMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("linux", "amd64"): tuple(f"manylinux_2_{one}_x86_64" for one in (28, 26, 17, 12, 5)),
    ("linux", "arm64"): tuple(f"manylinux_2_{one}_aarch64" for one in (28, 26, 17)),
    ("darwin", "arm64"): ("macosx_12_0_arm64", "macosx_11_0_arm64", "macosx_11_0_universal2"),
}
LOCK: Final = "klutchctl/deploy/requirements.txt"
_LAUNCHER: Final = Path(__file__).with_name("kubectl-klutchctl.sh")
_ABOUT: Final = (
    "Validates, plans and applies which services of control planes are bound in which app clusters,"
    " from files: with guards, previews for pull requests, and a status of all."
)
_CAVEATS: Final = f"Needs Python {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]} on PATH."


def archive(checkout: Checkout, wheel: Path, platform: tuple[str, str], target: Path) -> Path:
    """Write the archive of a platform, and return its path. Raises Failed."""
    path = target / f"kubectl-klutchctl-{checkout.version}-{'-'.join(platform)}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="klutchctl-wheels-") as text:
        folders = [Path(text, python) for python in PYTHONS]
        for python, folder in zip(PYTHONS, folders, strict=True):
            download(checkout.folder / LOCK, python, PLATFORMS[platform], folder)
        found = [one for folder in folders for one in sorted(folder.glob("*.whl"))]
        files: dict[str, Path | bytes] = {
            f"packages/{name}": content for name, content in unpacked([*found, wheel]).items()
        }
    files["kubectl-klutchctl"] = _LAUNCHER
    files["LICENSE"] = checkout.folder / "LICENSE"
    archives.pack(path, files, epoch=checkout.epoch, gzipped=True)
    return path


def write(checkout: Checkout, wheel: Path, target: Path, address: str) -> list[Path]:
    """Write an archive for each platform, and the manifest; return the paths. Raises Failed."""
    made = {platform: archive(checkout, wheel, platform, target) for platform in PLATFORMS}
    digests = {one: (path.name, evidence.digest(path)) for one, path in made.items()}
    text = manifest(digests, checkout.version, address)
    path = target / f"kubectl-klutchctl-{checkout.version}.krew.yaml"
    path.write_text(text, "utf-8")
    return [*made.values(), path]


def download(lock: Path, python: str, tags: Iterable[str], target: Path) -> None:
    """Download the wheels that a lock names. Raises Failed."""
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    options += ["--implementation=cp", f"--python-version={python}", f"--dest={target}"]
    options += [f"--platform={tag}" for tag in tags]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-r", str(lock)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"pip download: {done.stderr.strip()}")


def unpacked(wheels: Iterable[Path]) -> dict[str, bytes]:
    """Return the files of wheels by name; of several of a name, the first.

    That is right for all of them: a library of the stable ABI works with each later Python, and
    what else differs is how a wheel was made.
    """
    files: dict[str, bytes] = {}
    for name, content in _members(wheels):
        files.setdefault(name, content)
    return files


def _members(wheels: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            for member in opened.infolist():
                # What is for other folders than the packages' is of no use here.
                if not member.is_dir() and ".data/" not in member.filename:
                    yield member.filename, opened.read(member)


def manifest(digests: Mapping[tuple[str, str], tuple[str, str]], version: str, address: str) -> str:
    """Return the manifest for krew.

    `digests`: the name and the SHA-256 of the archive of each platform; `address`: where these are.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "klutchctl"},
            "spec": {
                "version": f"v{version}",
                "homepage": address,
                "shortDescription": "Bind services in fleets of clusters, from files",
                "description": _ABOUT,
                "caveats": _CAVEATS,
                "platforms": [
                    {
                        "selector": {"matchLabels": {"os": system, "arch": architecture}},
                        "uri": f"{address}/{name}",
                        "sha256": digest,
                        "bin": "kubectl-klutchctl",
                    }
                    for (system, architecture), (name, digest) in digests.items()
                ],
            },
        },
        sort_keys=False,
        width=1000,
    )

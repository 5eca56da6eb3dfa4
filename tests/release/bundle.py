"""Packs what an installation without a network needs into one archive."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.images import archive
from tests.release import archives, evidence
from tests.release.building import Checkout

IMAGES: Final = "images.txt"
_INSTALL: Final = Path(__file__).with_name("airgap.md")
_ARCHIVE: Final = ".oci.tar"
_DEPLOY: Final = ("bind", "klutchctl", "konnector")
_LEFT_OUT: Final = shutil.ignore_patterns("chart", "Containerfile", "requirements.txt")


def mirror_list(digests: Mapping[str, str], version: str) -> str:
    """Return the list of images to mirror: repository and tag, digest, and file of each.

    `digests`: those of the manifests, by the names of images.
    """
    return "".join(
        f"klutchctl/{name}:{version} {digest} images/{name}{_ARCHIVE}\n"
        for name, digest in sorted(digests.items())
    )


def write(target: Path, checkout: Checkout, made: Sequence[Path]) -> None:
    """Write the bundle. `made`: images, SBOMs, charts and CRDs, which are put into their folders.

    Checksums are in it, too. The bundle is signed as a whole, as all files of a release are.
    """
    version = checkout.version
    with tempfile.TemporaryDirectory(prefix="klutchctl-airgap-", dir=target.parent) as text:
        top = Path(text)
        for path in made:
            place = top / _folder(path)
            place.mkdir(exist_ok=True)
            os.link(path, place / path.name)
        for program in _DEPLOY:
            manifests = top / "manifests" / program / "deploy"
            shutil.copytree(checkout.folder / program / "deploy", manifests, ignore=_LEFT_OUT)
        images = {path.name.removesuffix(_ARCHIVE): path for path in made if path.suffix == ".tar"}
        digests = {name: archive.read(path).digest for name, path in images.items()}
        (top / IMAGES).write_text(mirror_list(digests, version), "utf-8")
        install = _INSTALL.read_text("utf-8").replace("VERSION", version)
        (top / "INSTALL.md").write_text(install, "utf-8")
        evidence.seal(top)
        files = archives.files_below(top, target.name.removesuffix(".tar"))
        archives.pack(target, files, epoch=checkout.epoch, gzipped=False)


def _folder(path: Path) -> str:
    return {".tgz": "charts", ".yaml": "crds"}.get(path.suffix, "images")

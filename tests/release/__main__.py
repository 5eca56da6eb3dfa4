"""`python -m tests.release`: write a release of HEAD into dist/."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.release import building, bundle, evidence, plugin

ROOT: Final = Path(__file__).parents[2]
NAMED: Final = 3  # of files in the way
_DOWNLOADS: Final = "https://releases.example.com/klutchctl"


def main(arguments: Sequence[str]) -> int:
    """Build, and return the exit code. Errors go to stderr."""
    said = parser().parse_args(arguments)
    try:
        with building.checked_out(said.repository) as checkout:
            release(said, checkout)
    except (building.Failed, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make release", description=__doc__)
    made.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    made.add_argument("--repository", type=Path, default=ROOT, metavar="FOLDER")
    made.add_argument("--tag", default="", help="has to be that of the version, as v0.1.0")
    made.add_argument("--source", default="", metavar="URI", help="of the repository")
    made.add_argument("--builder", default=evidence.LOCAL, metavar="URI")
    images = made.add_mutually_exclusive_group()
    help_ = "where they are built already: NAME.oci.tar and NAME.cdx.json of each"
    images.add_argument("--images", type=Path, default=None, metavar="FOLDER", help=help_)
    help_ = "no images, and no bundle, which is made of them"
    images.add_argument("--without-images", action="store_true", help=help_)
    images.add_argument("--fresh", action="store_true", help="build images from their first layer")
    made.add_argument("--without-plugins", action="store_true", help="nothing for krew")
    help_ = "of the folder that the plug-ins are downloaded from, for the manifest"
    made.add_argument("--downloads", default=_DOWNLOADS, metavar="URI", help=help_)
    return made


def release(said: argparse.Namespace, checkout: building.Checkout) -> None:
    """Write the files, then what vouches for them. An earlier release there goes, as a whole."""
    building.require_tag(said.tag, checkout.version)
    require_ours(said.output)
    with tempfile.TemporaryDirectory(prefix="klutchctl-dist-") as text:
        made = Path(text)
        build(said, checkout, made)
        source = evidence.Source(commit=checkout.commit, uri=said.source, tag=said.tag)
        vouch(made, source, checkout.locks(), said.builder)
        replace(said.output, made)
    report(said.output, checkout)


def build(said: argparse.Namespace, checkout: building.Checkout, made: Path) -> None:
    """Write all that a release is made of into a folder."""
    wheel = building.packages(checkout, made)
    packed = [*building.charts(checkout, made), *building.crds(checkout, made)]
    if not said.without_plugins:
        plugin.write(checkout, wheel, made, said.downloads)
    if said.without_images:
        return
    if said.images is None:
        images = building.images(checkout, made, fresh=said.fresh)
    else:
        images = building.given_images(said.images, made)
    target = made / f"klutchctl-{checkout.version}-airgap.tar"
    bundle.write(target, checkout, [*images, *packed])


def vouch(folder: Path, source: evidence.Source, locks: Mapping[str, str], builder: str) -> None:
    """Write provenance and checksums of all files of a folder into it."""
    digests = {path.name: evidence.digest(path) for path in folder.iterdir()}
    stated = evidence.statement(digests, source, locks, builder)
    (folder / evidence.PROVENANCE).write_text(json.dumps(stated, indent=1) + "\n", "utf-8")
    evidence.seal(folder)


def require_ours(folder: Path) -> None:
    """Raise Failed where a folder has files that are not of an earlier release: it goes whole."""
    sums = folder / evidence.SUMS
    lines = sums.read_text("utf-8", errors="replace").splitlines() if sums.is_file() else []
    named = {line.partition("  ")[2] for line in lines}
    ours = {*named, evidence.SUMS, *evidence.SIGNATURES} if evidence.PROVENANCE in named else set()
    found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if others := [name for name in found if name not in ours | {"site"}]:  # of `make docs`
        raise building.Failed(
            f"{folder} has files that are no release: {', '.join(others[:NAMED])}."
            " Move them, or give another --output"
        )


def replace(folder: Path, made: Path) -> None:
    """Put the files that were made in the place of those of an earlier release."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(made, folder)


def report(folder: Path, checkout: building.Checkout) -> None:
    """Print what a release is made of."""
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:12,}  {path.name}")
    print(f"Version {checkout.version} of commit {checkout.commit[:12]} is in {folder}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

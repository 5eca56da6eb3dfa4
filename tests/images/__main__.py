"""`python -m tests.images`: build the images, and write an SBOM beside each."""

import argparse
import os
import sys
from pathlib import Path

from klutchctl.settings import Settings
from tests.images import archive, base, building, sbom


def cache_folder() -> Path:
    """Return the folder of what builds have left for later ones."""
    return Settings(os.environ).cache_home / "klutchctl" / "images"


def main(arguments: list[str]) -> int:
    cache = cache_folder()
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("--pull", action="store_true", help="build on the image of a registry")
    parser.add_argument("--output", type=Path, default=cache)
    parser.add_argument("names", nargs="*", default=[*building.IMAGES], metavar="NAME")
    said = parser.parse_args(arguments)
    if missing := base.missing(pull=said.pull):
        print(f"Error: {missing}", file=sys.stderr)
        return 1
    builder = building.Builder(cache, own=not said.pull)
    try:
        built = builder.build(said.names)
    except building.Failed as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    said.output.mkdir(parents=True, exist_ok=True)
    for name, path in built.items():
        target, _ = write(name, path, said.output)
        image = archive.read(target)
        print(f"{name:12}{image.size / 1e6:5.0f} MB  {image.digest}  {target}")
    return 0


def write(name: str, built: Path, folder: Path) -> tuple[Path, Path]:
    """Copy an archive into a folder, write its SBOM beside it, and return both."""
    image = archive.read(built)
    target = folder / f"{name}.oci.tar"
    archive.copy(built, target, epoch=base.EPOCH)
    listed = folder / f"{name}.cdx.json"
    listed.write_text(sbom.of(image, name, image.files(sbom.tells)), "utf-8")
    return target, listed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.release.scan`: asks whether Debian has mended what an image of dist/ has.

The packages of Python in it are those of the locks, for which `make audit` asks.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.images import archive, base
from tests.images.building import Failed

ROOT: Final = Path(__file__).parents[2]
_STATUS: Final = "/var/lib/dpkg/status"


def main(arguments: Sequence[str]) -> int:
    """Print what is found; return 1 if anything is, or could not be looked for."""
    folder = Path(arguments[0]) if arguments else ROOT / "dist"
    archives = sorted(folder.glob("*.oci.tar"))
    if not archives:
        print(f"Error: no image is in {folder}: run `make release`", file=sys.stderr)
        return 1
    try:
        found = {path.name: vulnerable(packages(path)) for path in archives}
    except Failed as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for name, lines in found.items():
        print(f"{name}: {len(lines)} known to Debian, and mended by it", *lines, sep="\n  ")
    return int(any(found.values()))


def packages(path: Path) -> bytes:
    """Return what dpkg notes of the packages in an image."""
    return archive.read(path).files(lambda name: name == _STATUS)[_STATUS]


def vulnerable(noted: bytes) -> list[str]:
    """Return a line for each vulnerability in these packages that a newer one mends.

    Raises Failed where debsecan is not there, or does not reach Debian's database.
    """
    with tempfile.NamedTemporaryFile(suffix=".status") as status:
        status.write(noted)
        status.flush()
        command = ["debsecan", f"--suite={base.SUITE}", f"--status={status.name}", "--only-fixed"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Failed("debsecan is not there: apt-get install debsecan") from None
    if done.returncode:
        raise Failed(f"debsecan: {done.stderr.strip()}")
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

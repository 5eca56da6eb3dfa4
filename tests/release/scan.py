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

ROOT: Final = Path(__file__).parents[2]
_STATUS: Final = "/var/lib/dpkg/status"


def main(arguments: Sequence[str]) -> int:
    """Print what is found, and return 1 if anything is, or if there is nothing to look at."""
    folder = Path(arguments[0]) if arguments else ROOT / "dist"
    archives = sorted(folder.glob("*.oci.tar"))
    found = {path.name: vulnerable(path) for path in archives}
    for name, lines in found.items():
        print(f"{name}: {len(lines)} known to Debian, and mended by it", *lines, sep="\n  ")
    if not archives:
        print(f"Error: no image is in {folder}: run `make release`", file=sys.stderr)
    return int(not archives or any(found.values()))


def vulnerable(path: Path) -> list[str]:
    """Return a line for each vulnerability in the packages of an image that a newer one mends."""
    files = archive.read(path).files(lambda name: name == _STATUS)
    with tempfile.NamedTemporaryFile(suffix=".status") as status:
        status.write(files[_STATUS])
        status.flush()
        command = ["debsecan", f"--suite={base.SUITE}", f"--status={status.name}", "--only-fixed"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

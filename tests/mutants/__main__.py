"""`python -m tests.mutants [names]`: break the product in each way, and see tests fail of it."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutations import ALL, Mutation, places

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("klutchctl", "konnector", "bind", "reconciler", "schemas", "tests")
_FAILED: Final = 1  # of pytest: tests ran, and some failed


def main(names: Sequence[str]) -> int:
    chosen = [one for one in ALL if not names or one.name in names]
    alive = [one for one in chosen if not _is_noticed(one)]
    for one in alive:
        print(f"ALIVE {one.name}: {one.breaks}; {', '.join(one.tests)} do not notice")
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants are noticed")
    return 1 if alive else 0


def _is_noticed(mutation: Mutation) -> bool:
    ((file, text),) = places(mutation, ROOT)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for name in _COPIED:
            shutil.copytree(ROOT / name, Path(folder, name), symlinks=True)
        for extra in ("pyproject.toml", "fleet-example"):
            Path(folder, extra).symlink_to(ROOT / extra)
        Path(folder, file.relative_to(ROOT)).write_text(text)
        run = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run([*run, *mutation.tests], cwd=folder, capture_output=True, text=True)
    print("." if done.returncode == _FAILED else "A", end="", flush=True)
    if done.returncode not in (0, _FAILED):
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode == _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

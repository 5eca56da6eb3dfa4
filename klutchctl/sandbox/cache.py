"""Finished sets of executables: complete or absent, made by one run at a time."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import disk
from klutchctl.sandbox.progress import Progress

_CONTENTS: Final = "contents.json"
_DRAFT: Final = ".draft-"


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder that holds one entry per release of a subject, such as "the control plane"."""

    folder: Path
    subject: str

    def entry(self, release_id: str) -> Path:
        """Return where the executables of a release are, or will be."""
        return self.folder / release_id

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold off other runs, and clear away what killed ones left."""
        with ExitStack() as held:
            with disk.refusal_told(self.folder, variable="XDG_CACHE_HOME"):
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = self.folder / ".lock"
                held.enter_context(
                    files.exclusive(lock, f"the binaries of {self.subject}", progress)
                )
            for draft in self.folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft, ignore_errors=True)
            yield

    @contextmanager
    def draft(self, release_id: str) -> Iterator[Path]:
        """Give the block an empty folder, and make it the entry if the block ends well.

        The list of its contents goes with it: `damage` compares.
        """
        target = self.entry(release_id)
        draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{_DRAFT}{release_id}-"))
        try:
            yield draft
            found = sorted(path for path in draft.rglob("*") if path.is_file())
            sizes = {str(path.relative_to(draft)): path.stat().st_size for path in found}
            (draft / _CONTENTS).write_text(json.dumps(sizes))
            draft.chmod(0o755)
            if target.exists():  # damaged; away in one step, for servers may run from it
                target.rename(Path(tempfile.mkdtemp(dir=self.folder, prefix=_DRAFT)) / "old")
            draft.rename(target)
        finally:
            for left in self.folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)


def damage(entry: Path, executables: Iterable[str]) -> str | None:
    """Return what is wrong with an existing entry, None where it is whole."""
    try:
        sizes = json.loads((entry / _CONTENTS).read_text())
    except (OSError, ValueError):
        return f"{_CONTENTS} cannot be read"
    if not isinstance(sizes, Mapping):
        return f"{_CONTENTS} cannot be read"
    for program in executables:
        if not (entry / program).is_file() or not os.access(entry / program, os.X_OK):
            return f"{program} is not an executable file"
    for name in sorted({*sizes, *executables}):
        file = entry / name
        if not file.is_file() or file.stat().st_size != sizes.get(name):
            return f"{name} has another size than when it was made"
    return None

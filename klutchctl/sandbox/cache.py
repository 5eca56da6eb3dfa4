"""Finished sets of executables: complete or absent, made by one run at a time."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import disk
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.progress import Progress

_CONTENTS: Final = "contents.json"
_DRAFT: Final = ".draft-"


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder that holds one entry per release."""

    folder: Path

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
                held.enter_context(files.exclusive(lock, "the control plane's binaries", progress))
            for draft in self.folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft, ignore_errors=True)
            yield

    @contextmanager
    def draft(self, release_id: str) -> Iterator[Path]:
        """Give the block an empty folder, and make it the entry if the block ends well."""
        target = self.entry(release_id)
        draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{_DRAFT}{release_id}-"))
        try:
            yield draft
            sizes = {program: (draft / program).stat().st_size for program in Program}
            (draft / _CONTENTS).write_text(json.dumps(sizes))
            draft.chmod(0o755)
            if target.exists():  # damaged; away in one step, for servers may run from it
                target.rename(Path(tempfile.mkdtemp(dir=self.folder, prefix=_DRAFT)) / "old")
            draft.rename(target)
        finally:
            for left in self.folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)


def damage(entry: Path) -> str | None:
    """Return what is wrong with an existing entry, None where it is whole."""
    try:
        sizes = json.loads((entry / _CONTENTS).read_text())
    except (OSError, ValueError):
        return f"{_CONTENTS} cannot be read"
    if not isinstance(sizes, Mapping):
        return f"{_CONTENTS} cannot be read"
    for program in Program:
        file = entry / program
        if not file.is_file() or not os.access(file, os.X_OK):
            return f"{program} is not an executable file"
        if file.stat().st_size != sizes.get(program):
            return f"{program} has another size than when it was made"
    return None

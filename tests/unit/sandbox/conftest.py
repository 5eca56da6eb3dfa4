"""A stand-in for `go`, and a progress that remembers."""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from klutchctl.sandbox import binaries, recipes
from klutchctl.sandbox.binaries import Cache, Origins
from klutchctl.sandbox.binaries import Workshop as Place
from klutchctl.sandbox.servers import Program

# Says what it was asked, and does what $FAKE_GO says instead of building.
FAKE_GO = """\
#!/bin/sh
if [ "$1" = env ]; then
  echo "$FAKE_GO_VERSION"
  exit 0
fi
if [ "$1" = mod ]; then exit 0; fi
if [ "$1" = list ]; then
  for word in "$@"; do :; done
  echo "$HOME/modules/$word"
  exit 0
fi
echo "build" >> "$HOME/builds"
for word in "$@"; do
  case "$word" in
    */) into="$word";;
    -modfile=*) cp -r "$(dirname "${word#-modfile=}")" "$HOME/used";;
  esac
done
echo "go: downloading k8s.io/api v0.36.3"
echo "k8s.io/api/core/v1"
eval "$FAKE_GO"
for program in ${FAKE_PROGRAMS:-etcd kube-apiserver kube-controller-manager}; do
  printf '#!/bin/sh\\n' > "$into$program"
  chmod +x "$into$program"
done
"""


@dataclass
class Remembered:
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        self.notes.append(text)
        yield self.notes.append


@dataclass
class Workshop:
    """A home with a cache, a PATH, and perhaps a `go` on it."""

    home: Path
    environ: dict[str, str]
    progress: Remembered = field(default_factory=Remembered)

    def provide(
        self, *, downloads: Origins | None = None, **changes: Any
    ) -> Mapping[Program, Path]:
        return binaries.provide(
            changes.pop("release", recipes.of()),
            replace(self.place, **changes),
            downloads=downloads,
            progress=self.progress,
        )

    @property
    def notes(self) -> list[str]:
        return self.progress.notes

    @property
    def place(self) -> Place:
        cache = Cache(self.home / "cache", "the control plane")
        return Place(cache=cache, environ=self.environ, packaged_go=None)

    @property
    def builds(self) -> int:
        log = self.home / "builds"
        return log.read_text().count("build") if log.exists() else 0

    def entries(self) -> set[str]:
        return {path.name for path in (self.home / "cache").glob("*")} - {".lock"}

    def go(self, does: str = "", *, version: str = "go1.26.1") -> None:
        script = self.home / "bin" / "go"
        script.write_text(FAKE_GO)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.environ |= {"FAKE_GO": does, "FAKE_GO_VERSION": version}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "bin").mkdir()
    path = os.pathsep.join((str(tmp_path / "bin"), "/usr/bin", "/bin"))
    return Workshop(tmp_path, {"PATH": path, "HOME": str(tmp_path)})


@pytest.fixture
def etcd(tmp_path: Path) -> Path:
    """An executable called etcd that is Python."""
    program = tmp_path / "bin" / "etcd"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    return program

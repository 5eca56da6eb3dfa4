"""Runs the Containerfiles by buildah, with a store and a cache of our own.

The same sources and packages give the same layers: files get one time, and bytecode none. Packages
are downloaded before, by the pip of this environment, so that no build needs a network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from tests.images import base

ROOT: Final = Path(__file__).parents[2]
MIRROR: Final = "http://deb.debian.org/debian"
# By the name of the image: the folder of its program, and the file system that it is built on.
IMAGES: Final[Mapping[str, tuple[str, str]]] = {
    "klutch-bind": ("bind", "agent"),
    "konnector": ("konnector", "agent"),
    "klutchctl": ("klutchctl", "pipeline"),
}
_IGNORED: Final = shutil.ignore_patterns("__pycache__", "chart")  # as .containerignore
_LOCK: Final = "requirements.txt"
_FILE_LOCK: Final = "lock"
_PREFIX: Final = "localhost/klutchctl"
_PYTHON: Final = "3.13"  # of Debian's suite, and of the ordinary base
_PLATFORMS: Final = tuple(f"manylinux_2_{minor}_x86_64" for minor in (5, 12, 17, 24, 27, 28, 34))
_STORE_LIMIT: Final = 3 * 1024**3  # bytes
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Failed(Exception):
    """A program of a build failed; the text is the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds images of a checkout. `folder` is the cache.

    They are built on file systems of our own, or on the image that the Containerfiles name, which
    is pulled from a registry.
    """

    folder: Path
    checkout: Path = ROOT
    own: bool = True

    def build(self, names: Collection[str], *, cached: bool = True) -> dict[str, Path]:
        """Return an OCI archive of each image, made anew where anything it is made of has changed.

        `cached`: take images and layers of earlier builds. Raises Failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / _FILE_LOCK), self._context() as context:
            key = f"{_digest_of(context)}-{base.version() if self.own else 'pulled'}"
            made = {name: self.folder / "out" / f"{name}-{key}.tar" for name in names}
            absent = [name for name, path in made.items() if not (cached and path.exists())]
            if absent:
                if self._emptied():
                    absent = [*names]
                self._configure()
                bases = self._bases() if self.own else {}
                wheels = self._wheels()
            for name in absent:
                image = self._image(name, bases, (context, wheels), cached=cached)
                self._save(image, name, made[name])
            return made

    def _image(
        self, name: str, bases: Mapping[str, str], sources: tuple[Path, Path], *, cached: bool
    ) -> str:
        """Return the id of an image. `sources` are the context and the folder with wheels."""
        room, kind = IMAGES[name]
        context, wheels = sources
        ours = (
            f"--build-arg=BASE={bases['build']}",
            f"--build-context=base=container-image://{bases[kind]}",
        )
        return self._buildah(
            *("bud", "--quiet", "--layers", *(() if cached else ("--no-cache",))),
            f"--timestamp={base.EPOCH}",
            *((*ours, "--pull-never") if bases else ("--pull",)),
            "--format=oci",
            f"--volume={wheels}:/wheels:ro",
            f"--volume={self.folder / 'pip.conf'}:/etc/pip.conf:ro",
            *("-f", str(context / room / "deploy" / "Containerfile"), "-t", f"{_PREFIX}/{name}"),
            str(context),
        ).split()[-1]

    def _save(self, image: str, name: str, archive: Path) -> None:
        """Write an archive in place of older ones."""
        archive.parent.mkdir(exist_ok=True)
        for old in archive.parent.glob(f"{name}-*"):
            old.unlink()
        unfinished = archive.with_suffix(".part")
        self._buildah("push", "--quiet", image, f"oci-archive:{unfinished}:{name}")
        unfinished.rename(archive)

    @contextmanager
    def root(self, name: str) -> Iterator[Path]:
        """Yield a folder with the files of an image that was built."""
        with FileLock(self.folder / _FILE_LOCK):
            container = self._buildah("from", "--pull-never", f"{_PREFIX}/{name}")
            try:
                yield Path(self._buildah("mount", container))
            finally:
                self._buildah("rm", container)

    def _bases(self) -> dict[str, str]:
        """Return the names of the images to build in and on, made where there are none."""
        made = base.version()
        folder = self.folder / "bases" / made
        folder.mkdir(parents=True, exist_ok=True)
        whole = folder / "build.tar"
        if not whole.exists():
            try:
                base.bootstrap(whole, os.environ.get("MIRROR", MIRROR))
            except subprocess.CalledProcessError as error:
                raise Failed(_end(error.stderr)) from None
        return {
            kind: self._base(kind, whole, f"{_PREFIX}/{kind}:{made}")
            for kind in ("build", *base.CHOSEN)
        }

    def _base(self, kind: str, whole: Path, name: str) -> str:
        if self._buildah("images", "--quiet", "--filter", f"reference={name}"):
            return name
        tar = whole.with_name(f"{kind}.tar")
        if not tar.exists():
            base.select(whole, tar, base.CHOSEN[kind])
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(tar), "/")
        self._buildah("config", "--env", f"PATH={_PATH}", container)
        times = f"--timestamp={base.EPOCH}"
        self._buildah("commit", "--quiet", "--rm", "--format=oci", times, container, name)
        return name

    def _wheels(self) -> Path:
        """Return a folder with the wheels of all lock files, for the Python of the images."""
        locks = [self.checkout / "requirements-build.txt"]
        locks += [self.checkout / room / "deploy" / _LOCK for room, _ in IMAGES.values()]
        digest = hashlib.sha256(b"".join(one.read_bytes() for one in locks)).hexdigest()
        folder = self.folder / "wheels" / digest[:16]
        if folder.exists():
            return folder
        with tempfile.TemporaryDirectory(dir=self.folder) as text:
            unfinished = Path(text, "wheels")
            options = [
                *("--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                *("--python-version", _PYTHON, "--implementation", "cp", "--dest", str(unfinished)),
                *(f"--platform={one}" for one in _PLATFORMS),
            ]
            for lock in locks:
                _run([sys.executable, "-m", "pip", "download", *options, "-r", str(lock)], {})
            folder.parent.mkdir(exist_ok=True)
            unfinished.rename(folder)
        return folder

    @contextmanager
    def _context(self) -> Iterator[Path]:
        """Yield a folder with what reaches a build, of one time, so that layers are found again."""
        with tempfile.TemporaryDirectory(dir=self.folder) as text:
            folder = Path(text)
            lines = (self.checkout / ".containerignore").read_text("utf-8").splitlines()
            for name in (one[1:] for one in lines if one.startswith("!")):
                whole = self.checkout / name
                if whole.is_dir():
                    shutil.copytree(whole, folder / name, symlinks=True, ignore=_IGNORED)
                else:
                    shutil.copy(whole, folder / name)
            for path in (folder, *folder.rglob("*")):
                if not path.is_symlink():
                    executable = path.is_dir() or path.stat().st_mode & 0o100
                    path.chmod(0o755 if executable else 0o644)
                os.utime(path, (base.EPOCH, base.EPOCH), follow_symlinks=False)
            yield folder

    def _emptied(self) -> bool:
        """Return whether the store was emptied, since many builds had left their layers there."""
        store = self.folder / "store"
        full = sum(one.lstat().st_size for one in store.rglob("*")) > _STORE_LIMIT
        if full:
            shutil.rmtree(store)
        return full

    def _configure(self) -> None:
        """Write what tells buildah its own store, and pip that there is no index."""
        store = self.folder / "store"
        for one in (store, self.folder / "run"):
            one.mkdir(exist_ok=True)
        driver = os.environ.get("STORAGE_DRIVER", "overlay")
        (self.folder / "storage.conf").write_text(
            f"[storage]\ndriver = '{driver}'\n"
            f"graphroot = '{store}'\nrunroot = '{self.folder / 'run'}'\n"
        )
        (self.folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")

    def _buildah(self, *arguments: str) -> str:
        own = {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "BUILDAH_ISOLATION": os.environ.get("BUILDAH_ISOLATION", "chroot"),
        }
        return _run(["buildah", *arguments], own)


def _digest_of(folder: Path) -> str:
    """Return a digest of the files of a folder: their paths, rights and contents."""
    files = sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    lines = [
        f"{one.relative_to(folder)} {one.stat().st_mode:o} "
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}"
        for one in files
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _run(command: list[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Failed(f"{command[0]} {command[1]}: {_end(done.stderr or done.stdout)}")
    return done.stdout.strip()


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-15:])

"""Finds, downloads or builds the executables of servers.

$KUBEBUILDER_ASSETS (the convention of envtest), our cache, a download, a build: in this order.
Of what is neither of Kubernetes nor etcd there are no releases to download. What is in our cache is
complete, and made by one run at a time. Each download is checked against its published checksum.
"""

import hashlib
import http.client
import os
import platform
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import go_build
from klutchctl.sandbox.recipes import Recipe, Release
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Program
from reconciler.core.errors import HostError

# A folder of envtest has these two; a controller manager is rare there.
_ESSENTIAL: Final = frozenset({Program.ETCD, Program.API_SERVER})
_DRAFT: Final = ".draft-"

_TIMEOUT: Final = 30.0  # without a byte
_CHUNK: Final = 1024 * 1024
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
_HINT: Final = "Check the network and HTTPS_PROXY, or leave --download out to build with Go"


@dataclass(frozen=True, slots=True)
class Origins:
    """The places of published releases; without a trailing slash."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"


OFFICIAL: Final = Origins()


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
        """Hold off other runs."""
        with ExitStack() as stack:
            with files.refusals_explained(self.folder, variable="XDG_CACHE_HOME"):
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = self.folder / ".lock"
                stack.enter_context(
                    files.exclusive(lock, f"the binaries of {self.subject}", progress)
                )
            yield

    @contextmanager
    def draft(self, release_id: str) -> Iterator[Path]:
        """Give the block an empty folder, and make it the entry if the block ends well.

        What killed runs have left goes, too.
        """
        draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{_DRAFT}{release_id}-"))
        try:
            yield draft
            draft.chmod(0o755)
            draft.rename(self.entry(release_id))
        finally:
            for left in self.folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The place to build and keep executables: with `environ`, and the `go` on its PATH or else
    `packaged_go`.
    """

    cache: Cache
    environ: Mapping[str, str]
    packaged_go: Path | None


def workshop(
    recipe: Recipe, folder: str, *, cache_home: Path, environ: Mapping[str, str]
) -> Workshop:
    """Return the usual folder of a build of `recipe`; `folder` names it in our cache."""
    cache = Cache(cache_home / "klutchctl" / folder, recipe.subject)
    return Workshop(cache, environ, go_build.packaged_go())


def provide(
    release: Release, where: Workshop, *, downloads: Origins | None = None, progress: Progress
) -> Mapping[Program, Path]:
    """Return every program's executable, made now if need be, and print its origin.

    What is not there is built, or fetched from `downloads`. Raises HostError.
    """
    assets = _assets(where.environ, progress)
    if len(assets) == len(Program):
        return assets

    rest = [program for program in Program if program not in assets]
    fetch = None
    if downloads is not None:
        fetch = partial(download, release, progress=progress, origins=downloads)
    entry = _entry(where, release.recipe, rest, progress, fetch)
    return {program: entry / program for program in rest} | assets


def provide_built(where: Workshop, recipe: Recipe, *, progress: Progress) -> Path:
    """Return the folder with a build of `recipe`, made now if need be, and print its name.

    Raises HostError.
    """
    return _entry(where, recipe, recipe.packages, progress)


def _entry(
    where: Workshop,
    recipe: Recipe,
    used: Iterable[str],
    progress: Progress,
    fetch: Callable[[Path], None] | None = None,
) -> Path:
    build = partial(
        go_build.build,
        recipe,
        environ=where.environ,
        packaged_go=where.packaged_go,
        progress=progress,
    )
    entry = ensured(where.cache, recipe.id, fetch or build, progress)
    progress.note(f"Using {', '.join(used)} from {entry}")
    return entry


def _assets(environ: Mapping[str, str], progress: Progress) -> dict[Program, Path]:
    value = environ.get("KUBEBUILDER_ASSETS", "")
    if not value:
        return {}
    folder = Path(value).absolute()
    executables = {p: folder / p for p in Program if os.access(folder / p, os.X_OK)}
    if not executables.keys() >= _ESSENTIAL:
        missing = ", ".join(sorted(_ESSENTIAL - executables.keys()))
        progress.note(f"Not using KUBEBUILDER_ASSETS={value}: it has no {missing}")
        return {}
    progress.note(f"Using {', '.join(executables)} from KUBEBUILDER_ASSETS={value}")
    return executables


def ensured(
    cache: Cache, release_id: str, fill: Callable[[Path], None], progress: Progress
) -> Path:
    """Return the whole entry of a release; `fill` makes a new one. Raises HostError."""
    entry = cache.entry(release_id)
    if entry.exists():
        return entry
    with files.full_disk_explained(cache.folder, variable="XDG_CACHE_HOME"), cache.locked(progress):
        if entry.exists():
            return entry  # another run made it meanwhile
        with cache.draft(release_id) as draft:
            fill(draft)
    return entry


def download(
    release: Release, into: Path, *, progress: Progress, origins: Origins = OFFICIAL
) -> None:
    """Write all programs of a release to the folder `into`. Raises HostError."""
    architecture = _architecture()
    progress.note(f"Downloading {release.recipe.versions}")
    for program in release.recipe.packages:
        with progress.step(f"downloading {program}") as update:
            if program == Program.ETCD:
                _download_etcd(release.etcd, architecture, into, origins, update)
                continue
            url = f"{origins.kubernetes}/{release.kubernetes}/bin/linux/{architecture}/{program}"
            expected = _text(f"{url}.sha512").strip()
            fetch(url, into / program, checksum=("sha512", expected), update=update)
            (into / program).chmod(0o755)


def _download_etcd(
    version: str, architecture: str, into: Path, origins: Origins, update: Callable[[str], None]
) -> None:
    folder = f"etcd-{version}-linux-{architecture}"
    base = f"{origins.etcd}/{version}"
    expected = _listed(_text(f"{base}/SHA256SUMS"), f"{folder}.tar.gz")
    archive = into / f"{folder}.tar.gz"
    fetch(f"{base}/{folder}.tar.gz", archive, checksum=("sha256", expected), update=update)
    _extract(archive, f"{folder}/etcd", into / Program.ETCD)
    archive.unlink()


def _architecture() -> str:
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        raise HostError(
            f"there are no official server binaries for {platform.system()} {platform.machine()}",
            hint="Leave --download out to build them with Go",
        )
    return _MACHINES[platform.machine()]


def _chunks(url: str, hint: str = _HINT) -> Iterator[bytes]:
    """Yield the content of a URL. Raises HostError."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            while chunk := answer.read(_CHUNK):
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()
        raise HostError(f"{url} answers {error.code}", hint=hint) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise HostError(f"{url} cannot be read: {reason}", hint=hint) from error


def _text(url: str) -> str:
    return next(_chunks(url), b"").decode("ascii", errors="replace")


def _listed(sums: str, name: str) -> str:
    match = re.search(rf"^([0-9a-f]{{64}})\s+\*?{re.escape(name)}$", sums, re.MULTILINE)
    if match is None:
        raise HostError(f"the checksums of etcd do not list {name}", hint=_HINT)
    return match.group(1)


def fetch(
    url: str,
    target: Path,
    *,
    checksum: tuple[str, str],
    update: Callable[[str], None],
    hint: str = _HINT,
) -> None:
    """Write the content of a URL to a file. Raises HostError, also where the checksum differs."""
    algorithm, expected = checksum
    digest, size = hashlib.new(algorithm), 0
    with target.open("wb") as file:
        for chunk in _chunks(url, hint):
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            update(f"{size // _CHUNK} MiB")
    if digest.hexdigest() != expected.lower():
        raise HostError(f"{url} does not match its {algorithm} checksum", hint=hint)


def matches(file: Path, sha256: str) -> bool:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == sha256


def _extract(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive, "r:gz") as tar:
        content = tar.extractfile(member)
        assert content is not None
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)
    target.chmod(0o755)

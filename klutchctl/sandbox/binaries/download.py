"""Fetch the official release binaries, each checked against its published checksum."""

import hashlib
import http.client
import platform
import re
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from klutchctl.sandbox.binaries.release import Release
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.progress import Progress
from reconciler.core.errors import HostError

_TIMEOUT: Final = 30.0  # without a byte
_CHUNK: Final = 1024 * 1024
_LOST: Final = (OSError, http.client.HTTPException)
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
_HINT: Final = "Check the network and HTTPS_PROXY, or leave --download out to build with Go"


@dataclass(frozen=True, slots=True)
class Origins:
    """Where releases are published; without a trailing slash."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"


OFFICIAL: Final = Origins()


def download(
    release: Release, into: Path, *, progress: Progress, origins: Origins = OFFICIAL
) -> None:
    """Write all programs to the folder `into`. Raises HostError."""
    architecture = _architecture()
    progress.note(f"Downloading Kubernetes {release.kubernetes} and etcd {release.etcd}")
    for program in (Program.API_SERVER, Program.CONTROLLER_MANAGER):
        url = f"{origins.kubernetes}/{release.kubernetes}/bin/linux/{architecture}/{program}"
        expected = _text(f"{url}.sha512").strip()
        with progress.step(f"downloading {program}") as update:
            _fetch(url, into / program, checksum=("sha512", expected), update=update)
        (into / program).chmod(0o755)
    folder = f"etcd-{release.etcd}-linux-{architecture}"
    base = f"{origins.etcd}/{release.etcd}"
    expected = _listed(_text(f"{base}/SHA256SUMS"), f"{folder}.tar.gz")
    archive = into / f"{folder}.tar.gz"
    with progress.step("downloading etcd") as update:
        url = f"{base}/{folder}.tar.gz"
        _fetch(url, archive, checksum=("sha256", expected), update=update)
    _extract(archive, f"{folder}/etcd", into / Program.ETCD)
    archive.unlink()


def _architecture() -> str:
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        raise HostError(
            f"there are no official server binaries for {platform.system()} {platform.machine()}",
            hint="Leave --download out to build them with Go",
        )
    return _MACHINES[platform.machine()]


def _open(url: str) -> IO[bytes]:
    try:
        answer: IO[bytes] = urllib.request.urlopen(url, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise HostError(f"{url} answers {error.code}", hint=_HINT) from error
    except _LOST as error:
        raise _broken(url, error) from error
    return answer


def _broken(url: str, error: Exception) -> HostError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return HostError(f"{url} cannot be read: {reason}", hint=_HINT)


def _text(url: str) -> str:
    with _open(url) as answer:
        try:
            return answer.read(_CHUNK).decode("ascii", errors="replace")
        except _LOST as error:
            raise _broken(url, error) from error


def _listed(sums: str, name: str) -> str:
    match = re.search(rf"^([0-9a-f]{{64}})\s+\*?{re.escape(name)}$", sums, re.MULTILINE)
    if match is None:
        raise HostError(f"the checksums of etcd do not list {name}", hint=_HINT)
    return match.group(1)


def _fetch(
    url: str, target: Path, *, checksum: tuple[str, str], update: Callable[[str], None]
) -> None:
    algorithm, expected = checksum
    digest, size = hashlib.new(algorithm), 0
    with _open(url) as answer, target.open("wb") as file:
        while chunk := _read(answer, url):
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            update(f"{size // _CHUNK} MiB")
    if digest.hexdigest() != expected.lower():
        raise HostError(f"{url} does not match its {algorithm} checksum", hint=_HINT)


def _read(answer: IO[Any], url: str) -> bytes:
    try:
        return bytes(answer.read(_CHUNK))
    except _LOST as error:
        raise _broken(url, error) from error


def _extract(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive, "r:gz") as tar:
        content = tar.extractfile(member) if member in tar.getnames() else None
        if content is None:
            raise HostError(f"{archive.name} holds no file {member}", hint=_HINT)
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)
    target.chmod(0o755)

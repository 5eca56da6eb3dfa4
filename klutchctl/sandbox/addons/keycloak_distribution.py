"""Downloads and checks Keycloak, builds it once for all sandboxes, and finds a Java."""

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from klutchctl.sandbox import binaries, processes
from klutchctl.sandbox.report import Progress
from reconciler.core.errors import HostError

VERSION: Final = "26.7.3"
LAUNCHER: Final = "bin/kc.sh"
_ARTIFACT: Final = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
_ARCHIVE: Final = f"keycloak-quarkus-dist-{VERSION}.zip"
CENTRAL: Final = "https://repo.maven.apache.org/maven2"
_PATH: Final = f"org/keycloak/keycloak-quarkus-dist/{VERSION}/{_ARCHIVE}"
_SHA256: Final = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
# What is fixed when Keycloak is built, so that it need not look for it at each start.
_BUILD: Final = ("build", "--db=dev-file", "--health-enabled=true")
_BUILT: Final = "1"  # another number for other arguments

_OLDEST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT: Final = 30.0
_MAVEN_TIMEOUT: Final = 1800.0
_BUILD_TIMEOUT: Final = 900.0
_HINT: Final = "Check the network and HTTPS_PROXY, and run the command again"


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the Java of JAVA_HOME or PATH. Raises HostError where none is new enough."""
    refused: list[str] = []
    for java in _candidates(environ):
        version = _version_of(java)
        if version >= _OLDEST_JAVA:
            return java
        refused.append(f"{java} is Java {version}" if version else f"{java} does not work")
    found_instead = f" ({'; '.join(refused)})" if refused else ""
    raise HostError(
        f"no Java {_OLDEST_JAVA} or newer is here, which Keycloak needs{found_instead}",
        hint="Install one: as root on Debian or Ubuntu, `apt-get install openjdk-17-jre-headless`;"
        " elsewhere the package of your system. Or name its folder in JAVA_HOME",
    )


def provide(
    cache_home: Path, java: Path, *, environ: Mapping[str, str], progress: Progress
) -> Path:
    """Return the folder of a Keycloak that can start, made now if need be. Raises HostError."""
    cache = binaries.Cache(cache_home / "klutchctl" / "keycloak", "Keycloak")

    def fill(into: Path) -> None:
        archive = into / _ARCHIVE
        _download(archive, environ, progress)
        with progress.step("unpacking Keycloak"):
            _unpack(archive, into)
        with progress.step("building Keycloak, once"):
            _build(into, java)

    entry = binaries.ensured(cache, f"{VERSION}-{_BUILT}", fill, progress)
    progress.note(f"Using Keycloak {VERSION} from {entry}")
    return entry


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME", "")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)


def _version_of(java: Path) -> int:
    """Return the major version; 0 for any text but Java's."""
    try:
        answer = subprocess.run(
            (str(java), "-version"),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _JAVA_VERSION.search(answer.stderr)
    return int(found[1]) if found else 0


def _download(archive: Path, environ: Mapping[str, str], progress: Progress) -> None:
    """Fetch the archive by Maven, which knows the mirrors of this user; else as anybody does."""
    maven = shutil.which("mvn", path=environ.get("PATH", ""))
    if maven:
        with progress.step(f"fetching Keycloak {VERSION} by Maven, 177 MB"):
            fetched = _by_maven(maven, archive, environ)
        if fetched:
            return
        progress.note(f"Maven could not fetch it, so it comes from {CENTRAL}")
    with progress.step(f"downloading Keycloak {VERSION}, 177 MB") as update:
        checksum = ("sha256", _SHA256)
        binaries.fetch(f"{CENTRAL}/{_PATH}", archive, checksum=checksum, update=update, hint=_HINT)


def _by_maven(maven: str, archive: Path, environ: Mapping[str, str]) -> bool:
    command = (
        *(maven, "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy"),
        f"-Dartifact={_ARTIFACT}",
        f"-DoutputDirectory={archive.parent}",
    )
    try:
        run = subprocess.run(
            command,
            cwd=archive.parent,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MAVEN_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return run.returncode == 0 and archive.is_file() and binaries.matches(archive, _SHA256)


def _unpack(archive: Path, into: Path) -> None:
    """Move the content of the archive's one folder into `into`, and remove the archive."""
    with zipfile.ZipFile(archive) as content:
        top = f"keycloak-{VERSION}/"
        if any(not name.startswith(top) or ".." in name for name in content.namelist()):
            raise HostError(f"{archive.name} is not laid out as a Keycloak {VERSION}")
        content.extractall(into)
    archive.unlink()
    for part in (into / top).iterdir():
        part.rename(into / part.name)
    (into / top).rmdir()
    (into / LAUNCHER).chmod(0o755)


def _build(folder: Path, java: Path) -> None:
    environment = {"PATH": os.defpath, "JAVA": str(java)}
    command = (str(folder / LAUNCHER), *_BUILD)
    processes.finish(command, environment, "Keycloak's build", timeout=_BUILD_TIMEOUT)

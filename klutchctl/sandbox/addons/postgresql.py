"""Runs PostgreSQL for the services of a sandbox: finds it, and creates its data once."""

import contextlib
import hashlib
import importlib.util
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import processes
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Layout
from reconciler.core.errors import HostError

_NEEDED: Final = ("postgres", "initdb", "pg_dump", "pg_restore")
_PACKAGED: Final = Path("/usr/lib/postgresql")  # of Debian and its kin
# Reached by every user, and not emptied by a reboot.
_SHARED: Final = Path("/var/tmp")
_ANSWER_TIMEOUT: Final = 30.0
_INITDB_TIMEOUT: Final = 180.0


@dataclass(frozen=True, slots=True)
class PostgresqlPlace:
    """The folders of PostgreSQL's data and executables, and its user if not this one."""

    data: Path
    binaries: Path
    owner: Owner | None


def find(layout: Layout, environ: Mapping[str, str]) -> PostgresqlPlace:
    """Return the PostgreSQL to run, and the folder of its data. Raises HostError."""
    owner = processes.unprivileged_owner()
    if os.geteuid() == 0 and owner is None:
        raise HostError(
            "PostgreSQL refuses to run as root, and there is no user postgres or nobody",
            hint="Run klutchctl as an ordinary user, or make one of these users",
        )
    refused: list[str] = []
    for binaries in _candidates(environ):
        problem = _problem_of(binaries, owner)
        if problem is None:
            return PostgresqlPlace(_home(layout) / "data", binaries, owner)
        refused.append(f"{binaries} {problem}")
    found_instead = f" ({'; '.join(refused)})" if refused else ""
    raise HostError(
        f"no PostgreSQL server is installed here{found_instead}",
        hint="Install one: as root on Debian or Ubuntu, `apt-get install postgresql`; elsewhere"
        " the package of your system; or, with Python before 3.13, `pip install '.[sandbox]'` in a"
        " checkout of klutchctl, which brings one",
    )


def ensure_data(layout: Layout, place: PostgresqlPlace, *, progress: Progress) -> str:
    """Make the data folder, unless it is there, and return the superuser's password.

    Raises HostError, also where a data folder has lost its password.
    """
    _ensure_home(place)
    if place.data.exists():
        try:
            return layout.postgresql_password.read_text()
        except FileNotFoundError:
            raise HostError(
                f"{layout.postgresql_password} is lost",
                hint=f"Put it back, or start afresh: {layout.removal}",
            ) from None
    with progress.step("making a PostgreSQL database cluster"):
        password = secrets.token_urlsafe(24)
        files.write(layout.postgresql_password, password.encode())
        _initdb(layout, place, password)
    return password


def remove(layout: Layout) -> None:
    """Remove the data that is not in the folder of the sandbox."""
    home = _home(layout)
    if home.parent == _SHARED and (_facts(home) is not None or not home.exists()):
        files.remove_folder(home)


def _home(layout: Layout) -> Path:
    """Return the folder for the data alone. The user that root runs PostgreSQL as cannot enter
    the folder of the sandbox.
    """
    if os.geteuid() != 0:
        return layout.services / "postgresql"
    # Names are not unique among the users and folders of a machine.
    digest = hashlib.sha256(str(layout.root).encode()).hexdigest()[:12]
    return _SHARED / f"klutchctl-{layout.root.name}-{digest}"


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("postgres", path=environ.get("PATH", ""))
    if on_path:
        # A link on PATH is alone there; the other programs are beside what it points to.
        yield Path(on_path).resolve().parent
    versions = [path for path in _PACKAGED.glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"


def _problem_of(binaries: Path, owner: Owner | None) -> str | None:
    """Return why these cannot be used, None where they can."""
    missing = [name for name in _NEEDED if not os.access(binaries / name, os.X_OK)]
    if missing:
        return f"has no {', '.join(missing)}"
    command = (*processes.launcher(Path("/"), owner), str(binaries / "postgres"), "--version")
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_ANSWER_TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not work ({type(error).__name__})"
    if answer.returncode == 0:
        return None
    return f"cannot be used by user {owner.uid}" if owner else "does not work"


def _ensure_home(place: PostgresqlPlace) -> None:
    """Make the folder, and refuse one that somebody else can write to."""
    home = place.data.parent
    if place.owner is None:
        files.private_folder(home)
        return
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
    facts = _facts(home)
    if facts is not None and facts.st_uid == 0:  # just made, or by a run that was killed then
        os.chown(home, place.owner.uid, place.owner.gid, follow_symlinks=False)
        facts = _facts(home)
    if facts is None or facts.st_uid != place.owner.uid or stat.S_IMODE(facts.st_mode) != 0o700:
        raise HostError(
            f"{home} is not the folder that this sandbox made",
            hint="Remove it, or use another --name",
        )


def _facts(home: Path) -> os.stat_result | None:
    """Return the facts of a folder; None where there is none, or a link."""
    try:
        facts = home.lstat()
    except FileNotFoundError:
        return None
    return facts if stat.S_ISDIR(facts.st_mode) else None


def _initdb(layout: Layout, place: PostgresqlPlace, password: str) -> None:
    """Make the data folder whole or not at all.

    The process is one of the sandbox: where this run is killed, the next one stops it.
    """
    home = place.data.parent
    draft, password_file = home / "draft", home / "password"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        password_file.unlink(missing_ok=True)
        files.write(password_file, password.encode())
        if place.owner is not None:
            os.chown(password_file, place.owner.uid, place.owner.gid, follow_symlinks=False)
        arguments = (
            f"--pgdata={draft}",
            "--username=postgres",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
        )
        command = (*processes.launcher(home, place.owner), str(place.binaries / "initdb"))
        environment = processes.marked(processes.identity(layout, "initdb"))
        processes.finish((*command, *arguments), environment, "initdb", timeout=_INITDB_TIMEOUT)
    finally:
        password_file.unlink(missing_ok=True)
    draft.rename(place.data)

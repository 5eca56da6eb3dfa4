"""Backups as files, and the runs of pg_dump and pg_restore that make and read them.

Each run has a role of its own with a password of its own, which end with it: what a tenant wrote
into a database, such as a function in a constraint, never runs as an administrator. The password
is in the environment of the run, never among its arguments.
"""

import asyncio
import os
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from postgresql_operator.outcome import Dump, Load
from postgresql_server.postgres import JobFailed, Postgres, ServerTrouble, new_password
from postgresql_server.works import LetIn, ShutOut
from reconciler.core.secret import scrub

TOOLS: Final = ("pg_dump", "pg_restore")
_NOT_LET_IN: Final = "connection to server "  # libpq; it may be full or starting, and passes
_LONGEST: Final = 300  # characters of what a tool said
_LOCKS: Final = "-c lock_timeout=30s"  # of a restore, behind sessions that keep tables locked
_PARTIAL: Final = ".part"


class Dumps:
    """The files in a folder of its own; `binaries` is where pg_dump and pg_restore are."""

    def __init__(self, folder: Path, binaries: Path, postgres: Postgres) -> None:
        self._folder, self._binaries, self._postgres = folder, binaries, postgres
        self._busy: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def size(self, uid: str) -> int | None:
        """Return the size of a Backup's file in bytes, None where there is none."""
        try:
            return self._file(uid).stat().st_size
        except FileNotFoundError:
            return None

    def is_loaded(self, uid: str) -> bool:
        """Return whether a Restore ran to its end."""
        return self._mark(uid).exists()

    def discard(self, uid: str) -> None:
        """Have no file of this object."""
        for path in (*self._partials(uid), self._file(uid), self._mark(uid)):
            path.unlink(missing_ok=True)

    async def dump(self, work: Dump) -> None:
        """Have the file. Raises JobFailed and ServerTrouble."""
        with _disk_reported():
            await self._dump(work)

    async def load(self, work: Load) -> None:
        """Have the database as the file says. Raises JobFailed and ServerTrouble."""
        with _disk_reported():
            await self._load(work)

    async def _dump(self, work: Dump) -> None:
        for left in self._partials(work.uid):
            left.unlink()
        # Of another name each time: a run that was left behind must not write into this one.
        draft = self._folder / f"{work.uid}.{secrets.token_hex(4)}{_PARTIAL}"
        tool = ["pg_dump", "--format=custom", f"--file={draft}"]
        try:
            async with self._role(work.job, work.database, reads_all=True) as environ:
                await self._run(tool, environ)
            _settle(draft)
            draft.rename(self._file(work.uid))
        finally:
            draft.unlink(missing_ok=True)  # the disk may be full of it
        _settle(self._folder)

    async def _load(self, work: Load) -> None:
        tool = ["pg_restore", "--clean", "--if-exists", "--single-transaction", "--no-owner"]
        tool += ["--no-privileges", f"--role={work.database}", f"--dbname={work.database}"]
        async with self._role(work.job, work.database) as environ:
            options = {"PGOPTIONS": _LOCKS}
            await self._run([*tool, str(self._file(work.dump))], {**environ, **options})
            # At once: run again, it would take along what was written since.
            self._mark(work.uid).touch()
            _settle(self._folder)

    @asynccontextmanager
    async def _role(
        self, job: str, database: str, *, reads_all: bool = False
    ) -> AsyncIterator[dict[str, str]]:
        """Have a role for one run, alone on its database; yield what tells the run of it."""
        async with self._busy[database]:
            # Also ends a run that was left behind.
            await self._postgres.shut_out(ShutOut(job))
            secret = new_password()
            await self._postgres.let_in(LetIn(job, database, secret), reads_all=reads_all)
            place = self._postgres.address().place
            try:
                yield {
                    "PGHOST": place.host,
                    "PGPORT": str(place.port),
                    "PGUSER": job,
                    "PGPASSWORD": secret.reveal(),
                    "PGDATABASE": database,
                    "PGAPPNAME": job,
                    "LC_ALL": "C",
                }
            finally:
                await self._postgres.shut_out(ShutOut(job))

    async def _run(self, tool: list[str], environ: dict[str, str]) -> None:
        name, *arguments = tool
        process = await asyncio.create_subprocess_exec(
            str(self._binaries / name),
            *arguments,
            env={"PATH": os.defpath, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            why = _first_line(said.decode(errors="replace")) or f"exit code {process.returncode}"
            failed = ServerTrouble if why.startswith(_NOT_LET_IN) else JobFailed
            raise failed(scrub(f"{name}: {why}", (environ["PGPASSWORD"],)))

    def _file(self, uid: str) -> Path:
        return self._folder / f"{uid}.dump"

    def _mark(self, uid: str) -> Path:
        return self._folder / f"{uid}.loaded"

    def _partials(self, uid: str) -> list[Path]:
        return sorted(self._folder.glob(f"{uid}.*{_PARTIAL}"))


@contextmanager
def _disk_reported() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServerTrouble(f"{error.filename or 'a backup'}: {error.strerror}") from None


def _first_line(said: str) -> str:
    """Return the first error of a tool; the lines after it may quote data."""
    errors = [line for line in said.splitlines() if " error: " in line]
    return errors[0].partition(" error: ")[2][:_LONGEST] if errors else ""


def _settle(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

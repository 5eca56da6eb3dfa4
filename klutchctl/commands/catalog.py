"""`klutchctl catalog`: writes a broker's catalogue as files for Git. Contacts no cluster."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.entry import ExitCode, awaited
from klutchctl.options import flag, option

if TYPE_CHECKING:
    from reconciler.blueprints.offering.files import Output

CODES: Final = {
    ExitCode.CHANGES: "the files differ (with --check)",
    ExitCode.HELD_BACK: "existing objects would lose something, so nothing was written",
}
_HEAD: Final = (
    "# Written by `klutchctl catalog` from a broker's catalogue: run it again, do not edit.\n"
)


def catalog(
    broker: Annotated[Path, typer.Argument(metavar="BROKER.yaml", help="A ServiceBroker.")],
    catalog_file: Annotated[
        Path | None, option("FILE", "The saved answer of GET /v2/catalog.", "--catalog")
    ] = None,
    credentials: Annotated[
        Path | None, option("FILE", "Ask the broker. A YAML file with the keys of its Secret.")
    ] = None,
    out: Annotated[
        Path | None, option("DIR", "Folder of the files. Default: the folder of BROKER.yaml.")
    ] = None,
    check: Annotated[
        bool, flag("--check", "Write nothing; exit with 2 if the files differ.")
    ] = False,
    allow_narrowing: Annotated[
        bool, flag("--allow-narrowing", "Remove plans and parameters that are no longer offered.")
    ] = False,
) -> int:
    """Write files for the offers of a service broker.

    The files are CRDs, templates, rights and fleet documents.

    It warns of rules that a CRD cannot express. Offers that the broker withdrew stay.
    """
    if (catalog_file is None) == (credentials is None):
        raise typer.BadParameter("exactly one of --catalog and --credentials is needed")
    from klutchctl import files
    from klutchctl.broker_files import broker_in, fetched, made_before
    from reconciler.blueprints.offering import kinds
    from reconciler.blueprints.offering.catalogue import catalogue_of
    from reconciler.blueprints.offering.files import files_of

    spec = broker_in(broker)
    folder, where = out or broker.parent, f"ServiceBroker {spec.name}"
    if catalog_file is not None:
        with _faults_of(str(catalog_file)):
            found = catalogue_of(files.read(catalog_file))
    else:
        with _faults_of(where):
            found = awaited(fetched(spec, credentials or Path()))
    lock_file = folder / kinds.LOCK
    lock = files.read(lock_file) if lock_file.exists() else None
    before = made_before(folder, _HEAD)
    with _faults_of(where):
        output = files_of(spec, found, before, lock, allow_narrowing=allow_narrowing)
    return _finish(folder, output, check=check)


@contextmanager
def _faults_of(where: str) -> Iterator[None]:
    """Turn the faults of a catalogue into an error that names `where`."""
    from reconciler.blueprints.offering.catalogue import CatalogueFault
    from reconciler.core.errors import ConfigError

    try:
        yield
    except CatalogueFault as error:
        raise ConfigError("; ".join(error.problems), where=where) from None


def _finish(folder: Path, output: "Output", *, check: bool) -> int:
    """Write the files, or list those that differ."""
    from klutchctl import broker_files
    from klutchctl.render.terminal import visible

    for warning in output.warnings:
        print(f"Warning: {visible(warning)}", file=sys.stderr)
    changes = broker_files.changes(folder, output, _HEAD)
    for change in changes:
        print(f"{change.verb:<8} {visible(str(folder / change.path))}")
    if check:
        return ExitCode.CHANGES if changes else ExitCode.SUCCESS
    broker_files.write(folder, changes)
    print(f"{len(output.files)} files, {len(changes)} of them changed")
    return ExitCode.SUCCESS

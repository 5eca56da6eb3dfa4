"""`klutchctl catalog`: writes a broker's catalogue as files for Git. Contacts no cluster."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from klutchctl.entry import ExitCode
from klutchctl.options import flag, option

CODES: Final = {
    ExitCode.CHANGES: "the files differ (with --check)",
    ExitCode.HELD_BACK: "existing objects would lose something, so nothing was written",
}


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
    from klutchctl import broker_files
    from klutchctl.render.terminal import visible

    folder = out or broker.parent
    output = broker_files.generated(
        broker, folder, catalog_file, credentials, allow_narrowing=allow_narrowing
    )
    for warning in output.warnings:
        print(f"Warning: {visible(warning)}", file=sys.stderr)
    changes = broker_files.changes(folder, output)
    for change in changes:
        print(f"{change.verb:<8} {visible(str(folder / change.path))}")
    if check:
        return ExitCode.CHANGES if changes else ExitCode.SUCCESS
    broker_files.write(folder, changes)
    print(f"{len(output.files)} files, {len(changes)} of them changed")
    return ExitCode.SUCCESS

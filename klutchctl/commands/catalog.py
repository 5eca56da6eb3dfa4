"""`klutchctl catalog`: the catalogue of a service broker as files for Git. Contacts no cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.entry import ExitCode

if TYPE_CHECKING:
    from reconciler.api.osb import BrokerSpec
    from reconciler.blueprints.offering.catalogue import Catalogue, CatalogueFault
    from reconciler.blueprints.offering.files import Output

CODES: Final = {
    ExitCode.CHANGES: "the files differ (with --check)",
    ExitCode.HELD_BACK: "objects that are there would lose something, and nothing was written",
}
_HEAD: Final = (
    "# Written by `klutchctl catalog` from a broker's catalogue: run it again, do not edit.\n"
)


def catalog(
    broker: Annotated[Path, typer.Argument(metavar="BROKER.yaml", help="A ServiceBroker.")],
    catalog_file: Annotated[
        Path | None,
        typer.Option("--catalog", metavar="FILE", help="What GET /v2/catalog answered, saved."),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ask the broker, with the keys of its Secret as a YAML mapping."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files are; by default, beside BROKER.yaml."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; say whether the files differ.")
    ] = False,
    allow_narrowing: Annotated[
        bool,
        typer.Option(
            "--allow-narrowing", help="Let go of plans and parameters that are no longer offered."
        ),
    ] = False,
) -> int:
    """Write CRDs, templates, rights and fleet documents for what a service broker offers.

    Warnings name what a CRD cannot say of the broker's schemas. What is no longer offered stays.
    """
    if (catalog_file is None) == (credentials is None):
        raise typer.BadParameter("exactly one of --catalog and --credentials is needed")
    from klutchctl import files
    from klutchctl.broker_files import broker_in
    from reconciler.blueprints.offering import lock

    spec = broker_in(broker)
    folder = out or broker.parent
    found = (
        _saved(catalog_file) if catalog_file is not None else _fetched(spec, credentials or Path())
    )
    held = folder / lock.FILE
    output = _files(spec, found, files.read(held) if held.exists() else None, allow_narrowing)
    return _finish(folder, output, check=check)


def _saved(file: Path) -> "Catalogue":
    from klutchctl import files
    from reconciler.blueprints.offering.catalogue import CatalogueFault, catalogue_of
    from reconciler.core.errors import ConfigError

    try:
        return catalogue_of(files.read(file))
    except CatalogueFault as error:
        raise ConfigError(_listed(error), where=str(file)) from None


def _fetched(spec: "BrokerSpec", credentials: Path) -> "Catalogue":
    import uvloop

    from klutchctl.broker_files import fetched
    from reconciler.blueprints.offering.catalogue import CatalogueFault
    from reconciler.core.errors import ConfigError

    try:
        return uvloop.run(fetched(spec, credentials))
    except CatalogueFault as error:
        raise ConfigError(_listed(error), where=f"ServiceBroker {spec.name}") from None


def _files(
    spec: "BrokerSpec", catalogue: "Catalogue", held: bytes | None, allow_narrowing: bool
) -> "Output":
    from reconciler.blueprints.offering.catalogue import CatalogueFault
    from reconciler.blueprints.offering.files import files_of
    from reconciler.core.errors import ConfigError

    try:
        return files_of(spec, catalogue, held, allow_narrowing=allow_narrowing)
    except CatalogueFault as error:
        raise ConfigError(_listed(error), where=f"ServiceBroker {spec.name}") from None


def _listed(error: "CatalogueFault") -> str:
    return "; ".join(error.problems)


def _finish(folder: Path, output: "Output", *, check: bool) -> int:
    """Write the files, or say which differ."""
    from klutchctl import broker_files
    from klutchctl.render.terminal import visible

    for warning in output.warnings:
        print(f"Warning: {visible(warning)}", file=sys.stderr)
    changes = broker_files.changes(folder, output, _HEAD)
    for change in changes:
        print(f"{change.what:<8} {visible(str(folder / change.path))}")
    if check:
        return ExitCode.CHANGES if changes else ExitCode.SUCCESS
    broker_files.write(folder, changes)
    print(f"{len(output.files)} files, {len(changes)} of them changed")
    return ExitCode.SUCCESS

"""`klutchctl version`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from klutchctl.exit_codes import ExitCode

_PACKAGES: Final = ("klutchctl", "reconciler", "konnector", "bind")


def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the environment, and name clashes.")
    ] = False,
) -> int:
    """Print the version."""
    from importlib import metadata

    typer.echo(f"klutchctl {metadata.version('klutchctl')}")
    if verbose:
        import platform

        typer.echo(f"Python {platform.python_version()} on {platform.platform()}")
        for line in clashes(metadata.packages_distributions()):
            typer.echo(line)
    return ExitCode.SUCCESS


def clashes(owners: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each of our packages that another distribution also installs."""
    return [
        f"package {name} is also installed by {other}: one overwrites the other's files."
        " Install klutchctl in an environment of its own"
        for name in _PACKAGES
        for other in sorted(set(owners.get(name, ())) - {"klutchctl"})
    ]

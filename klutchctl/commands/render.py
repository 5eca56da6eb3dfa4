"""`klutchctl render`: the Kubernetes objects that a fleet repository means, offline."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import cluster_options, outputs
from klutchctl.exit_codes import ExitCode
from klutchctl.settings import of

if TYPE_CHECKING:
    from reconciler.fleet.values import Fleet
    from reconciler.fleet.wanted import Wanted

_FORMATS: Final = ("text", "json")


def render(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    ref: Annotated[
        str | None,
        typer.Option("--ref", metavar="REF", help="The files in this branch, tag or commit."),
    ] = None,
    output: Annotated[list[str] | None, outputs.option(_FORMATS)] = None,
) -> int:
    """Print the exact objects per cluster, as a first apply would make them. Contacts no cluster.

    What only an apply can know, such as a token, reads "(known after apply)".
    """
    wanted = outputs.parse(output, known=_FORMATS)
    from klutchctl import repository
    from klutchctl.render import manifests

    settings = of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check, ref=ref)
    objects = _objects(fleet, repository.chosen(fleet, cluster_options.of(context)))
    outputs.write(
        wanted,
        {
            "text": lambda _: manifests.as_text(fleet, objects),
            "json": lambda _: manifests.as_json(fleet, objects),
        },
    )
    return ExitCode.SUCCESS


def _objects(fleet: "Fleet", clusters: Collection[str] | None) -> "list[Wanted]":
    """Return the objects of some clusters, or all, with the content of the CRD in its place."""
    from dataclasses import replace

    from reconciler.core.refs import CRD
    from reconciler.fleet.compile import desired
    from reconciler.kube import crds

    contents = dict(zip(crds.APP_CLUSTER, crds.load(*crds.APP_CLUSTER), strict=True))
    return [
        replace(wanted, manifest=contents[wanted.ref.name]) if wanted.ref.kind == CRD else wanted
        for wanted in desired(fleet, clusters=clusters)
    ]

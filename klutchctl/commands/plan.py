"""`klutchctl plan`, `drift` and `show`: print changes, and write to no cluster."""

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from klutchctl.entry import ExitCode, awaited, exit_code, leaves, sentence
from klutchctl.options import Place, flag, option
from klutchctl.settings import (
    Output,
    Settings,
    columns,
    on_terminal,
    output_option,
    parse_outputs,
    usable,
    write_outputs,
)
from reconciler.core.errors import ConfigError, InvalidRepository

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from reconciler.fleet.load import Review
    from reconciler.fleet.values import Access, Fleet
    from reconciler.kube.registry import Reached, Registry
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan
    from reconciler.reports.pr_diff import Against

_FORMATS: Final = ("text", "json", "markdown")


_Credentials: TypeAlias = Annotated[
    bool,
    flag("--credentials", "Also read the Secrets with kubeconfigs. Needs the rights of apply."),
]


def plan(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    place: Place,
    out: Annotated[
        Path | None, option("FILE", "Save the plan, for `klutchctl apply FILE`.", "--out")
    ] = None,
    snapshot: Annotated[
        Path | None, option("FILE", "Use a saved snapshot; contact no cluster.", "--snapshot")
    ] = None,
    base: Annotated[
        str | None,
        option("REF", "Plan a pull request: with the Policies and guards of REF.", "--base"),
    ] = None,
    credentials: _Credentials = False,
    detailed_exitcode: Annotated[
        bool, flag("--detailed-exitcode", "Exit with 2 if there are changes.")
    ] = False,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Show what would change in all clusters. Changes none of them."""
    wanted = parse_outputs(output, known=_FORMATS)
    if out is not None:
        usable("--out", out)
    from klutchctl import files
    from reconciler.planning import planfile

    with _failure_commented(wanted):
        subject = _subject(place, base, settings)
        planned, seconds = _made(subject, settings, snapshot, credentials=credentials)
    if out is not None:
        # On a server, it is a folder there.
        path = place.path.resolve() if place.is_here else place.path
        planned = planfile.identified(replace(planned, repository=str(path)))
    _print(planned, wanted, settings, seconds=seconds, against=subject.against())
    if subject.review is not None and subject.review.denied:
        raise InvalidRepository(subject.review.denied)
    if out is not None:
        files.write(out, planfile.dump(planned))
    allowed = settings.allow_unreachable
    return exit_code(planned, detailed=detailed_exitcode, allow_unreachable=allowed)


@contextmanager
def _failure_commented(outputs: tuple[Output, ...]) -> "Iterator[None]":
    """Have a comment give the reason why there is no plan: else an earlier one would stay."""
    try:
        yield
    except Exception as error:
        from klutchctl.render import plan_formats

        text = plan_formats.without_plan(error, list(map(sentence, leaves(error))))
        comments = tuple(one for one in outputs if one.format == "markdown")
        write_outputs(comments, {"markdown": lambda _: text})
        raise


def _made(
    subject: "_Subject", settings: Settings, snapshot: Path | None, *, credentials: bool
) -> "tuple[Plan, float | None]":
    """Plan against the clusters, or a snapshot; return how long reading took, too."""
    from klutchctl import files, repository
    from reconciler.core import live
    from reconciler.planning import planner

    chosen = repository.chosen(subject.fleet, settings)
    if snapshot is None:
        return awaited(_planned(subject, settings, chosen, credentials=credentials))
    known = live.parse_live(files.read(snapshot, hint=live.HINT), str(snapshot))
    return planner.plan(subject.fleet, known, only=chosen), None


def drift(
    settings: Settings,
    place: Place,
    detailed_exitcode: Annotated[
        bool, flag("--detailed-exitcode", "Exit with 2 if there is drift.")
    ] = False,
    credentials: _Credentials = False,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Show objects of the fleet that differ from the files.

    New and removed objects are no drift.
    """
    wanted = parse_outputs(output, known=_FORMATS)
    from reconciler.reports import partial_plans

    subject = _subject(place, None, settings)
    planned, seconds = _made(subject, settings, None, credentials=credentials)
    repairs = partial_plans.drift(planned)
    _print(repairs, wanted, settings, seconds=seconds)
    allowed = settings.allow_unreachable
    return exit_code(repairs, detailed=detailed_exitcode, allow_unreachable=allowed)


def show(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="A file of `klutchctl plan --out`.")],
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Print a saved plan. Contacts no cluster."""
    wanted = parse_outputs(output, known=_FORMATS)
    from klutchctl import files
    from reconciler.planning import planfile

    _print(planfile.parse(files.read(file, hint=planfile.HINT), str(file)), wanted, settings)
    return ExitCode.SUCCESS


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of a plan; `review` where it is a pull request."""

    fleet: "Fleet"
    review: "Review | None"

    def clusters(self, registry: "Registry") -> "Clusters":
        if self.review is None:
            return registry
        from reconciler.fleet.load import new_ways

        base = self.review.base
        planes, clusters = new_ways(base.loaded.fleet, self.fleet)
        return _PullRequestAccess(registry, base.ref, planes, clusters)

    def against(self) -> "Against | None":
        """Return the edits of the pull request."""
        if self.review is None:
            return None
        from reconciler.reports.pr_diff import Against, edits

        base = self.review.base
        found = edits(base.loaded, self.review.head)
        return Against(base.ref, base.loaded.fleet.revision, found, self.review.denied)


@dataclass(frozen=True, slots=True)
class _PullRequestAccess:
    """The clusters of a pull request, without those that only the pull request gives a way to.

    A pull request could otherwise lead klutchctl, with its credentials, to any cluster that its
    kubeconfig knows, and show the answer in the plan.
    """

    clusters: "Clusters"
    ref: str
    refused_planes: "Collection[str]"
    refused_clusters: "Collection[str]"

    async def control_plane(self, name: str) -> "Reached":
        """Return a control plane. Raises ConfigError for a refused one."""
        if name in self.refused_planes:
            raise self._refusal()
        return await self.clusters.control_plane(name)

    async def app_cluster(self, name: str, access: "Access", *, control_plane: str) -> "Reached":
        """Return an app cluster. Raises ConfigError for a refused one."""
        if name in self.refused_clusters:
            raise self._refusal()
        return await self.clusters.app_cluster(name, access, control_plane=control_plane)

    async def close(self, name: str) -> None:
        """Give the connections of a cluster back."""
        await self.clusters.close(name)

    def _refusal(self) -> ConfigError:
        return ConfigError(
            f"{self.ref} does not lead there, so it is not contacted",
            where="--base",
            hint=f"It is read once its document is in {self.ref}",
        )


def _subject(place: Place, base: str | None, settings: Settings) -> _Subject:
    from klutchctl import repository

    if base is None:
        return _Subject(repository.fleet_of(place, settings), None)
    review = repository.review_of(place, base, settings)
    return _Subject(review.fleet, review)


async def _planned(
    subject: _Subject, settings: Settings, chosen: frozenset[str] | None, *, credentials: bool
) -> "tuple[Plan, float]":
    """Read the clusters, and the further questions of planning; return how long that took."""
    from reconciler import run

    fleet = subject.fleet
    async with settings.registry(fleet) as opened:
        look = await run.look(
            fleet,
            subject.clusters(opened),
            only=chosen,
            credentials=credentials,
            pace=settings.pace(),
        )
        return look.plan, look.seconds


def _print(
    plan: "Plan",
    wanted: tuple[Output, ...],
    settings: Settings,
    *,
    seconds: float | None = None,
    against: "Against | None" = None,
) -> None:
    """Print a plan in the formats asked for. `seconds` is how long reading took."""
    from klutchctl.render import plan_formats

    write_outputs(
        wanted,
        {
            "text": lambda path: plan_formats.text(
                plan,
                # In a file or pipe, the same plan is the same bytes.
                seconds=seconds if on_terminal(path) else None,
                color=settings.colored(path),
                columns=columns(sys.stdout, path),
                against=against,
                steps=settings.verbose,
            ),
            "json": lambda _: plan_formats.as_json(plan, against=against),
            "markdown": lambda _: plan_formats.comment(plan, against=against),
        },
    )

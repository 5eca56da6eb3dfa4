"""`klutchctl plan`: what would change on all clusters. Never writes to any of them."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs, reach
from klutchctl.reach import Reach
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.core.live import Live
    from reconciler.fleet.review import Review
    from reconciler.fleet.values import Fleet
    from reconciler.kube.registry import Registry
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan
    from reconciler.reports.pr_diff import Against

_FORMATS: Final = ("text", "json", "markdown")


def plan(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save it, to be applied exactly.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="FILE", help="Plan against a snapshot; contact no cluster."
        ),
    ] = None,
    ref: Annotated[
        str | None,
        typer.Option("--ref", metavar="REF", help="The files in this branch, tag or commit."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="REF", help="As a pull request to REF: by its Policies and guards."
        ),
    ] = None,
    credentials: Annotated[
        bool,
        typer.Option(
            "--credentials",
            help="As an apply sees it: read the Secrets with kubeconfigs too. Needs its rights.",
        ),
    ] = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where there are changes.")
    ] = False,
    output: Annotated[
        list[str] | None,
        outputs.option(_FORMATS),
    ] = None,
) -> int:
    """Show what would change on all clusters. Nothing is written to any of them."""
    wanted = outputs.parse(output, known=_FORMATS)
    import uvloop

    from klutchctl import files, repository
    from klutchctl.outcome import exit_code
    from reconciler.planning import planfile, planner

    settings = of(context)
    how = reach.of(context)
    subject = _subject(path, ref, base, check_owner=settings.git_owner_check)
    chosen = repository.chosen(subject.fleet, how)
    seconds: float | None = None
    if snapshot is None:
        made, seconds = uvloop.run(
            _planned(subject, how, settings, chosen, credentials=credentials)
        )
    else:
        made = planner.plan(subject.fleet, _from_file(snapshot), only=chosen)
    if out is not None:
        made = planfile.identified(replace(made, repository=str(path.resolve())))
    shown = _Shown(made, subject.against(), seconds)
    _print(shown, wanted, color=settings.color)
    if out is not None:
        files.write(out, planfile.dump(made))
    return exit_code(made, detailed=detailed_exitcode, allow_unreachable=how.allow_unreachable)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is planned; `review` where it is a pull request."""

    fleet: "Fleet"
    review: "Review | None"

    def clusters(self, registry: "Registry") -> "Clusters":
        """Return the clusters that may be contacted."""
        if self.review is None:
            return registry
        from klutchctl.protected import Protected
        from reconciler.fleet.review import new_ways

        base = self.review.base
        planes, clusters = new_ways(base.loaded.fleet, self.fleet)
        return Protected(registry, base.ref, planes, clusters)

    def against(self) -> "Against | None":
        """Return what the pull request changes."""
        if self.review is None:
            return None
        from reconciler.reports.pr_diff import Against, edits

        base = self.review.base
        found = edits(base.loaded, self.review.head)
        return Against(base.ref, base.loaded.fleet.revision, found)


def _subject(path: Path, ref: str | None, base: str | None, *, check_owner: bool) -> _Subject:
    from klutchctl import repository

    if base is None:
        return _Subject(repository.fleet_in(path, ref=ref, check_owner=check_owner), None)
    review = repository.review_in(path, base=base, ref=ref, check_owner=check_owner)
    return _Subject(review.fleet, review)


def _from_file(path: Path) -> "Live":
    from reconciler.core import livefile

    return livefile.parse(path.read_bytes(), str(path))


async def _planned(
    subject: _Subject,
    how: Reach,
    settings: Settings,
    chosen: frozenset[str] | None,
    *,
    credentials: bool,
) -> "tuple[Plan, float]":
    """Read the clusters, and what planning asks beyond the usual; return how long that took."""
    from klutchctl import looking
    from reconciler.kube import registry

    fleet = subject.fleet
    async with registry.of(fleet, reach.surroundings(how, settings)) as opened:
        found = await looking.look(
            fleet, subject.clusters(opened), how, only=chosen, credentials=credentials
        )
        return found.plan, found.seconds


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is printed; `seconds` is how long reading took."""

    plan: "Plan"
    against: "Against | None"
    seconds: float | None


def _print(shown: _Shown, wanted: tuple[outputs.Output, ...], *, color: bool) -> None:
    from klutchctl.render import plan_json, plan_markdown, plan_text

    made, against = shown.plan, shown.against

    def text(path: Path | None) -> str:
        # In a file or pipe, the same plan is the same bytes.
        watched = path is None and sys.stdout.isatty()
        return plan_text.render(
            made,
            seconds=shown.seconds if watched else None,
            color=color and watched,
            against=against,
        )

    outputs.write(
        wanted,
        {
            "text": text,
            "json": lambda _: plan_json.render(made, against=against),
            "markdown": lambda _: plan_markdown.render(made, against=against),
        },
    )

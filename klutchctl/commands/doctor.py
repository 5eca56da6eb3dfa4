"""`klutchctl doctor`: checks connections, rights and CRDs for a plan or an apply."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.entry import ExitCode, awaited, first, reading_code
from klutchctl.options import flag, option
from klutchctl.settings import Output, Settings, output_option, parse_outputs, write_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klutchctl.binding.checkup import Examined
    from reconciler.core.manifest import Manifest
    from reconciler.doctor.diagnosis import Examination
    from reconciler.doctor.rights import Side, Task
    from reconciler.fleet.values import Fleet

CODES: Final = {ExitCode.HELD_BACK: "something would stop a plan, an apply or a bind"}
_FORMATS: Final = ("text", "json")
_SCHEMES: Final = ("https://", "http://")


class Purpose(StrEnum):
    """The purpose of the credentials."""

    PLAN = "plan"
    APPLY = "apply"


class Manifests(StrEnum):
    """The manifests of --print."""

    CONTROL_PLANE_RIGHTS = "control-plane-rights"
    APP_CLUSTER_RIGHTS = "app-cluster-rights"
    CONTROL_PLANE_CRDS = "control-plane-crds"
    APP_CLUSTER_CRDS = "app-cluster-crds"
    DEVELOPER_RIGHTS = "developer-rights"


_DEVELOPERS: Final = (
    "# For each app cluster: an account with ClusterRole view, edit or admin in a namespace may\n"
    "# use the services of the fleet there. Print it again when the fleet binds other services.\n"
)


def doctor(
    settings: Settings,
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH|URL]",
            help="The fleet repository; or the URL of a front door, or of an identity provider.",
        ),
    ] = ".",
    purpose: Annotated[
        Purpose,
        flag(
            "--for",
            "The command to check the credentials for; import, release and "
            "drift --credentials need those for apply.",
        ),
    ] = Purpose.APPLY,
    printed: Annotated[
        Manifests | None, flag("--print", "Print manifests for kubectl apply; contact nothing.")
    ] = None,
    ca_file: Annotated[Path | None, option("FILE", "CA of the server at URL, as PEM.")] = None,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Check connections, clocks, CRDs and rights.

    Prints a command for each problem, and changes nothing.
    """
    wanted = parse_outputs(output, known=_FORMATS)
    if path.startswith(_SCHEMES):
        if printed is not None:
            raise typer.BadParameter("--print is for a fleet repository")
        return _address(path, settings, wanted, ca_file)
    if ca_file is not None:
        raise typer.BadParameter("--ca-file is for a URL")
    from klutchctl import repository
    from reconciler.doctor.rights import Task

    task = Task(purpose.value)
    fleet = repository.fleet_in(Path(path), check_owner=settings.git_owner_check)
    chosen = repository.chosen(fleet, settings)
    if printed is not None:
        typer.echo(_manifests(fleet, printed, task, chosen), nl=False)
        return ExitCode.SUCCESS
    from klutchctl.render import doctor as rendering

    examinations = awaited(_examined(fleet, settings, chosen, task=task))
    write_outputs(
        wanted,
        {
            "text": lambda file: rendering.text(
                examinations, path=path, task=task, color=settings.colored(file), docs=settings.docs
            ),
            "json": lambda _: rendering.as_json(examinations, path=path, task=task),
        },
    )
    return exit_code(examinations, allow_unreachable=settings.allow_unreachable)


def _address(url: str, settings: Settings, wanted: "Sequence[Output]", ca_file: Path | None) -> int:
    """Look at a front door or a provider; exit with 6 where a bind would not succeed."""
    from klutchctl.binding.checkup import examined
    from klutchctl.render import doctor as rendering
    from reconciler.controller.tasks import now_here

    found = awaited(examined(url, ca_file=ca_file, now=now_here))
    write_outputs(
        wanted,
        {
            "text": lambda file: rendering.address_text(
                found, color=settings.colored(file), docs=settings.docs
            ),
            "json": lambda _: rendering.address_json(found),
        },
    )
    return exit_code(found, allow_unreachable=settings.allow_unreachable)


def exit_code(found: "Sequence[Examination | Examined]", *, allow_unreachable: bool) -> ExitCode:
    """Return the exit code: 5 for an unreadable cluster or address, 1 for none, 6 if stopped."""
    from reconciler.doctor.diagnosis import Level

    unreadable = [one for one in found if not one.readable]
    read = reading_code(
        partial=bool(unreadable),
        nothing=bool(found) and len(unreadable) == len(found),
        allow_unreachable=allow_unreachable,
    )
    stopped = any(one.readable and one.level is Level.PROBLEM for one in found)
    return first([read, *([ExitCode.HELD_BACK] if stopped else [])])


async def _examined(
    fleet: "Fleet", settings: Settings, chosen: frozenset[str] | None, *, task: "Task"
) -> "tuple[Examination, ...]":
    from reconciler.controller.tasks import now_here
    from reconciler.doctor.examine import examine

    async with settings.registry(fleet) as clusters:
        return await examine(
            fleet, clusters, task=task, now=now_here, only=chosen, pace=settings.pace()
        )


def _manifests(
    fleet: "Fleet", printed: Manifests, task: "Task", chosen: frozenset[str] | None
) -> str:
    from reconciler.doctor import rights
    from reconciler.kube import crds

    match printed:
        case Manifests.CONTROL_PLANE_RIGHTS:
            return _rights(fleet, rights.Side.CONTROL_PLANE, task, chosen)
        case Manifests.APP_CLUSTER_RIGHTS:
            return _rights(fleet, rights.Side.APP_CLUSTER, task, chosen)
        case Manifests.CONTROL_PLANE_CRDS:
            return _documents(crds.load(*crds.CONTROL_PLANE, *crds.CONTROLLER))
        case Manifests.APP_CLUSTER_CRDS:
            return _documents(crds.load(*crds.APP_CLUSTER))
        case Manifests.DEVELOPER_RIGHTS:
            return _DEVELOPERS + _documents(
                rights.of_developers(rights.scope_of_fleet(fleet, chosen))
            )


def _rights(fleet: "Fleet", side: "Side", task: "Task", chosen: frozenset[str] | None) -> str:
    from reconciler.core.names import KLUTCH_NAMESPACE
    from reconciler.doctor import policies, rights

    account = f"{KLUTCH_NAMESPACE}/{rights.account(fleet.name, task)}"
    kind = side.replace("-", " ")
    head = (
        f"# Rights of ServiceAccount {account} on each {kind} of fleet {fleet.name}: all\n"
        f"# that `klutchctl {task}` needs there, and nothing else. Made by `klutchctl doctor\n"
        f"# --for {task} --print {side}-rights`; print it again for other services.\n"
    )
    if chosen is not None:
        head += f"# Only for {', '.join(sorted(chosen))}.\n"
    scope = rights.scope_of_fleet(fleet, chosen)
    documents = (*rights.manifests(task, side, scope), *policies.manifests(task, side, scope))
    return head + _documents(documents)


def _documents(documents: "Sequence[Manifest]") -> str:
    from klutchctl.render import manifests

    return "".join("\n".join(["---", *manifests.yaml_lines(one), ""]) for one in documents)

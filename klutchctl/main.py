"""Runs a command line: finds the command, and turns a failure into a sentence and an exit code.

Imported for `--help` and shell completion too: commands import what is heavy when they run.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from klutchctl import entry, settings
from klutchctl.commands import (
    CHANGE,
    FILES,
    LOOK,
    MACHINE,
    Command,
    Group,
    apply,
    bind,
    board,
    catalog,
    controller,
    doctor,
    end_of_help,
    explain,
    init,
    plan,
    sandbox,
    status,
    validate,
)
from klutchctl.options import OnOff, option, with_options

if TYPE_CHECKING:
    from reconciler.fleet.service_models import Selector

app = typer.Typer(
    name="klutchctl",
    cls=Group,
    help="Declarative service binding for fleets of Kubernetes clusters.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_READS: Final = entry.meanings(entry.ExitCode.PARTIAL)
_PLANS: Final = {
    **_READS,
    **entry.meanings(entry.ExitCode.HELD_BACK),
    entry.ExitCode.CHANGES: "success, and there are changes (with --detailed-exitcode)",
}
_SHOWS: Final = _READS | entry.meanings(entry.ExitCode.UNHEALTHY)
_WRITES: Final = _SHOWS | entry.meanings(
    entry.ExitCode.HELD_BACK, entry.ExitCode.STALE, entry.ExitCode.LOCKED
)
_DENIED: Final = entry.meanings(entry.ExitCode.DENIED)
_CLUSTERS: Final = "--cluster and -l"
_BOTH: Final = "--cluster, -l and --kubeconfig"


class Entry(NamedTuple):
    """A command, as the help shows it: an example, and the meanings of its exit codes."""

    name: str
    run: Callable[..., int]
    group: str
    example: str
    codes: Mapping[entry.ExitCode, str]
    heeds: str = ""  # of the global options; one that narrows must not be ignored


COMMANDS: Final = (
    Entry(
        "init",
        init.init,
        FILES,
        "~/fleet --name acme --control-plane eu --app shop-1 --team shop",
        _READS,
        "--kubeconfig",
    ),
    Entry("validate", validate.validate, FILES, "--base origin/main", _DENIED),
    Entry("render", validate.render, FILES, "--cluster shop-1", {}, _CLUSTERS),
    Entry("import", init.import_, FILES, "--out imported", _READS, _BOTH),
    Entry("catalog", catalog.catalog, FILES, "broker.yaml --credentials keys.yaml", catalog.CODES),
    Entry("schema", validate.schema, FILES, "fleet.schema.json", {}),
    Entry("plan", plan.plan, LOOK, "--out fleet.plan", _PLANS | _DENIED, _BOTH),
    Entry("diff", plan.plan, LOOK, "--base origin/main -o markdown", _PLANS | _DENIED, _BOTH),
    Entry("drift", plan.drift, LOOK, "--detailed-exitcode", _PLANS, _BOTH),
    Entry("show", plan.show, LOOK, "fleet.plan", {}),
    Entry("status", status.status, LOOK, "--watch", _SHOWS, _BOTH),
    Entry("why", status.why, LOOK, "shop-1/shop-databases", _READS, "--kubeconfig"),
    Entry("board", board.board, LOOK, "--listen 127.0.0.1:8080", {}, _BOTH),
    Entry("snapshot", status.snapshot, LOOK, "--out live.json", _READS, _BOTH),
    Entry("doctor", doctor.doctor, LOOK, "--for plan", _READS | doctor.CODES, _BOTH),
    Entry("explain", explain.explain, LOOK, "MassDeletion", {}),
    Entry("apply", apply.apply, CHANGE, "fleet.plan --wait", _WRITES | _DENIED, _BOTH),
    Entry(
        "controller",
        controller.controller,
        CHANGE,
        "--git https://git.example.com/fleet.git --ref main",
        entry.meanings(entry.ExitCode.LOCKED),
        _BOTH,
    ),
    Entry("release", apply.release, CHANGE, "shop-1/shop-databases", _WRITES, "--kubeconfig"),
    Entry(
        "bind", bind.bind, CHANGE, "https://bind.example.org --context shop-1", bind.CODES, _BOTH
    ),
)
_TAKE_CLUSTERS: Final = {one.name for one in COMMANDS if "--cluster" in one.heeds}
app.add_typer(sandbox.app, name="sandbox", rich_help_panel=MACHINE)
for _one in COMMANDS:
    app.command(
        _one.name,
        cls=Command,
        rich_help_panel=_one.group,
        epilog=end_of_help(f"{_one.name} {_one.example}", _one.codes, _one.heeds),
    )(with_options(_one.run))

_PACKAGES: Final = ("klutchctl", "reconciler", "konnector", "bind")


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
@with_options
def _global_options(
    context: typer.Context,
    given: settings.Settings,
    chdir: Annotated[
        Path | None,
        option("FOLDER", "Change into this folder first.", exists=True, file_okay=False),
    ] = None,
    git_owner_check: Annotated[
        OnOff, typer.Option(help="off: read a Git checkout of another user, too.")
    ] = OnOff.ON,
    selector: Annotated[
        str | None,
        option(
            "LABELS",
            "Only app clusters with these labels, such as env=prod,region in (eu,us),!beta.",
            "--selector",
            "-l",
        ),
    ] = None,
    show_version: Annotated[  # its callback ends the run
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    import logging

    from klutchctl.render.terminal import Lines
    from reconciler.controller import log_context

    handler = logging.StreamHandler()
    handler.setFormatter(Lines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log_context.set_levels(debug=given.verbose)
    if chdir is not None:
        os.chdir(chdir)
    if (
        given.clusters or selector is not None
    ) and context.invoked_subcommand not in _TAKE_CLUSTERS:
        raise typer.BadParameter(
            f"`{context.invoked_subcommand}` does not take --cluster and --selector"
        )
    check = git_owner_check is OnOff.ON
    context.obj = replace(given, git_owner_check=check, selector=_selector(selector))


def _selector(text: str | None) -> "Selector | None":
    """Parse --selector. Raises typer.BadParameter."""
    if text is None:
        return None
    from reconciler.core.errors import ConfigError
    from reconciler.fleet import reference_index

    try:
        return reference_index.parse_label_query(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="'--selector' / '-l'") from None


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(cls=Command, rich_help_panel=MACHINE, epilog=end_of_help("completion bash", {}))
def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that you use.", show_default=False)],
) -> int:
    """Print a completion script for a shell.

    For this shell only: `source <(klutchctl completion bash)`.
    """
    script = get_completion_script(
        prog_name="klutchctl", complete_var=entry.COMPLETION, shell=shell
    )
    typer.echo(script.strip())
    return entry.ExitCode.SUCCESS


@app.command(cls=Command, rich_help_panel=MACHINE, epilog=end_of_help("version --verbose", {}))
def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print the environment, and name clashes.")
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
    return entry.ExitCode.SUCCESS


def clashes(owners: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each of our packages that another distribution also installs."""
    return [
        f"package {name} is also installed by {other}: one overwrites the other's files."
        " Install klutchctl in an environment of its own"
        for name in _PACKAGES
        for other in sorted(set(owners.get(name, ())) - {"klutchctl"})
    ]


def main() -> None:
    """Run the command line and end the process."""
    # It ends like after Ctrl-C, with clean-up, but with the status of a SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(entry.ExitCode.TERMINATED))
    entry.end_after(run)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    arguments = globals_first(arguments)
    try:
        return int(_group()(args=arguments, prog_name="klutchctl", standalone_mode=False) or 0)
    except typer.TyperException as error:
        _show_usage_error(error)
        return entry.ExitCode.USAGE
    except BrokenPipeError:
        raise
    except Exception as error:
        if is_verbose(arguments):
            import traceback

            traceback.print_exception(error)
        from klutchctl.render.terminal import visible_lines

        for leaf in entry.leaves(error):
            print(f"Error: {visible_lines(entry.sentence(leaf))}", file=sys.stderr)
        return entry.first(map(entry.code_of, entry.leaves(error)))


@cache
def _group() -> Any:
    return typer.main.get_command(app)


@cache
def _moved() -> Mapping[str, bool]:
    """Return the global options, and whether a value follows. `version` has a `-v` of its own."""
    options = [one for one in _group().params if not one.is_eager and one.name != "verbose"]
    return {name: not one.is_flag for one in options for name in one.opts}


def globals_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with global options moved before the command; all else in order.

    What follows "--" is left alone.
    """
    moved: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
            break
        name, has_value = _name(argument)
        if name not in _moved():
            rest.append(argument)
            continue
        moved.append(argument)
        if _moved()[name] and not has_value:
            moved += [value for value in [next(waiting, None)] if value is not None]
    return [*moved, *rest]


def _name(argument: str) -> tuple[str, bool]:
    """Return the option that an argument is, and whether its value is in it, as in `-lenv=prod`."""
    if argument.startswith("-l") and argument != "-l":
        return "-l", True
    name, has_value, _ = argument.partition("=")
    return name, bool(has_value)


def is_verbose(arguments: Sequence[str]) -> bool:
    """Return whether `-v` or `--verbose` stands before the command."""
    waiting = iter(globals_first(arguments))
    for argument in waiting:
        if argument in ("-v", "--verbose"):
            return True
        if not argument.startswith("-"):
            return False
        if _moved().get(argument):
            next(waiting, None)
    return False


def _show_usage_error(error: typer.TyperException) -> None:
    """Print the usage line, the fault, and the command for help."""
    show = getattr(error, "show", None)  # the class that declares it is private
    if show is None:
        print(f"Error: {error.format_message()}", file=sys.stderr)
    else:
        show()

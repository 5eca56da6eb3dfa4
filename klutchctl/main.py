"""The entry point: arguments to a command, and every failure to a sentence and an exit code.

Imported for `--help` and shell completion too: commands import what is heavy when they run.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from klutchctl import cluster_options, settings
from klutchctl.arguments import globals_first, is_verbose
from klutchctl.commands import (
    apply,
    doctor,
    importing,
    init,
    plan,
    release,
    render,
    sandbox,
    schema,
    snapshot,
    status,
    validate,
    version,
    why,
)
from klutchctl.exit_codes import ExitCode
from reconciler.core.errors import ConfigError, KlutchError, Locked, StalePlan
from reconciler.core.problems import InvalidRepository
from reconciler.kube import host

app = typer.Typer(
    name="klutchctl",
    help="Declarative service binding for fleets of Kubernetes clusters.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("version")(version.version)
app.command("init")(init.init)
app.command("validate")(validate.validate)
app.command("render")(render.render)
app.command("plan")(plan.plan)
app.command("apply")(apply.apply)
app.command("drift")(plan.drift)
app.command("why")(why.why)
app.command("import")(importing.import_)
app.command("release")(release.release)
app.command("show")(plan.show)
app.command("snapshot")(snapshot.snapshot)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.add_typer(sandbox.app, name="sandbox")


_MANY_FILES: Final = 8192  # for all clusters that are reached at once
# An option that narrows what is done must not be ignored.
_ALWAYS_WHOLE: Final = frozenset(
    {"init", "release", "sandbox", "schema", "show", "validate", "version", "why"}
)


class OnOff(StrEnum):
    """A switch whose usual state is on."""

    ON = "on"
    OFF = "off"


@app.callback()
def _global_options(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the debug log and details of errors.")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Like NO_COLOR=1.")] = False,
    chdir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", exists=True, file_okay=False, help="Run as if started there."
        ),
    ] = None,
    git_owner_check: Annotated[
        OnOff, typer.Option(help="off: read also a Git checkout that belongs to another user.")
    ] = OnOff.ON,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", help="Only this app cluster; repeatable."),
    ] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            "-l",
            metavar="LABELS",
            help="Only app clusters with these labels, as env=prod,region in (eu,us),!beta.",
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead of $KUBECONFIG and ~/.kube/config."),
    ] = None,
    parallelism: Annotated[int, typer.Option(min=1, help="Clusters that are read at once.")] = 32,
    qps: Annotated[float, typer.Option(min=0.1, help="Calls a second, per cluster.")] = 100.0,
    burst: Annotated[int, typer.Option(min=1, help="Calls before --qps holds.")] = 300,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, help="Seconds for all that is read of one cluster."),
    ] = 60.0,
    connect_timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds for a connection to an API server.")
    ] = 10.0,
    deny_networks: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="Kubeconfigs in Secrets may not lead there; repeatable."),
    ] = None,
    allow_networks: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="And there they may all the same; repeatable."),
    ] = None,
    allow_unreachable: Annotated[
        bool,
        typer.Option("--allow-unreachable", help="Succeed although some clusters are not read."),
    ] = False,
) -> None:
    import logging

    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if not verbose:
        # Event loops log tracebacks of connections that were cut; the calls tell that themselves.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if chdir is not None:
        os.chdir(chdir)
    context.obj = settings.read(
        os.environ,
        verbose=verbose,
        no_color=no_color,
        git_owner_check=git_owner_check is OnOff.ON,
    )
    if (cluster or selector is not None) and context.invoked_subcommand in _ALWAYS_WHOLE:
        raise typer.BadParameter(
            f"`{context.invoked_subcommand}` has no use for --cluster and --selector"
        )
    options = cluster_options.ClusterOptions(
        clusters=tuple(cluster or ()),
        selector=cluster_options.selector(selector),
        kubeconfig=kubeconfig,
        parallelism=parallelism,
        qps=qps,
        burst=burst,
        timeout=timeout,
        connect_timeout=connect_timeout,
        deny_networks=tuple(deny_networks or ()),
        allow_networks=tuple(allow_networks or ()),
        allow_unreachable=allow_unreachable,
    )
    cluster_options.set_on(context, options)


def main() -> None:
    """Run the command line and end the process."""
    # A short run makes many objects and few cycles: rarer collections halve the time of a big
    # fleet (measured: compile of 10,000 units, 0.98 s -> 0.43 s without any).
    gc.set_threshold(100_000, 50, 50)
    host.allow_open_files(_MANY_FILES)
    signal.signal(signal.SIGTERM, _terminate)
    _replace_closed_streams()
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        status = _reader_left()
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    arguments = globals_first(arguments)
    try:
        return int(app(args=arguments, prog_name="klutchctl", standalone_mode=False) or 0)
    except typer.TyperException as error:
        _show_usage_error(error)
        return ExitCode.USAGE
    except BrokenPipeError:
        raise
    except Exception as error:
        if is_verbose(arguments):
            import traceback

            traceback.print_exception(error)
        from klutchctl.exit_status import first
        from klutchctl.render.terminal import visible_lines

        leaves = list(_leaves(error))
        for leaf in leaves:
            print(f"Error: {visible_lines(sentence(leaf))}", file=sys.stderr)
        return first(code_of(leaf) for leaf in leaves)


def _show_usage_error(error: typer.TyperException) -> None:
    """Print the usage line, what is wrong, and where help is."""
    show = getattr(error, "show", None)  # the class that declares it is private
    if show is None:
        print(f"Error: {error.format_message()}", file=sys.stderr)
    else:
        show()


def sentence(error: BaseException) -> str:
    """Return what a person is told about `error`."""
    if isinstance(error, KlutchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}"
    # Its text may hold anything, so only its type and origin are shown.
    return (
        f"unexpected {type(error).__name__} at {_origin(error)}. This is a defect of klutchctl;"
        " run the command again as `klutchctl -v ...` for the details that a report needs"
    )


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code that `error` stands for."""
    if isinstance(error, StalePlan):
        return ExitCode.STALE
    if isinstance(error, Locked):
        return ExitCode.LOCKED
    if isinstance(error, InvalidRepository) and not error.invalid:
        return ExitCode.DENIED
    return ExitCode.INVALID if isinstance(error, ConfigError) else ExitCode.FAILED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _origin(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def _replace_closed_streams() -> None:
    """Put /dev/null in the place of a closed standard stream, which Python shows as None.

    In the order of their numbers: a new file gets the lowest free one, so that no file that
    we write can become the stream 1 or 2.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - stays


def _terminate(signal_number: int, frame: object) -> None:
    """End like after Ctrl-C, with clean-up, but with the status of a SIGTERM."""
    del signal_number, frame
    sys.exit(ExitCode.TERMINATED)


def _reader_left() -> int:
    """End quietly: the program that read our output, such as `head`, has enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.FAILED

"""The settings of a run, from options and environment, and its outputs.

An output is `-o FORMAT[=PATH]`: one result in several formats, to standard output or files.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from klutchctl.options import flag, option, seconds
from reconciler.core.errors import HostError

if TYPE_CHECKING:
    from reconciler.fleet.service_models import Selector
    from reconciler.fleet.values import Fleet
    from reconciler.kube.registry import Registry, Surroundings
    from reconciler.observe import Pace

_NARROWEST: Final = 40


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this run, and its ways to clusters. `environ` is for programs, too.

    Times are in seconds; `qps` and `burst` hold for each cluster, `timeout` for all its reads.
    `git_owner_check`: a checkout that belongs to another user is refused. `clusters` and `selector`
    both narrow which app clusters are meant; empty and None are all of them (`repository.chosen`).
    `kubeconfig` None: the files of $KUBECONFIG, else ~/.kube/config. `allow_unreachable`: not to
    have read every cluster is no failure. `docs` is the site with the pages of reasons.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _: KW_ONLY
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the debug log and details of errors.")
    ] = False
    no_color: Annotated[bool, flag("--no-color", "Print without colours.")] = False
    git_owner_check: bool = True
    clusters: Annotated[
        tuple[str, ...], option("NAME", "Only this app cluster; repeatable.", "--cluster")
    ] = ()
    selector: "Selector | None" = None
    kubeconfig: Annotated[
        str | None, option("FILE", "Use this file, not $KUBECONFIG or ~/.kube/config.")
    ] = None
    parallelism: Annotated[int, option("NUMBER", "Clusters to read at the same time.", min=1)] = 32
    qps: Annotated[float, option("NUMBER", "Calls a second to each cluster.", min=0.1)] = 100.0
    burst: Annotated[int, option("NUMBER", "Calls to a cluster before --qps applies.", min=1)] = 300
    timeout: Annotated[float, seconds("To read one cluster.")] = 60.0
    connect_timeout: Annotated[float, seconds("To connect to an API server.")] = 10.0
    deny_networks: Annotated[
        tuple[str, ...],
        option("CIDR", "Refuse kubeconfigs in Secrets with such an address; repeatable."),
    ] = ()
    allow_networks: Annotated[
        tuple[str, ...], option("CIDR", "Exceptions from --deny-networks; repeatable.")
    ] = ()
    allow_unreachable: Annotated[
        bool, flag("--allow-unreachable", "Succeed even if some clusters are unreachable.")
    ] = False
    docs: Annotated[
        str,
        option(
            "URL",
            "Site of the documentation: print a link to each reason.",
            envvar="KLUTCHCTL_DOCS",
            show_default=False,
        ),
    ] = ""

    @property
    def color(self) -> bool:
        """Return whether colours are wanted (https://no-color.org)."""
        return not (self.no_color or self.environ.get("NO_COLOR"))

    def colored(self, path: Path | None) -> bool:
        """Return whether this output gets colours; None is standard output."""
        return self.color and on_terminal(path)

    @property
    def state_home(self) -> Path:
        """The folder for later runs. Raises HostError where the environment names none."""
        return _base("XDG_STATE_HOME", ".local/state", self.environ)

    @property
    def cache_home(self) -> Path:
        """The folder for caches. Raises HostError where the environment names none."""
        return _base("XDG_CACHE_HOME", ".cache", self.environ)

    @property
    def docker(self) -> Path:
        """Docker's file of credentials for registries. Raises HostError."""
        folder = self.environ.get("DOCKER_CONFIG")
        return (Path(folder) if folder else _home("DOCKER_CONFIG", self.environ) / ".docker") / (
            "config.json"
        )

    def pace(self) -> "Pace":
        """Return how many clusters are read at once, and for how long each."""
        from reconciler.observe import Pace

        return Pace(parallelism=self.parallelism, timeout=self.timeout)

    def registry(self, fleet: "Fleet") -> "Registry":
        """Return the clusters of a fleet. Contacts none. Raises ConfigError."""
        from reconciler.kube import registry

        return registry.of(fleet, self.surroundings())

    def surroundings(self) -> "Surroundings":
        """Return where access leads from here. Raises ConfigError."""
        from reconciler.kube import host, kubeconfig, networks
        from reconciler.kube.limits import Limits
        from reconciler.kube.registry import Surroundings

        return Surroundings(
            kubeconfigs=kubeconfig.search_paths(
                self.kubeconfig, environ=self.environ, home=host.home_directory()
            ),
            environ=self.environ,
            limits=Limits(
                qps=self.qps,
                burst=self.burst,
                connect_timeout=min(self.connect_timeout, self.timeout),
                deadline=self.timeout,
            ),
            networks=networks.of_flags(
                self.allow_networks,
                self.deny_networks,
                in_cluster=networks.IN_CLUSTER in self.environ,
            ),
        )


def _base(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """Return a base directory (XDG): one that is not absolute counts as unset."""
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else _home(variable, environ) / default


def _home(variable: str, environ: Mapping[str, str]) -> Path:
    """Return the user's home. Raises HostError where HOME is not an absolute path."""
    home = environ.get("HOME")
    if home is not None and not Path(home).is_absolute():
        problem = f"HOME is {home!r}, which is no absolute path"
    else:
        try:
            return Path.home()
        except RuntimeError:
            problem = "HOME is not set, and this user has no entry with a home folder"
    raise HostError(problem, hint=f"Set HOME, or {variable} to an absolute path")


def on_terminal(path: Path | None) -> bool:
    """Return whether this output is for a terminal, as None, standard output, may be."""
    return path is None and sys.stdout.isatty()


def columns(stream: TextIO, path: Path | None = None) -> int | None:
    """Return the width of the terminal that is written to; None for a pipe, and the file `path`.

    $COLUMNS overrides what the terminal says. A pipe gets whole lines in any case.
    """
    if path is not None or not stream.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _NARROWEST)


@dataclass(frozen=True, slots=True)
class Output:
    """A requested rendering. `path` None is standard output."""

    format: str
    path: Path | None


def output_option(known: Sequence[str]) -> Any:
    """Return the option of a command that can render these formats; the first is the default."""
    return option("FORMAT[=PATH]", ", ".join(known), "--output", "-o")


def parse_outputs(options: Sequence[str] | None, *, known: Sequence[str]) -> tuple[Output, ...]:
    """Return the outputs asked for; the first known format where there is none.

    Raises typer.BadParameter for an unknown format, for two to standard output, and for a file
    that cannot be written: that is to be known before anything is done.
    """
    outputs = []
    for text in options or [known[0]]:
        name, given, path = text.partition("=")
        if name not in known or (given and not path):
            raise typer.BadParameter(
                f"{text!r}: write FORMAT or FORMAT=PATH; formats: {', '.join(known)}"
            )
        outputs.append(Output(name, usable(text, Path(path)) if given else None))
    if sum(one.path is None for one in outputs) > 1:
        raise typer.BadParameter("only one format can go to standard output")
    return tuple(outputs)


def usable(text: str, path: Path) -> Path:
    """Return the path of a file that can be written. Raises typer.BadParameter."""
    folder = path.parent
    if not folder.is_dir():
        raise typer.BadParameter(f"{text!r}: there is no folder {folder}")
    if path.is_dir():
        raise typer.BadParameter(f"{text!r}: {path} is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise typer.BadParameter(f"{text!r}: {path} may not be written")
    return path


def write_outputs(
    outputs: Sequence[Output], render: Mapping[str, Callable[[Path | None], str]]
) -> None:
    """Render the outputs of --output; a renderer gets the path, None for standard output.

    What cannot be written keeps nothing else from it. Raises the OSErrors in a group then; where
    the only one is that the reader of standard output has left, BrokenPipeError.
    """
    failed: list[OSError] = []
    unread: BrokenPipeError | None = None
    for output in outputs:
        text = render[output.format](output.path)
        try:
            _write(output, text)
        except BrokenPipeError as error:
            unread = error
        except OSError as error:
            failed.append(error)
    if failed:
        raise ExceptionGroup("outputs", failed)
    if unread is not None:
        raise unread


def _write(output: Output, text: str) -> None:
    if output.path is None:
        typer.echo(text, nl=False)
    else:
        output.path.write_text(text, "utf-8")


def answer(question: str, stream: TextIO) -> str:
    """Ask, and return the line that comes. Raises KeyboardInterrupt at the first Ctrl-C.

    The handler of a running event loop would only cancel what waits, and this does not: the read
    goes on after a signal (PEP 475).
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=stream, flush=True)
        return sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)

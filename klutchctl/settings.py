"""The settings of a run, from options and environment, and its outputs.

An output is `-o FORMAT[=PATH]`: one result in several formats, to standard output or files. A
place is where the files of a fleet are.
"""

import inspect
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from reconciler.core.errors import HostError

if TYPE_CHECKING:
    from reconciler.fleet.service_models import Selector
    from reconciler.kube.registry import Surroundings
    from reconciler.observe import Pace

_NARROWEST: Final = 40


class OnOff(StrEnum):
    """A switch whose usual state is on."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this run, and its ways to clusters. `environ` is for programs, too.

    Times are in seconds; `qps` and `burst` hold for each cluster, `timeout` for all its reads.
    `git_owner_check`: a checkout that belongs to another user is refused. `clusters` and `selector`
    both narrow which app clusters are meant; empty and None are all of them (`repository.chosen`).
    `kubeconfig` None: the files of $KUBECONFIG, else ~/.kube/config. `allow_unreachable`: not to
    have read every cluster is no failure. `docs` is the site with the pages of reasons.
    """

    environ: Mapping[str, str]
    _: KW_ONLY
    verbose: bool = False
    no_color: bool = False
    git_owner_check: bool = True
    clusters: tuple[str, ...] = ()
    selector: "Selector | None" = None
    kubeconfig: str | None = None
    parallelism: int = 32
    qps: float = 100.0
    burst: int = 300
    timeout: float = 60.0
    connect_timeout: float = 10.0
    deny_networks: tuple[str, ...] = ()
    allow_networks: tuple[str, ...] = ()
    allow_unreachable: bool = False
    docs: str = ""

    @property
    def color(self) -> bool:
        """Return whether colours are wanted (https://no-color.org)."""
        return not (self.no_color or self.environ.get("NO_COLOR"))

    def colored(self, path: Path | None) -> bool:
        """Return whether colours are wanted in what is written there; None is standard output."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a fleet's files; each field is an option, or the argument PATH.

    They are in the folder `path`, or, at `ref`, in a commit of the repository that it lies in. With
    `git`, that repository is on a server; `oci` and `artifact` are archives on one, each with the
    digest of what is there. Raises typer.BadParameter.
    """

    path: Annotated[
        Path,
        typer.Argument(
            help="The fleet repository: a folder, or its first file. With --git, --oci and "
            "--artifact, the folder in it.",
        ),
    ] = Path()
    git: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Read a repository on a server (https or ssh), with the credential in the file "
            "KLUTCHCTL_GIT_TOKEN_FILE or KLUTCHCTL_GIT_SSH_KEY_FILE.",
        ),
    ] = None
    git_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --git: the CA of the server, as PEM."),
    ] = None
    oci: Annotated[
        str | None,
        typer.Option(
            metavar="REF@DIGEST",
            help="Read an OCI artifact of `flux push artifact`, with the credentials in Docker's "
            "config.json.",
        ),
    ] = None
    artifact: Annotated[
        str | None,
        typer.Option(metavar="URL@DIGEST", help="Read an archive of Flux's source-controller."),
    ] = None
    ref: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Read this branch, tag or commit. With --git, the default is the default branch.",
        ),
    ] = None
    verify: Annotated[
        str,
        typer.Option(
            metavar="off|head|tag|history",
            help="With --git: require a signature of the commit, of the tag, or (for a controller) "
            "of every commit since the last accepted one.",
        ),
    ] = "off"
    allowed_signers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="SSH keys, in the format of `git config gpg.ssh.allowedSignersFile`.",
        ),
    ] = None
    gpg_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="OpenPGP keys; needs the extra gpg.")
    ] = None

    @property
    def is_here(self) -> bool:
        return self.git is None and self.oci is None and self.artifact is None

    def __post_init__(self) -> None:
        """Refuse what would be ignored."""
        archive = self.oci is not None or self.artifact is not None
        if sum(one is not None for one in (self.git, self.oci, self.artifact)) > 1:
            raise typer.BadParameter("--git, --oci and --artifact: name one of them")
        if archive and self.ref is not None:
            raise typer.BadParameter("an archive has its digest, and neither --ref nor --base")
        if self.git is None and self.git_ca is not None:
            raise typer.BadParameter("--git-ca needs --git")
        if self.git is None and (self.verify != "off" or self.allowed_signers or self.gpg_keys):
            raise typer.BadParameter("--verify, --allowed-signers and --gpg-keys need --git")


def folder_of(path: Path) -> str:
    """Return where the fleet is in a repository on a server: "", or with "/" at the end."""
    inside = path.as_posix().strip("/")
    return "" if inside in ("", ".") else f"{inside}/"


def with_place(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command with the options of a Place, which it gets as its parameter `place`."""
    options = inspect.signature(Place).parameters
    own = inspect.signature(command).parameters

    @wraps(command)
    def run(**given: Any) -> int:
        place = Place(**{name: given.pop(name) for name in options})
        return command(place=place, **given)

    merged: list[inspect.Parameter] = []
    for name, parameter in own.items():
        merged += options.values() if name == "place" else [parameter]
    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in merged]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]  # read by typer
    return run


def of(context: typer.Context) -> Settings:
    settings = context.obj
    assert isinstance(settings, Settings)
    return settings


def _base(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """XDG Base Directory Specification: what is not absolute counts as unset."""
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else _home(variable, environ) / default


def _home(variable: str, environ: Mapping[str, str]) -> Path:
    """Return the user's home. Raises HostError where HOME is not an absolute path."""
    said = environ.get("HOME")
    if said is not None and not Path(said).is_absolute():
        problem = f"HOME is {said!r}, which is no absolute path"
    else:
        try:
            return Path.home()
        except RuntimeError:
            problem = "HOME is not set, and this user has no entry with a home folder"
    raise HostError(problem, hint=f"Set HOME, or {variable} to an absolute path")


def on_terminal(path: Path | None) -> bool:
    """Return whether what is written there is for a terminal, as None, standard output, may be."""
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
    return typer.Option("--output", "-o", metavar="FORMAT[=PATH]", help=", ".join(known))


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
        outputs.append(Output(name, _writable(text, Path(path)) if given else None))
    if sum(one.path is None for one in outputs) > 1:
        raise typer.BadParameter("only one format can go to standard output")
    return tuple(outputs)


def _writable(text: str, path: Path) -> Path:
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
    """Render what was asked for; a renderer gets the path, None for standard output.

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

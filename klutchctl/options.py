"""The options of commands: how one is written, and the place of a fleet's files."""

import inspect
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import typer

from reconciler.core.errors import ConfigError

S = TypeVar("S")
T = TypeVar("T")
_BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY


class OnOff(StrEnum):
    """A switch whose usual state is on."""

    ON = "on"
    OFF = "off"


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option with a value, named like its parameter where there are no `names`."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def flag(name: str, help: str) -> Any:
    return typer.Option(name, help=help)


def seconds(help: str, *, least: float = 0.1) -> Any:
    """Return an option with a time of at most a day."""
    return option("SECONDS", help, min=least, max=86_400)


def checked(parse: Callable[[S], T], text: S) -> T:
    """Parse an option. Raises typer.BadParameter."""
    try:
        return parse(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def with_options(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command in which each field of a parameter that is a dataclass is an option.

    The command gets the dataclass with the values. Fields that are not `Annotated` are none; a
    tuple is of an option that may be repeated. `settings` are those of the run.
    """
    own = inspect.signature(command).parameters
    groups = {
        name: [field for field in fields(one.annotation) if get_origin(field.type) is Annotated]
        for name, one in own.items()
        if name != "settings" and is_dataclass(one.annotation)
    }

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> T:
        for name, group in groups.items():
            values = {one.name: given.pop(one.name) for one in group}
            many = {one.name: tuple(values[one.name] or ()) for one in group if _is_many(one)}
            given[name] = own[name].annotation(**{**values, **many})
        of_run = {"context": context, "settings": context.obj}
        return command(**given, **{name: of_run[name] for name in of_run.keys() & own.keys()})

    merged = [inspect.Parameter("context", _BY_NAME, annotation=typer.Context)]
    for name, parameter in own.items():
        if name in groups:
            merged += map(_parameter, groups[name])
        elif name not in ("context", "settings"):
            merged.append(parameter.replace(kind=_BY_NAME))
    run.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]  # read by typer
    return run


def _is_many(field: Field[Any]) -> bool:
    return get_origin(get_args(field.type)[0]) is tuple


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return a field as typer knows it, which has lists in place of tuples."""
    kind, default = field.type, field.default
    if _is_many(field):
        kind, default = Annotated[list[str] | None, *get_args(kind)[1:]], None
    return inspect.Parameter(field.name, _BY_NAME, default=default, annotation=kind)


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
        option(
            "URL",
            "Read a repository on a server (https or ssh), with the credential in the file "
            "KLUTCHCTL_GIT_TOKEN_FILE or KLUTCHCTL_GIT_SSH_KEY_FILE.",
        ),
    ] = None
    git_ca: Annotated[Path | None, option("FILE", "With --git: the CA of the server, as PEM.")] = (
        None
    )
    oci: Annotated[
        str | None,
        option(
            "REF@DIGEST",
            "Read an OCI artifact of `flux push artifact`, with the credentials in Docker's "
            "config.json.",
        ),
    ] = None
    artifact: Annotated[
        str | None, option("URL@DIGEST", "Read an archive of Flux's source-controller.")
    ] = None
    ref: Annotated[
        str | None,
        option(
            "REF", "Read this branch, tag or commit. With --git, the default is the default branch."
        ),
    ] = None
    verify: Annotated[
        str,
        option(
            "off|head|tag|history",
            "With --git: require a signature of the commit, of the tag, or (for a controller) "
            "of every commit since the last accepted one.",
        ),
    ] = "off"
    allowed_signers: Annotated[
        Path | None,
        option("FILE", "SSH keys, in the format of `git config gpg.ssh.allowedSignersFile`."),
    ] = None
    gpg_keys: Annotated[Path | None, option("FILE", "OpenPGP keys; needs the extra gpg.")] = None

    @property
    def is_here(self) -> bool:
        return self.git is None and self.oci is None and self.artifact is None

    def __post_init__(self) -> None:
        """Refuse options that would be ignored."""
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

"""What the user and the environment say, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.errors import HostError

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Settings:
    """How this run behaves. `environ` is for the programs that we start.

    `git_owner_check`: a checkout that belongs to another user is refused.
    """

    environ: Mapping[str, str]
    verbose: bool
    color: bool
    git_owner_check: bool

    @property
    def state_home(self) -> Path:
        """What a run leaves for the next one. Raises HostError where no folder can be told."""
        return _base("XDG_STATE_HOME", ".local/state", self.environ)

    @property
    def cache_home(self) -> Path:
        """What can be made again. Raises HostError where no folder can be told."""
        return _base("XDG_CACHE_HOME", ".cache", self.environ)


def read(
    environ: Mapping[str, str],
    *,
    verbose: bool = False,
    no_color: bool = False,
    git_owner_check: bool = True,
) -> Settings:
    """Return the settings. Flags win over the environment."""
    return Settings(
        environ=environ,
        verbose=verbose,
        color=not (no_color or environ.get("NO_COLOR")),  # https://no-color.org
        git_owner_check=git_owner_check,
    )


def of(context: "typer.Context") -> Settings:
    """Return the settings of this run."""
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
            problem = "HOME is not set, and this user has no entry that tells it"
    raise HostError(problem, hint=f"Set HOME, or {variable} to an absolute path")

"""What the user and the environment say, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """How this run behaves. `environ` is for the programs that we start.

    `git_owner_check`: a checkout that belongs to another user is refused.
    """

    environ: Mapping[str, str]
    state_home: Path
    cache_home: Path
    verbose: bool
    color: bool
    git_owner_check: bool


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
        state_home=_base("XDG_STATE_HOME", ".local/state", environ),
        cache_home=_base("XDG_CACHE_HOME", ".cache", environ),
        verbose=verbose,
        color=not (no_color or environ.get("NO_COLOR")),  # https://no-color.org
        git_owner_check=git_owner_check,
    )


def _base(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """XDG Base Directory Specification: what is not absolute counts as unset."""
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else Path.home() / default

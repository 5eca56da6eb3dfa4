"""`klutchctl completion`, and the completion of `kubectl klutchctl`."""

import os
import shlex
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from klutchctl.entry import ExitCode, ending_quietly

_VARIABLE: Final = "_KLUTCHCTL_COMPLETE"
_OR_FILES: Final = ":0"  # kubectl offers files where there is nothing else


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that you use.", show_default=False)],
) -> int:
    """Print a completion script for a shell.

    For this shell only: `source <(klutchctl completion bash)`.
    """
    script = get_completion_script(prog_name="klutchctl", complete_var=_VARIABLE, shell=shell.value)
    typer.echo(script.strip())
    return ExitCode.SUCCESS


def of_kubectl() -> None:
    """Print what the last argument may become, as `kubectl klutchctl` asks, and end the process."""
    words = ["klutchctl", *sys.argv[1:]]
    os.environ[_VARIABLE] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join(words)
    os.environ["COMP_CWORD"] = str(len(words) - 1)
    with ending_quietly():
        from klutchctl.main import main
    try:
        main()
    finally:
        print(_OR_FILES)

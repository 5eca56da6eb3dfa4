"""Runs of `klutchctl`, each in a process of its own that is forked from one with all imports.

Importing costs a run more than half of its time, and tests make hundreds of runs. All else is as
in a shell: arguments, exit code, both streams, signal handlers. Where the start itself is the
matter, tests start the installed script.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SERVER: Final = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "__main__",
        "klutchctl.main",
        "klutchctl.commands.apply",
        "klutchctl.repository",
        "reconciler.apply",
        "reconciler.kube.registry",
        "reconciler.observe",
        "reconciler.run",
        "tests.support.programs",
        "uvloop",
    ]
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run came to."""

    returncode: int
    stdout: str
    stderr: str


def klutchctl(*arguments: str) -> Ended:
    """Run the program to its end."""
    with tempfile.TemporaryDirectory(prefix="klutchctl-run-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _SERVER.Process(target=_main, args=(arguments, os.getcwd(), out, err))
        process.start()
        process.join()
        assert process.exitcode is not None
        return Ended(process.exitcode, out.read_text(), err.read_text())


async def klutchctl_beside(*arguments: str) -> Ended:
    """Run the program to its end, while the event loop of the test turns."""
    return await asyncio.to_thread(klutchctl, *arguments)


def _main(arguments: tuple[str, ...], folder: str, out: Path, err: Path) -> None:
    from klutchctl.main import main

    os.chdir(folder)
    for number, path, mode in (
        (0, Path(os.devnull), os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["klutchctl", *arguments]
    main()

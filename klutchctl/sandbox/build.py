"""Build the servers from their Go modules into a folder."""

import collections
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from klutchctl.sandbox import disk, toolchain
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.progress import Progress
from klutchctl.sandbox.release import MODULE, Release
from klutchctl.sandbox.toolchain import Toolchain
from reconciler.core.errors import HostError

_KEPT_LINES: Final = 15
# What a first build adds to each place: measured, and some room to spare.
_RESULT_MIB: Final = 512
_BUILD_CACHE_MIB: Final = 2560
_MODULE_CACHE_MIB: Final = 1024


def build(
    release: Release,
    into: Path,
    *,
    environ: Mapping[str, str],
    packaged_go: Path | None,
    progress: Progress,
) -> None:
    """Write all programs to the folder `into`. Raises HostError."""
    tools = toolchain.find(environ, oldest=release.go, otherwise=packaged_go)
    disk.require(
        {
            into.parent: (_RESULT_MIB, "XDG_CACHE_HOME"),
            tools.build_cache: (_BUILD_CACHE_MIB, "GOCACHE"),
            tools.module_cache: (_MODULE_CACHE_MIB, "GOMODCACHE"),
        }
    )
    progress.note(
        f"Building Kubernetes {release.kubernetes} and etcd {release.etcd} with {tools.version}"
        f" ({tools.go}). This takes some minutes, once"
    )
    arguments = [str(tools.go), "build", "-v", *release.build_arguments, "-o", f"{into}/"]
    with progress.step("building the control plane") as update:
        status, last_lines = _run(
            [*arguments, *(f"./{program}" for program in Program)],
            environment=toolchain.environment(environ),
            update=update,
        )
    if status != 0:
        raise explain(status, last_lines, into=into, tools=tools)


def explain(status: int, lines: Sequence[str], *, into: Path, tools: Toolchain) -> HostError:
    """Return why a build failed. `status` is negative for a signal, as in subprocess."""
    output = "\n".join(lines)
    if disk.says_full(output):
        return HostError(
            f"no space left while the control plane was built in {into.parent}",
            hint=f"Make room there and in {tools.build_cache} (GOCACHE) and"
            f" {tools.module_cache} (GOMODCACHE), then run the command again",
        )
    if status < 0 or "signal: killed" in output:
        return HostError(
            "the build of the control plane was killed",
            hint="Usually by a lack of memory: give it 4 GiB, or set GOMAXPROCS=1. Nothing is"
            " left broken; run the command again to go on",
        )
    said = "".join(f"\n  {line}" for line in lines)
    return HostError(
        f"go build failed with status {status}:{said}",
        hint="Where it could not fetch a module, check the network and GOPROXY; `--download`"
        " fetches the official binaries instead",
    )


def _run(
    command: Sequence[str], *, environment: Mapping[str, str], update: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Run to the end, and return the exit status and the last lines that matter."""
    with subprocess.Popen(
        command,
        cwd=MODULE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            lines = _follow(process.stdout, update)
            return process.wait(), lines
        except BaseException:
            process.send_signal(signal.SIGINT)  # go then also ends the compilers that it started
            raise


def _follow(output: Iterable[str], update: Callable[[str], None]) -> list[str]:
    """Report modules and packages as they pass by; return the other lines, the last ones."""
    kept: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    modules = packages = 0
    for line in map(str.rstrip, output):
        if line.startswith("go: downloading "):
            modules += 1
            update(f"{modules} modules downloaded")
        elif _is_package(line):
            packages += 1
            update(f"{packages} packages compiled")
        elif line:
            kept.append(line)
    return list(kept)


def _is_package(line: str) -> bool:
    """Tell whether `line` is one of those that -v prints: an import path and nothing else."""
    return bool(line) and " " not in line and not line.endswith(":")

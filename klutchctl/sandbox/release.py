"""Which version of the control plane this klutchctl runs, read from the Go module beside it."""

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent / "controlplane"
_SOURCES: Final = frozenset({".go", ".mod", ".sum"})  # not what a build by hand leaves there


@dataclass(frozen=True, slots=True)
class Release:
    """`kubernetes` and `etcd` are tags such as v1.36.3; `go` is the oldest usable toolchain.

    `id` names the result of a build: it changes with the sources, the versions, the build
    flags and the machine type.
    """

    kubernetes: str
    etcd: str
    go: tuple[int, int]
    id: str

    @property
    def build_arguments(self) -> tuple[str, ...]:
        """What `go build` gets, so that the servers report their version as official ones do."""
        return build_arguments(self.kubernetes)


def of(module: Path = MODULE) -> Release:
    """Return the release that the Go module in `module` builds."""
    requirements = (module / "go.mod").read_text()
    kubernetes = _only(r"k8s\.io/kubernetes (v\S+)", requirements)
    digest = hashlib.sha256(
        " ".join((platform.system(), platform.machine(), *build_arguments(kubernetes))).encode()
    )
    for file in sorted(path for path in module.rglob("*") if path.suffix in _SOURCES):
        digest.update(f"\0{file.relative_to(module)}\0".encode())
        digest.update(file.read_bytes())
    major, minor = _only(r"go (\d+\.\d+)(?:\.\d+)?", requirements).split(".")
    return Release(
        kubernetes=kubernetes,
        etcd=_only(r"go\.etcd\.io/etcd/server/v3 (v\S+)", requirements),
        go=(int(major), int(minor)),
        id=f"{kubernetes}-{digest.hexdigest()[:8]}",
    )


def build_arguments(kubernetes: str) -> tuple[str, ...]:
    """Return the flags of `go build` for this version of Kubernetes."""
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = (("gitVersion", kubernetes), ("gitMajor", major), ("gitMinor", minor))
    return (
        "-trimpath",
        "-ldflags=-s -w " + " ".join(f"-X {package}.{name}={value}" for name, value in stamps),
    )


def _only(pattern: str, requirements: str) -> str:
    found = re.search(rf"^\s*{pattern}\s*$", requirements, re.MULTILINE)
    if found is None:
        raise AssertionError(f"go.mod has no line like {pattern}")
    return found.group(1)
